"""Blobs: sealed files that hold the stored tables, written atomically.

A blob is ``"RVBL" | version (1) | length (2) | its data key, sealed | chunks``. The plain bytes
are cut into chunks of 1 MiB, each sealed by AES-256-GCM under the blob's own random data key with
the nonce ``0 (7) | chunk number (4) | 1 for the last chunk, else 0 (1)``: the STREAM construction,
under which a chunk changed, moved, dropped or added, or an end cut off, does not open. The data
key is sealed to the blob's identity, so that one blob cannot stand in for another.

The service never opens a blob by its header alone, because everybody who can write to the database could
then name a blob in a row of their own. Each row that names a blob has the data key too, sealed to that row
(`Binding`). The header is for the rotation of keys, and for rows of older versions.

A worker is given a `BlobAccess`, which opens this blob alone, and never a master key.

A table that several workers have written is in parts: see `app.store.blobs.reading`.

A blob that a sweep finds to be named by no row goes to the trash: see `app.store.blobs.trash`.

The last twelve of a blob's 32 hex digits are the id of the replica that made it, for a sweep that finds a
file which no row names.

A file is written as a draft in the same folder, flushed to the disk (fsync) and renamed, and its folder is
flushed. So a blob that a row names survives a power cut. An upload that a worker is about to read is named by
no row, and is not flushed. Each writer has a separate draft: if a cluster restarts a task whose worker it has
lost, the two writers of one blob do not write to the same file.

References
----------
Hoang, Reyhanitabar, Rogaway, Vizar 2015, doi:10.1007/978-3-662-47989-6_24 (STREAM).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typing_extensions import Buffer

from app.store.blobs.bucket import Bucket
from app.store.blobs.disk_space import reserve
from app.store.blobs.folder_flush import flush_folder
from app.store.blobs.header_journal import (
    DATA_KEY_BYTES,
    HEADER_BYTES,
    LENGTH_BYTES,
    MAGIC,
    MOST_HEADERS,
    HeaderJournal,
    Headers,
    write_header,
)
from app.store.blobs.small_threads import submit
from app.store.blobs.trash import Trash
from app.store.crypto.sealing import Binding, SealBroken, Sealer, SealUnbound

CHUNK = 2**20

TAG_BYTES = 16
"""Bytes that the seal of a chunk adds to it."""

DRAFT = ".draft"
"""Suffix of a file that is still being written."""

PART = ".part"
"""Suffix of a part of a blob: see `app.store.blobs.reading`."""

BLOBS, PARTS = "blobs", "parts"
"""Folders of a bucket for the objects of blobs and of their parts."""

_OWNER = 12
"""Hex digits of a blob id that name its replica."""

NOBODY = "0" * _OWNER
"""Owner of a blob that no replica made."""

_FLUSH_BYTES = 1 << 25
"""Written bytes after which a flush is started."""


class BlobMissing(Exception):
    """The blob is not in the store."""


def object_key(blob_id: str) -> str:
    """Return the key of a blob's object in a bucket, or that of a part's: all of a blob are in one folder."""
    if blob_id.endswith(PART):
        blob, token, _ = blob_id.split(".")
        return f"{PARTS}/{blob}/{token}"
    return f"{BLOBS}/{blob_id[:2]}/{blob_id}"


@dataclass(frozen=True, slots=True)
class BlobAccess:
    """Path and key of one blob, to read it or to write it once."""

    id: str
    path: str
    header: bytes = field(repr=False)
    data_key: bytes = field(repr=False)
    content: bytes | None = field(default=None, repr=False)
    """Plain bytes of a small table, which is in a row and not in a file; None: the file has them."""
    bucket: Bucket | None = None
    """Bucket that has the blob as an object, without a header; None: it is the file at ``path``."""

    @property
    def key(self) -> str:
        """Key of the blob's object."""
        return object_key(self.id)


def small_table(content: bytes) -> BlobAccess:
    """Return access to a table whose plain bytes were in a row."""
    return BlobAccess("", "", b"", b"", content)


