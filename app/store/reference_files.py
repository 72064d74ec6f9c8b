"""Files by reference, read and written only below an allowed folder.

The allowed folder itself is configured by the administrator and may be a link. Below it each folder is
opened by name relative to the folder opened before it, without following symbolic links. So the file that was
checked is the file that is read, even if folders are moved meanwhile.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from app.references import Reference, ReferenceFault

_CHUNK = 2**20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC

_FAULTS = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a segment before the last is no folder, or a symbolic link, which is not followed",
    errno.ELOOP: "it is a symbolic link, which is not followed below the prefix",
    errno.EISDIR: "it is a folder, not a file",
    errno.EACCES: "the service has no permission for it",
    errno.EPERM: "the service has no permission for it",
    errno.EROFS: "the folder cannot be written to",
    errno.ENOSPC: "there is no space left",
    errno.EDQUOT: "there is no space left",
}


def read_file(reference: Reference, prefix: Reference, check_size: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the file's content in chunks; the first one opens the file. Raises ReferenceFault."""
    with _reported_as_faults():
        with _folder_of(reference, prefix) as folder:
            # O_NONBLOCK: opening a pipe would otherwise block until its other end is opened.
            handle = os.open(reference.name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ReferenceFault("it is not a regular file")
            check_size(status.st_size)
            while chunk := os.read(handle, _CHUNK):
                yield chunk
        finally:
            os.close(handle)


def write_file(
    reference: Reference, prefix: Reference, chunks: Iterable[bytes], draft: str, former: Iterable[str] = ()
) -> None:
    """Write the chunks to a draft and rename it to the file, replacing an existing one.

    Parameters
    ----------
    reference, prefix
        The file, and the allowed folder above it.
    chunks
        Content of the file.
    draft
        Name of the draft in the same folder, unique to this attempt.
    former
        Names of the drafts of earlier attempts, which are deleted. So an earlier attempt that is still
        writing elsewhere has no draft left to rename.

    Raises
    ------
    ReferenceFault
    """
    name = f".{draft}.part"
    with _reported_as_faults(), _folder_of(reference, prefix) as folder:
        for old_name in (name, *(f".{old_draft}.part" for old_draft in former)):
            with suppress(FileNotFoundError):
                os.unlink(old_name, dir_fd=folder)
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
    """Raise ReferenceFault if the folder of the file does not exist."""
    with _reported_as_faults(), _folder_of(reference, prefix):
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
def _reported_as_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fault = _FAULTS.get(error.errno or 0)
        raise ReferenceFault(fault or "the storage failed", temporary=fault is None) from None


def _write_all(handle: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(handle, rest) :]
