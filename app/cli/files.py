"""The tables, reports and manifests of a command: files of this machine, or its own input and output."""

import argparse
import gzip
import io
import os
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from app.api.formats import ARROW_STREAM, CSV, PARQUET
from app.api.uploads import type_of_name
from app.cli.failures import CommandFailed, Exit
from app.errors import NO_ROOM

STANDARD = "-"
"""Stands for standard input, or output."""
FORMATS = {"csv": CSV, "parquet": PARQUET, "arrow": ARROW_STREAM}
_ZIPPED = ".gz"


def add_format(parser: argparse.ArgumentParser) -> None:
    """``--format``."""
    parser.add_argument(
        "--format",
        choices=sorted(FORMATS),
        help=f"what '{STANDARD}' is, and any file whose suffix does not say it",
    )


def media_type_of(name: str, wanted: str | None) -> str:
    """The media type of a table's file. Raises CommandFailed."""
    known = type_of_name(name.lower().removesuffix(_ZIPPED)) if name != STANDARD else None
    if known is not None:
        return known
    if wanted is None:
        what = "standard input or output" if name == STANDARD else f"'{name}'"
        raise CommandFailed(f"--format: say what {what} is: {', '.join(sorted(FORMATS))}", Exit.USAGE)
    return FORMATS[wanted]


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """The file, or standard input, to be read; a ``.gz`` is unpacked. Raises CommandFailed."""
    if name == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            if name.lower().endswith(_ZIPPED):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:  # of where it is copied to
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not whole gzip"
        raise CommandFailed(f"{name} cannot be read: {reason}") from None


def check_places(inputs: Iterable[str | Path | None], outputs: Mapping[str, str | Path | None]) -> None:
    """Raise CommandFailed where an output is one of the inputs, which are never modified, or another output.

    ``outputs``: what it is -> its name. None is what is not asked for.
    """
    given = [Path(name) for name in inputs if name is not None and name != STANDARD]
    taken: dict[Path | str, str] = {}
    for what, name in outputs.items():
        if name is None or _is_device(Path(name)):
            continue
        if str(name) == STANDARD:
            place: Path | str = STANDARD
        else:
            place = Path(name).resolve()
            if any(place.exists() and other.exists() and place.samefile(other) for other in given):
                raise CommandFailed(f"{what}: '{name}' is the source itself; name another file", Exit.USAGE)
        if place in taken:
            raise CommandFailed(f"{what}: '{name}' is taken by {taken[place]}; name another file", Exit.USAGE)
        taken[place] = what


def _is_device(path: Path) -> bool:
    """Whether it is such as /dev/null, or a pipe that has a name."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write(name: str, chunks: Iterable[bytes]) -> None:
    """Write a file, or standard output. A file is there whole or not at all; a ``.gz`` is packed.

    Raises CommandFailed; BrokenPipeError where nobody reads standard output any more.
    """
    if name == STANDARD:
        _write_out(chunks)
        return
    path = Path(name)
    try:
        with _draft(path) as file:
            if name.lower().endswith(_ZIPPED):
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                    packed.writelines(chunks)
            else:
                file.writelines(chunks)
    except OSError as error:
        raise CommandFailed(f"{name} cannot be written: {error.strerror}") from None


def _write_out(chunks: Iterable[bytes]) -> None:
    try:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise CommandFailed(f"standard output cannot be written: {error.strerror}") from None


def drop_output() -> None:
    """Let what is left for standard output go: Python would try to write it at its end, and tell."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _draft(path: Path) -> Iterator[IO[bytes]]:
    if _is_device(path):
        with path.open("wb") as file:
            yield file
        return
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def copied(file: BinaryIO, sink: io.RawIOBase) -> int:
    """Bytes copied from the one to the other."""
    size = 0
    while piece := file.read(1 << 20):
        sink.write(piece)
        size += len(piece)
    return size
