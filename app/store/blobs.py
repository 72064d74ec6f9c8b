"""Buffers at rest: sealed files below ``home/blobs``, written whole or not at all.

A blob is ``"RVBL" | version (1) | length (2) | its data key, sealed | chunks``. The plain bytes
are cut into chunks of 1 MiB, each sealed by AES-256-GCM under the blob's own random data key with
the nonce ``0 (7) | chunk number (4) | 1 for the last chunk, else 0 (1)``: the STREAM construction,
under which a chunk changed, moved, dropped or added, or an end cut off, does not open. The data
key is sealed to the blob's identity, so that one blob cannot stand in for another.

A worker is given a `BlobAccess`, which opens this blob alone, and never a master key.

The last twelve of a blob's 32 hex digits say which replica makes it, for those who find the file
and no row that names it.

A file is written beside its place, flushed to the disk (fsync), renamed, and its folder flushed:
a blob that a row of the database names is there after a power cut as well. An upload that a worker is
still to read is named by no row, and not flushed. Each writer has a draft of its
own: two that write one blob, where a cluster starts a task again whose worker it has lost from sight, do
not write into each other's.

References
----------
Hoang, Reyhanitabar, Rogaway, Vizar 2015, doi:10.1007/978-3-662-47989-6_24 (STREAM).
"""

import contextlib
import io
import os
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typing_extensions import Buffer

from app.store.seal import SealBroken, Sealer

CHUNK = 2**20
_TAG = 16
_MAGIC = b"RVBL\x01"
DRAFT = ".draft"
"""Ends the name of a file that is still being written."""
_OWNER = 12
_NOBODY = "0" * _OWNER
_RESEALED_AT_ONCE = 1000
_FLUSHED_AT_ONCE = 1 << 25


class BlobMissing(Exception):
    """A blob is not in the store."""


@dataclass(frozen=True, slots=True)
class BlobAccess:
    """What opens one blob, for reading or for writing it once."""

    id: str
    path: str
    header: bytes = field(repr=False)
    data_key: bytes = field(repr=False)


