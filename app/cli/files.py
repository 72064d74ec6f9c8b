"""The tables, reports and manifests of a command: files of this machine, or its own input and output."""

import argparse
import gzip
import io
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
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
    except (OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:  # of where it is copied to
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not whole gzip"
        raise CommandFailed(f"{name} cannot be read: {reason}") from None


def refuse_overwriting(source: str, destination: str) -> None:
    """Raise CommandFailed where both are one file: a source is never modified."""
    if STANDARD in (source, destination):
        return
    if Path(destination).exists() and Path(source).exists() and Path(source).samefile(destination):
        raise CommandFailed(f"'{destination}' is the source itself; name another file", Exit.USAGE)


def write(name: str, chunks: Iterable[bytes]) -> None:
    """Write a file, or standard output. A file is there whole or not at all.

    Raises CommandFailed; BrokenPipeError where nobody reads standard output any more.
    """
    if name == STANDARD:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    try:
        with _draft(path) as file:
            for chunk in chunks:
                file.write(chunk)
    except OSError as error:
        raise CommandFailed(f"{name} cannot be written: {error.strerror}") from None


@contextmanager
def _draft(path: Path) -> Iterator[IO[bytes]]:
    if path.exists() and not path.is_file():  # such as /dev/null, or a pipe that has a name
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
