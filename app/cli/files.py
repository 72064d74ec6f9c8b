"""Files of a command: tables, reports and manifests, or standard input and output."""

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

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.streams import drop_output
from app.errors import NO_ROOM
from app.formats.media_types import ARROW_STREAM, CSV, PARQUET
from app.requests.uploads import type_of_name

STANDARD = "-"
"""Name of standard input or output."""
FORMATS = {"csv": CSV, "parquet": PARQUET, "arrow": ARROW_STREAM}
_ZIPPED = ".gz"
_SECRET = ("--keep-seed",)
"""Options whose file holds a secret, which does not belong on a terminal or in a pipe."""


class FileDamaged(CommandFailed):
    """A file can be opened, but its content does not have the format of its suffix."""


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--format``."""
    parser.add_argument(
        "--format",
        choices=sorted(FORMATS),
        help=f"format of '{STANDARD}', and of a file whose suffix does not name it",
    )


def media_type_of(name: str, wanted: str | None) -> str:
    """Return the media type of a table's file. Raises CommandFailed."""
    known = type_of_name(name.lower().removesuffix(_ZIPPED)) if name != STANDARD else None
    if known is not None:
        return known
    if wanted is None:
        what = "standard input or output" if name == STANDARD else f"'{name}'"
        raise CommandFailed(f"--format: give the format of {what}: {', '.join(sorted(FORMATS))}", Exit.USAGE)
    return FORMATS[wanted]


@contextmanager
def open_input(name: str) -> Iterator[BinaryIO]:
    """Open the file or standard input for reading; a ``.gz`` is decompressed. Raises CommandFailed."""
    try:
        if name == STANDARD:
            yield sys.stdin.buffer
            return
        with Path(name).open("rb") as file:
            if name.lower().endswith(_ZIPPED):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:  # an error of the copy's target
            raise
        place = "standard input" if name == STANDARD else name
        if isinstance(error, OSError) and error.strerror:
            raise CommandFailed(f"{place} cannot be read: {error.strerror}") from None
        raise FileDamaged(f"{place} cannot be read: it is not complete gzip data") from None


def check_places(inputs: Iterable[str | Path | None], outputs: Mapping[str, str | Path | None]) -> None:
    """Raise CommandFailed if an output is also an input, or another output, or has no folder.

    Inputs are never modified, and a name that cannot be written is refused before the work begins.

    ``outputs``: option -> file name; None if not requested.
    """
    given = [Path(name) for name in inputs if name is not None and name != STANDARD]
    taken: dict[Path | str, str] = {}
    for what, name in outputs.items():
        if name is None or _is_device(Path(name)):
            continue
        if str(name) == STANDARD:
            if what in _SECRET:
                raise CommandFailed(f"{what}: a secret is not printed; name a file", Exit.USAGE)
            place: Path | str = STANDARD
        else:
            place = Path(name).resolve()
            if any(place.exists() and other.exists() and place.samefile(other) for other in given):
                raise CommandFailed(
                    f"{what}: '{name}' is an input of this command; name another file", Exit.USAGE
                )
            _check_folder(what, Path(name), place)
        if place in taken:
            raise CommandFailed(f"{what}: '{name}' is used by {taken[place]}; name another file", Exit.USAGE)
        taken[place] = what


def _check_folder(option: str, path: Path, place: Path) -> None:
    """Raise CommandFailed if the path is a folder, or no file can be made where it leads."""
    if path.is_dir():
        raise CommandFailed(f"{option}: '{path}' is a folder; name a file", Exit.USAGE)
    folder = place.parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise CommandFailed(f"{option}: there is no folder '{folder}'; make it first", Exit.USAGE)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandFailed(f"{option}: no file can be made in '{folder}'", Exit.USAGE)


def _is_device(path: Path) -> bool:
    """Return whether the path is a device such as /dev/null, or a named pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write(name: str, chunks: Iterable[bytes]) -> None:
    """Write a file atomically, or standard output; a ``.gz`` is compressed.

    Raises CommandFailed; BrokenPipeError if the reader of standard output has gone.
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


@contextmanager
def _draft(path: Path) -> Iterator[IO[bytes]]:
    if _is_device(path):
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # a symbolic link stays one: its target is written
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


def copy_bytes(file: BinaryIO, sink: io.RawIOBase) -> int:
    """Copy a file, and return the number of bytes."""
    size = 0
    while piece := file.read(1 << 20):
        sink.write(piece)
        size += len(piece)
    return size
