"""Files by reference, read and written only below an allowed folder.

The allowed folder itself is configured by the administrator and may be a link. Below it each folder is
opened by name relative to the folder opened before it, without following symbolic links. So the file that was
checked is the file that is read, even if folders are moved meanwhile.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from app.references import Reference, ReferenceFault

_CHUNK = 2**20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of `os.link` on a file system without hard links."""

_NO_EXCLUSIVE_RENAME = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of `renameat2` with a flag that the file system does not have."""

_RENAME_NOREPLACE = 1

THERE_ALREADY = "there is a file of that name already, and it is not replaced: choose another name"

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
            if stat.S_ISDIR(status.st_mode):
                raise ReferenceFault(
                    "it is a folder and not a regular file; name one file, such as one of a partitioned table"
                )
            if not stat.S_ISREG(status.st_mode):
                raise ReferenceFault("it is not a regular file")
            check_size(status.st_size)
            while chunk := os.read(handle, _CHUNK):
                yield chunk
        finally:
            os.close(handle)


def write_file(
    reference: Reference,
    prefix: Reference,
    chunks: Iterable[bytes],
    draft: str,
    former: Iterable[str] = (),
    overwrite: bool = False,
    proceed: Callable[[], None] = lambda: None,
) -> None:
    """Write the chunks to a draft, and give it the name of the file.

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
    overwrite
        Whether an existing file is replaced. Otherwise one with the same bytes, which an earlier attempt may
        have written, is left as it is.
    proceed
        Called when all is written; the draft gets the name of the file unless this raises an error.

    Raises
    ------
    ReferenceFault
        Also if there is another file, and ``overwrite`` is false.
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
            proceed()
            if overwrite:
                os.rename(name, reference.name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                _put_in_place(name, reference.name, folder)
            os.fsync(folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise


def check_place(reference: Reference, prefix: Reference, overwrite: bool) -> None:
    """Raise ReferenceFault if the file's folder does not exist, or the file does without ``overwrite``."""
    with _reported_as_faults(), _folder_of(reference, prefix) as folder:
        if overwrite:
            return
        with suppress(FileNotFoundError):
            os.stat(reference.name, dir_fd=folder, follow_symlinks=False)
            raise ReferenceFault(THERE_ALREADY)


def _put_in_place(draft: str, name: str, folder: int) -> None:
    """Give a draft its name if no file has it. Raises ReferenceFault, OSError."""
    try:
        try:
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if _renamed_unless_taken(draft, name, folder):
                return
            # Neither hard links nor such a rename: an empty file takes the name, and the draft replaces it. A
            # process that is killed in between leaves the empty file, and the next attempt does not replace
            # it, because nothing shows who made it.
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NO_LINK, dir_fd=folder))
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
    except FileExistsError:
        if not _same_content(draft, name, folder):
            raise ReferenceFault(THERE_ALREADY) from None
    os.unlink(draft, dir_fd=folder)


def _renamed_unless_taken(draft: str, name: str, folder: int) -> bool:
    """Rename the draft in one step if no file has the name; False if the file system does not offer that.

    Raises FileExistsError, OSError.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(folder, os.fsencode(draft), folder, os.fsencode(name), _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCLUSIVE_RENAME:
        return False
    raise OSError(number, os.strerror(number))


def _same_content(draft: str, name: str, folder: int) -> bool:
    flags = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK
    try:
        handle = os.open(name, flags, dir_fd=folder)
    except OSError:  # such as a link, or a file that the service may not read
        return False
    with os.fdopen(handle, "rb") as there, os.fdopen(os.open(draft, flags, dir_fd=folder), "rb") as own:
        status = os.fstat(there.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != os.fstat(own.fileno()).st_size:
            return False
        return all(chunk == there.read(_CHUNK) for chunk in iter(lambda: own.read(_CHUNK), b""))


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
