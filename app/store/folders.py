"""Files by reference: read and written below an allowed folder, and nowhere else.

The folder itself is the administrator's and may be a link. From there on every step is opened by name
within the folder opened before it, without following a symbolic link: what was checked is what is read,
whoever moves folders about meanwhile.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from app.references import Reference, ReferenceFault

_PIECE = 2**20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_FAULTS = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a segment before the last is no folder; a symbolic link below the prefix is not followed",
    errno.ELOOP: "it is a symbolic link, and below the prefix none is followed",
    errno.EISDIR: "it is a folder, not a file",
    errno.EACCES: "the service may not do that there",
    errno.EPERM: "the service may not do that there",
    errno.EROFS: "the folder cannot be written to",
    errno.ENOSPC: "there is no room left there",
    errno.EDQUOT: "there is no room left there",
}


def read_file(reference: Reference, prefix: Reference, check_size: Callable[[int], None]) -> Iterator[bytes]:
    """The file's content piece by piece; it is opened when the first is asked for. Raises ReferenceFault."""
    with _told():
        with _folder_of(reference, prefix) as folder:
            # a pipe would keep us waiting for its other end
            handle = os.open(reference.name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ReferenceFault("it is no plain file")
            check_size(found.st_size)
            while piece := os.read(handle, _PIECE):
                yield piece
        finally:
            os.close(handle)


def write_file(
    reference: Reference, prefix: Reference, chunks: Iterable[bytes], draft: str, former: Iterable[str] = ()
) -> None:
    """Put the chunks in the file's place, once all of them have come; a file of that name is replaced.

    ``draft``: names the file beside it that they are gathered in. ``former``: of attempts that are over,
    which go. One of them that is still writing, unknown to us, has no draft then that it could put in place.

    Raises
    ------
    ReferenceFault
    """
    name = f".{draft}.part"
    with _told(), _folder_of(reference, prefix) as folder:
        for left in (name, *(f".{each}.part" for each in former)):
            with suppress(FileNotFoundError):
                os.unlink(left, dir_fd=folder)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NO_LINK
        try:
            with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb", buffering=0) as file:
                for chunk in chunks:
                    _write_all(file.fileno(), chunk)
                os.fsync(file.fileno())
            os.rename(name, reference.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise


def check_folder(reference: Reference, prefix: Reference) -> None:
    """Raise ReferenceFault where the folder that the file is to be put in is not there."""
    with _told(), _folder_of(reference, prefix):
        pass


@contextmanager
def _folder_of(reference: Reference, prefix: Reference) -> Iterator[int]:
    handle = os.open(f"/{'/'.join(prefix.path)}", _FOLDER)
    try:
        for name in reference.path[len(prefix.path) : -1]:
            below = os.open(name, _FOLDER | _NO_LINK, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fault = _FAULTS.get(error.errno or 0)
        raise ReferenceFault(fault or "the storage failed", temporary=fault is None) from None


def _write_all(handle: int, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[os.write(handle, left) :]