class BlobStore:
    """The folder of blobs, and who may open them."""

    def __init__(self, folder: Path, sealer: Sealer) -> None:
        self.folder = folder
        self._journal = folder / "reseal.journal"
        self._sealer = sealer

    def allocate(self, owner: str = _NOBODY) -> BlobAccess:
        """Access to a blob that is still to be written; ``owner``: the replica, 12 hex digits."""
        blob_id = secrets.token_hex(16 - _OWNER // 2) + owner
        data_key = secrets.token_bytes(32)
        return BlobAccess(blob_id, str(self._path(blob_id)), self._header(blob_id, data_key), data_key)

    def access(self, blob_id: str) -> BlobAccess:
        """Access to a blob that is there. Raises BlobMissing, SealBroken."""
        try:
            return self._access(blob_id)
        except SealBroken:  # its header may be sealed anew this moment
            return self._access(blob_id)

    def _access(self, blob_id: str) -> BlobAccess:
        path = self._path(blob_id)
        try:
            with path.open("rb") as file:
                start = file.read(len(_MAGIC) + 2)
                sealed = file.read(int.from_bytes(start[len(_MAGIC) :], "big"))
        except FileNotFoundError as error:
            raise BlobMissing(f"blob {blob_id} is not in the store") from error
        if not start.startswith(_MAGIC):
            raise SealBroken(f"blob {blob_id} does not start as a blob of this version")
        data_key = self._sealer.open(sealed, _context(blob_id))
        return BlobAccess(blob_id, str(path), start + sealed, data_key)

    def delete(self, blob_id: str) -> None:
        """Remove the blob and its drafts, none of which can become it then; nothing happens where none is."""
        path = self._path(blob_id)
        path.unlink(missing_ok=True)
        for draft in path.parent.glob(f"{blob_id}.*{DRAFT}"):
            draft.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Every file that is there, drafts included."""
        return list(self.folder.glob("??/*"))

    def measure(self) -> tuple[int, int]:
        """How many files there are, and their bytes."""
        sizes = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):  # gone this moment
                sizes.append(path.stat().st_size)
        return len(sizes), sum(sizes)

    def reseal(self) -> int:
        """Seal every data key anew that is not under the first master key; how many were.

        The chunks stay: a blob's own key is the same as before, so whoever reads it goes on. A header
        keeps its length and is written in its place, and before that all of them into a file beside,
        so that one that a power cut tore is written again by the next call. Drafts have no header yet.

        Raises SealBroken: a blob is under a key that is not here.
        """
        self._apply_journal()
        resealed = 0
        paths = (path for path in self.folder.glob("??/*") if not path.name.endswith(DRAFT))
        while batch := list(islice(paths, _RESEALED_AT_ONCE)):
            changes = [change for path in batch if (change := self._resealed(path)) is not None]
            if changes:
                self._write_journal(changes)
                self._apply_journal()
            resealed += len(changes)
        return resealed

    def _resealed(self, path: Path) -> tuple[str, bytes] | None:
        """The blob and its new header; None where it needs none, or has gone."""
        try:
            access = self.access(path.name)
        except BlobMissing:
            return None
        if self._sealer.is_current(access.header[len(_MAGIC) + 2 :]):
            return None
        return access.id, self._header(access.id, access.data_key)

    def _write_journal(self, changes: list[tuple[str, bytes]]) -> None:
        text = "".join(f"{blob_id} {header.hex()}\n" for blob_id, header in changes)
        draft = self._journal.with_suffix(DRAFT)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._journal)
        _flush_folder(self.folder)

    def _apply_journal(self) -> None:
        """Write the headers that the journal has. As often as it takes: the same bytes each time."""
        if not self._journal.is_file():
            return
        for line in self._journal.read_text().splitlines():
            blob_id, _, header = line.partition(" ")
            try:
                handle = os.open(self._path(blob_id), os.O_WRONLY)
            except FileNotFoundError:  # deleted meanwhile
                continue
            try:
                os.pwrite(handle, bytes.fromhex(header), 0)
                os.fsync(handle)
            finally:
                os.close(handle)
        self._journal.unlink()

    def _header(self, blob_id: str, data_key: bytes) -> bytes:
        sealed = self._sealer.seal(data_key, _context(blob_id))
        return _MAGIC + len(sealed).to_bytes(2, "big") + sealed

    def _path(self, blob_id: str) -> Path:
        return self.folder / blob_id[:2] / blob_id


def owner_of(blob_id: str) -> str:
    """The replica that made the blob."""
    return blob_id[-_OWNER:]


class SealedWriter(io.RawIOBase):
    """Writes a blob as a stream. It comes into being at `close`; leaving by an error discards it."""

    def __init__(self, access: BlobAccess, lasting: bool = True) -> None:
        """``lasting``: what was closed is there after a power cut, too; else nobody may need it then."""
        super().__init__()
        self._path = Path(access.path)
        self._draft = Path(f"{access.path}.{secrets.token_hex(8)}{DRAFT}")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = io.FileIO(os.open(self._draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
        self._flushed = _Flushed(self._file.fileno()) if lasting else None
        self._cipher = AESGCM(access.data_key)
        self._pending = bytearray()
        self._sealed = bytearray(CHUNK + _TAG)
        self._chunks = 0
        self._head = access.header  # goes out with the first chunk, in one write
        self.plain_bytes = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Take all of ``data``."""
        view = memoryview(data).cast("B")
        self.plain_bytes += len(view)
        taken = 0
        # A full chunk waits for one more byte: only then is it known not to be the last.
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
        """Seal the last chunk and put the blob in its place."""
        if self.closed:
            return
        try:
            self._emit(self._pending, last=True)
            if self._flushed is not None:
                self._flushed.settle()
                os.fsync(self._file.fileno())
            self._file.close()
            self._draft.rename(self._path)
            if self._flushed is not None:
                _flush_folder(self._path.parent)
        except BaseException:
            self.discard()
            raise
        super().close()

    def discard(self) -> None:
        """Give up: no blob comes into being."""
        if not self.closed:
            if self._flushed is not None:
                self._flushed.give_up()
            self._file.close()
            self._draft.unlink(missing_ok=True)
            super().close()

    def __del__(self) -> None:
        """A writer that was neither closed nor left in order leaves no blob."""
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
        size = len(plain) + _TAG
        sealed = memoryview(self._sealed)[:size]
        self._cipher.encrypt_into(_nonce(self._chunks, last), plain, None, sealed)
        self._chunks += 1
        if self._head:
            os.writev(self._file.fileno(), [self._head, sealed])
            self._head = b""
        else:
            self._file.write(sealed)
        if self._flushed is not None:
            self._flushed.written(size)


class _Flushed:
    """Brings a file to the disk while it is still being written, so that its end waits for little.

    The system by itself would begin half a minute later, or at the last flush.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._waiting = 0
        self._last: Future[None] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def written(self, size: int) -> None:
        """So many bytes more were written. Raises OSError: an earlier flush failed."""
        self._waiting += size
        if self._waiting < _FLUSHED_AT_ONCE or not (self._last is None or self._last.done()):
            return
        if self._last is not None:
            self._last.result()  # the system tells an error once
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "flush")
        self._waiting = 0
        self._last = self._thread.submit(os.fdatasync, self._file)

    def settle(self) -> None:
        """Return when nothing is being flushed. Raises OSError: a flush failed."""
        self.give_up()
        if self._last is not None:
            self._last.result()

    def give_up(self) -> None:
        """Return when nothing is being flushed, however that went."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)


class SealedReader(io.RawIOBase):
    """Reads a blob as a stream of plain bytes, from any place, holding one chunk at a time."""

    def __init__(self, access: BlobAccess) -> None:
        super().__init__()
        try:
            self._file = io.FileIO(access.path, "rb")
        except FileNotFoundError as error:
            raise BlobMissing(f"blob {access.id} is not in the store") from error
        self._id = access.id
        self._start = len(access.header)
        self._cipher = AESGCM(access.data_key)
        body = os.fstat(self._file.fileno()).st_size - self._start
        self._chunks = max(1, -(-body // (CHUNK + _TAG)))
        self.size = body - self._chunks * _TAG
        """Plain bytes in all."""
        if self.size < 0:
            raise SealBroken(f"blob {access.id} is cut short")
        self._at = 0
        self._plain = bytearray(min(CHUNK, self.size))
        self._sealed = bytearray(len(self._plain) + _TAG)
        self._held = -1

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always: a chunk opens without those before it."""
        return True

    def tell(self) -> int:
        """The place in the plain bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place in the plain bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        """Up to one chunk's rest into ``buffer``. Raises SealBroken."""
        target = memoryview(buffer).cast("B")
        chunk, offset = divmod(self._at, CHUNK)
        if self._at >= self.size:
            if self.size == 0:  # an empty blob has a last chunk as well, and it must hold
                self._open_chunk(0, memoryview(self._plain))
            return 0
        held = min(CHUNK, self.size - chunk * CHUNK)
        if not offset and len(target) >= held and chunk != self._held:  # opened in place
            self._open_chunk(chunk, target[:held])
            self._at += held
            return held
        if chunk != self._held:
            self._held = -1
            self._open_chunk(chunk, memoryview(self._plain)[:held])
            self._held = chunk
        count = min(len(target), held - offset)
        target[:count] = memoryview(self._plain)[offset : offset + count]
        self._at += count
        return count

    def read_whole(self) -> pa.Buffer:
        """All plain bytes in one aligned buffer, opened in place. Raises SealBroken."""
        whole: pa.Buffer = pa.allocate_buffer(self.size)
        view = memoryview(whole).cast("B")
        for chunk in range(self._chunks):
            self._open_chunk(chunk, view[chunk * CHUNK : (chunk + 1) * CHUNK])
        return whole

    def close(self) -> None:
        """Let go of the file."""
        if hasattr(self, "_file"):
            self._file.close()
        super().close()

    def _open_chunk(self, chunk: int, plain: memoryview) -> None:
        sealed = memoryview(self._sealed)[: len(plain) + _TAG]
        got = os.preadv(self._file.fileno(), [sealed], self._start + chunk * (CHUNK + _TAG))
        nonce = _nonce(chunk, last=chunk == self._chunks - 1)
        try:
            if got != len(sealed):
                raise InvalidTag
            self._cipher.decrypt_into(nonce, sealed, None, plain)
        except InvalidTag as error:
            raise SealBroken(f"blob {self._id} was changed, or cut short, at chunk {chunk}") from error


def _context(blob_id: str) -> str:
    return f"blob/{blob_id}/data key"


def _nonce(chunk: int, last: bool) -> bytes:
    return chunk.to_bytes(11, "big") + bytes([last])  # 2**32 chunks are 4 PiB


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