class BlobStore:
    """The folder of all blobs, with the keys to open them."""

    def __init__(self, folder: Path, sealer: Sealer) -> None:
        self.folder = folder
        self.trash = Trash(folder / "trash")
        """Blobs that a sweep found to be named by no row."""
        self._sealer = sealer
        self._journal = HeaderJournal(folder, sealer, self._is_header)

    def allocate(self, owner: str = NOBODY) -> BlobAccess:
        """Allocate a blob to write; ``owner`` is the replica's id, 12 hex digits."""
        blob_id = secrets.token_hex(16 - _OWNER // 2) + owner
        data_key = secrets.token_bytes(DATA_KEY_BYTES)
        return BlobAccess(blob_id, str(self._path(blob_id)), self._header(blob_id, data_key), data_key)

    def seal_key(self, access: BlobAccess, binding: Binding) -> bytes:
        """Seal the blob's data key to a row, which may open the blob from now on."""
        return self._sealer.seal(access.data_key, replace(binding, blob=access.id))

    def move_key(self, blob_id: str, sealed_key: bytes | None, binding: Binding, to: Binding) -> bytes:
        """Seal the data key that one row has of a blob to another row. Raises SealBroken."""
        return self._sealer.seal(self._open_key(blob_id, sealed_key, binding), replace(to, blob=blob_id))

    def access(self, blob_id: str, sealed_key: bytes | None, binding: Binding) -> BlobAccess:
        """Return the access that a row has to a stored blob. Raises BlobMissing, SealBroken.

        Parameters
        ----------
        blob_id
            Blob that the row names.
        sealed_key
            Value of `seal_key` in the row; None in rows of older versions.
        binding
            The row.
        """
        data_key, path = self._open_key(blob_id, sealed_key, binding), self._path(blob_id)
        return BlobAccess(blob_id, str(path), b"".join(_read_header(blob_id, path)), data_key)

    def _open_key(self, blob_id: str, sealed_key: bytes | None, binding: Binding) -> bytes:
        if sealed_key is None:
            raise SealUnbound(f"the row has no key of its {binding.purpose}; run `rowveil reseal`")
        return self._sealer.open(sealed_key, replace(binding, blob=blob_id))

    def access_by_header(self, blob_id: str) -> BlobAccess:
        """Return access to a blob without a row, never for a caller. Raises BlobMissing, SealBroken."""
        return self._access(blob_id, self._path(blob_id))

    def _access(self, blob_id: str, path: Path) -> BlobAccess:
        try:
            return self._open_header(blob_id, path)
        except SealBroken:  # a key rotation may be writing its header: read it again
            return self._open_header(blob_id, path)

    def _open_header(self, blob_id: str, path: Path) -> BlobAccess:
        start, sealed = _read_header(blob_id, path)
        data_key = self._sealer.open(sealed, _context(blob_id))
        return BlobAccess(blob_id, str(path), start + sealed, data_key)

    def delete(self, blob_id: str) -> None:
        """Delete the blob with its parts and drafts, so that none can replace it; it need not be there.

        A blob in the trash is deleted there.
        """
        path = self._path(blob_id)
        try:
            path.unlink()
        except FileNotFoundError:
            self.trash.delete(blob_id)
            path.unlink(missing_ok=True)  # a sweep may have taken it back meanwhile
        for other in drafts_and_parts_of(path):
            other.unlink(missing_ok=True)

    def delete_parts(self, blob_id: str, kept: Collection[str]) -> None:
        """Delete the parts of a blob except the parts of some tokens. Raises OSError."""
        for path in drafts_and_parts_of(self._path(blob_id)):
            if path.name.endswith(PART) and path.name.split(".")[1] not in kept:
                path.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Return every stored file, drafts and parts included."""
        return list(self.folder.glob("??/*"))

    def names(self) -> set[str]:
        """Return the names of all stored blobs, without drafts, parts and the trash."""
        return {path.name for path in self.files() if not path.name.endswith((DRAFT, PART))}

    def take_back(self, path: Path) -> bool:
        """Move a blob from the trash to its place; False if it is gone. Raises OSError."""
        return self.trash.take_back(path, self._path(path.name))

    def measure(self) -> tuple[int, int]:
        """Return the number of files and their bytes, without the trash."""
        return _measured(self.folder.glob("??"))

    def measure_trash(self) -> tuple[int, int]:
        """Return the number of files in the trash and their bytes."""
        return _measured(self.trash.folders())

    def reseal(self) -> int:
        """Seal again every data key that is not under the first master key; return their number.

        The chunks and the data keys stay the same, so readers are not disturbed. A header keeps its length
        and is overwritten in place. Before that, all new headers are written to a journal, so that the next
        call repairs a header torn by a power cut: see `app.store.blobs.header_journal`. Drafts have no header
        yet, and parts never have one. Blobs in the trash are sealed again too, so that they open if they are
        taken back. A blob in the trash whose key is missing is skipped, because no row names it.

        Raises SealBroken: the key of a blob outside the trash is missing; JournalRefused.
        """
        self._apply_journal()
        resealed = 0
        stored = (path for path in self.folder.glob("??/*") if not path.name.endswith((DRAFT, PART)))
        paths = chain(stored, self.trash.files())
        while batch := list(islice(paths, MOST_HEADERS)):
            changes: Headers = [change for path in batch if (change := self._resealed(path)) is not None]
            if changes:
                self._journal.write(changes)
                self._apply_journal()
            resealed += len(changes)
        return resealed

    def _resealed(self, path: Path) -> tuple[str, bytes] | None:
        """Return the blob's id and new header; None if it needs none, or has been deleted."""
        try:
            access = self._access(path.name, path)
        except BlobMissing:
            return None
        except SealBroken:
            if path.is_relative_to(self.trash.folder):
                return None
            raise
        if self._sealer.is_current(access.header[len(MAGIC) + LENGTH_BYTES :]):
            return None
        return access.id, self._header(access.id, access.data_key)

    def _apply_journal(self) -> None:
        """Write the headers of the journal. Idempotent: each call writes the same bytes.

        Raises JournalRefused: a line of it, or a file that it names, is not as a rotation leaves it.
        """
        for blob_id, header in [*self._journal.read_former(), *self._journal.read()]:
            stored = self.trash.find(blob_id) or self._path(blob_id)
            write_header(self.folder, stored.relative_to(self.folder).parts, header)
        self._journal.delete()

    def _is_header(self, blob_id: str, header: bytes) -> bool:
        """Whether the bytes are a header of the blob under one of the master keys."""
        start = MAGIC + (HEADER_BYTES - len(MAGIC) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
        if len(header) != HEADER_BYTES or not header.startswith(start):
            return False
        try:
            return len(self._sealer.open(header[len(start) :], _context(blob_id))) == DATA_KEY_BYTES
        except SealBroken:
            return False

    def _header(self, blob_id: str, data_key: bytes) -> bytes:
        sealed = self._sealer.seal(data_key, _context(blob_id))
        return MAGIC + len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed

    def _path(self, blob_id: str) -> Path:
        return self.folder / blob_id[:2] / blob_id


def owner_of(blob_id: str) -> str:
    """Return the id of the replica that made the blob."""
    return blob_id[-_OWNER:]


def _read_header(blob_id: str, path: Path) -> tuple[bytes, bytes]:
    """Return the start of the file and the sealed data key after it. Raises BlobMissing, SealBroken."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC) + LENGTH_BYTES)
            sealed = file.read(int.from_bytes(start[len(MAGIC) :], "big"))
    except FileNotFoundError as error:
        raise BlobMissing(f"blob {blob_id} is not in the store") from error
    except IsADirectoryError:
        raise SealBroken(f"{str(path)!r} is a folder, where only blobs are: move it away") from None
    if not start.startswith(MAGIC):
        raise SealBroken(f"blob {blob_id} does not start as a blob of this version")
    return start, sealed


def _measured(folders: Iterable[Path]) -> tuple[int, int]:
    """Return the number of files in the folders and their bytes."""
    count = size = 0
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    size += entry.stat().st_size
                    count += 1
    return count, size


def drafts_and_parts_of(path: Path) -> list[Path]:
    """Return the drafts and parts of the blob that this file is, or will be."""
    with contextlib.suppress(FileNotFoundError), os.scandir(path.parent) as entries:
        return [Path(entry.path) for entry in entries if entry.name.startswith(f"{path.name}.")]
    return []


def _new_draft(access: BlobAccess) -> Path:
    return Path(f"{access.path}.{secrets.token_hex(8)}{DRAFT}")


def reserve_draft(access: BlobAccess, size: int) -> str:
    """Create a draft of a new blob with ``size`` bytes of disk space, for a later writer; return its path.

    It is deleted with the blob. A table of a bucket has no draft, because its writer may be on another
    machine; the result is empty then. Raises OSError: ENOSPC; then there is no draft.
    """
    if access.bucket is not None:
        return ""
    draft = _new_draft(access)
    draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        reserve(handle, size)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    return str(draft)


def extend_draft(draft: str, size: int, start: int) -> None:
    """Reserve the bytes ``start`` to ``size`` of a draft of `reserve_draft`. Raises OSError: ENOSPC."""
    if not draft:
        return
    handle = os.open(draft, os.O_WRONLY)
    try:
        reserve(handle, size, start)
    finally:
        os.close(handle)


class SealedWriter(io.RawIOBase):
    """Writable stream of a new blob, which appears at `close`; an error within the block discards it."""

    def __init__(self, access: BlobAccess, durable: bool = True, expected: int = 0, draft: str = "") -> None:
        """Begin a draft.

        Parameters
        ----------
        access
            The new blob.
        durable
            Whether what was closed must be there after a power cut.
        expected
            Bytes of disk space to reserve, of which those not needed are freed at the end.
        draft
            File of `reserve_draft` to take over. If another writer has taken it, this one begins a new file.

        Raises OSError: ENOSPC if the space cannot be reserved; then there is no draft.
        """
        super().__init__()
        self._path = Path(access.path)
        self._bucket, self._key = access.bucket, access.key
        self._draft = _new_draft(access)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        created = os.O_CREAT | os.O_EXCL
        if draft:
            with contextlib.suppress(FileNotFoundError):
                Path(draft).rename(self._draft)
                created = 0
        self._file = io.FileIO(os.open(self._draft, created | os.O_WRONLY, 0o600), "wb")
        self._reserved = bool(expected or draft)
        self._flush: _BackgroundFlush | None = None
        try:
            reserve(self._file.fileno(), expected)
        except BaseException:
            self.discard()
            raise
        flushed = durable and self._bucket is None
        self._flush = _BackgroundFlush(self._file.fileno()) if flushed else None
        self._cipher = AESGCM(access.data_key)
        self._pending = bytearray()
        self._sealed = bytearray(CHUNK + TAG_BYTES)
        self._chunks = 0
        self._head = access.header  # goes out with the first chunk, in one write
        self.plain_bytes = 0

    def reserve(self, size: int, start: int) -> None:
        """Reserve disk space for the bytes ``start`` to ``size`` of the file. Raises OSError: ENOSPC."""
        self._reserved = True
        reserve(self._file.fileno(), size, start)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Append all of ``data``."""
        view = memoryview(data).cast("B")
        self.plain_bytes += len(view)
        taken = 0
        # A full chunk is kept until one more byte arrives: only then it is known not to be the last.
        if self._pending and len(self._pending) + len(view) > CHUNK:
            taken = CHUNK - len(self._pending)
            self._pending += view[:taken]
            self._emit(self._pending, last=False)
            self._pending.clear()
        if not self._pending:
            while len(view) - taken > CHUNK:
                self._emit(view[taken : taken + CHUNK], last=False)
                taken += CHUNK
        self._pending += view[taken:]
        return len(view)

    def close(self) -> None:
        """Seal the last chunk, and rename the draft to the blob or send it to the bucket. Raises OSError."""
        if self.closed:
            return
        try:
            self._emit(self._pending, last=True)
            if self._reserved:
                os.truncate(self._file.fileno(), self._file.tell())
            if self._flush is not None:
                self._flush.settle()
                os.fsync(self._file.fileno())
            self._file.close()
            if self._bucket is None:
                self._draft.rename(self._path)
            else:
                self._bucket.send(self._draft, self._key)
                self._draft.unlink()
            if self._flush is not None:
                flush_folder(self._path.parent)
        except BaseException:
            self.discard()
            raise
        super().close()

    def discard(self) -> None:
        """Delete the draft: no blob appears."""
        if not self.closed:
            if self._flush is not None:
                self._flush.wait()
            self._file.close()
            self._draft.unlink(missing_ok=True)
            super().close()

    def __del__(self) -> None:
        """Delete the draft of a writer that was never closed."""
        if hasattr(self, "_file"):
            self.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _emit(self, plain: bytearray | memoryview, last: bool) -> None:
        size = len(plain) + TAG_BYTES
        sealed = memoryview(self._sealed)[:size]
        self._cipher.encrypt_into(nonce_of(self._chunks, last), plain, None, sealed)
        self._chunks += 1
        if self._head:
            written = os.writev(self._file.fileno(), [self._head, sealed]) - len(self._head)
            if written < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._head = b""
        else:
            written = self._file.write(sealed)
        while written < size:  # the disk became full: the next write has its error
            written += self._file.write(sealed[written:])
        if self._flush is not None:
            self._flush.written(size)


class _BackgroundFlush:
    """Flushes a file while it is being written, so that the final flush is short.

    The kernel alone would start half a minute later, or at the final flush.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._waiting = 0
        self._last: Future[None] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def written(self, size: int) -> None:
        """Count written bytes and start a flush if it is due. Raises OSError: an earlier flush failed."""
        self._waiting += size
        if self._waiting < _FLUSH_BYTES or not (self._last is None or self._last.done()):
            return
        if self._last is not None:
            self._last.result()  # the kernel reports a write error only once
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "flush")
        self._waiting = 0
        self._last = submit(self._thread, os.fdatasync, self._file)

    def settle(self) -> None:
        """Wait for the running flush. Raises OSError: it failed."""
        self.wait()
        if self._last is not None:
            self._last.result()

    def wait(self) -> None:
        """Wait for the running flush and ignore its result."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)


def _context(blob_id: str) -> str:
    return f"blob/{blob_id}/data key"


def nonce_of(chunk: int, last: bool) -> bytes:
    """Return the nonce of a chunk."""
    return chunk.to_bytes(11, "big") + bytes([last])  # 2**32 chunks are 4 PiB
