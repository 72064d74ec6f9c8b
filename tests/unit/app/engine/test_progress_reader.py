"""A progress file that does not respond blocks its readers for a limited time, and nothing else."""

import asyncio
import os
from pathlib import Path

from app.engine.engine import Progress
from app.engine.progress_file import ProgressFile, make_progress_file, read_progress
from app.engine.progress_reader import ProgressReader


def report(path: Path, fraction: float) -> Progress:
    make_progress_file(path)
    with ProgressFile(str(path)) as progress:
        progress(fraction, "swapping")
    return Progress(fraction, "swapping")


def stall(path: Path) -> None:
    """Put a pipe without a writer in the file's place: opening it blocks."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def let_go(path: Path) -> None:
    """Let reads of the pipe end, and later ones find no file."""
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    path.unlink()
    os.close(writer)


def test_a_stalled_file_shows_what_was_read_last(tmp_path: Path) -> None:
    reads = []

    def counted(path: Path) -> Progress | None:
        reads.append(path)
        return read_progress(path)

    known, unknown, other = (tmp_path / name for name in ("known", "unknown", "other"))

    async def run() -> None:
        reader = ProgressReader(patience=60.0, read=counted)
        try:
            assert await reader.read(tmp_path / "absent") is None
            expected = report(known, 0.25)
            assert await reader.read(known) == expected
            reader._patience = 0.05
            stall(known)
            assert await asyncio.gather(*(reader.read(known) for _ in range(50))) == [expected] * 50
            assert reads.count(known) == 2
            fresh = report(other, 0.5)
            while await reader.read(other) != fresh:  # one thread is left
                pass
            stall(unknown)
            assert await reader.read(unknown) is None
        finally:
            reader.close()
            for path in (known, unknown):
                let_go(path)

    asyncio.run(run())
