"""Plain bytes of one sealed file or object, read at any position."""

from __future__ import annotations

import io
import os

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from typing_extensions import Buffer

from app.store.blobs.bucket_reader import ObjectReader
from app.store.blobs.sealed_files import CHUNK, TAG_BYTES, BlobAccess, BlobMissing, nonce_of
from app.store.crypto.sealing import SealBroken


class _FileBytes:
    """Positioned reads of a file."""

    def __init__(self, path: str) -> None:
        self._file = io.FileIO(path, "rb")
        self.size = os.fstat(self._file.fileno()).st_size

    def read_into(self, target: memoryview, position: int) -> int:
        """Read from a position; return the bytes read, fewer at the end of the file."""
        return os.preadv(self._file.fileno(), [target], position)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open_bytes(access: BlobAccess) -> _FileBytes | ObjectReader:
    """Open the sealed bytes of a blob. Raises FileNotFoundError, OSError."""
    return _FileBytes(access.path) if access.bucket is None else ObjectReader(access.bucket, access.key)


class PlainStream(io.RawIOBase):
    """Seekable stream of a number of plain bytes; a subclass reads them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        """Total plain bytes."""
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: each chunk can be opened separately."""
        return True

    def tell(self) -> int:
        """Return the position in the plain bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position in the plain bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position


class SealedReader(PlainStream):
    """Seekable stream of the plain bytes of a blob's file, which holds one chunk at a time."""

    def __init__(self, access: BlobAccess) -> None:
        try:
            self._file = _open_bytes(access)
        except FileNotFoundError as error:
            raise BlobMissing(f"blob {access.id} is not in the store") from error
        self._id = access.id
        self._start = len(access.header)
        self._cipher = AESGCM(access.data_key)
        body = self._file.size - self._start
        self._chunks = max(1, -(-body // (CHUNK + TAG_BYTES)))
        super().__init__(body - self._chunks * TAG_BYTES)
        if self.size < 0:
            raise SealBroken(f"blob {access.id} is truncated")
        self._plain = bytearray(min(CHUNK, self.size))
        self._sealed = bytearray(len(self._plain) + TAG_BYTES)
        self._held = -1

    def readinto(self, buffer: Buffer, /) -> int:
        """Read at most the rest of one chunk into ``buffer``. Raises SealBroken."""
        target = memoryview(buffer).cast("B")
        chunk, offset = divmod(self._position, CHUNK)
        if self._position >= self.size:
            if self.size == 0:  # an empty blob has one chunk too, which must open
                self._open_chunk(0, memoryview(self._plain))
            return 0
        held = min(CHUNK, self.size - chunk * CHUNK)
        if not offset and len(target) >= held and chunk != self._held:  # decrypted straight into the target
            self._open_chunk(chunk, target[:held])
            self._position += held
            return held
        if chunk != self._held:
            self._held = -1
            self._open_chunk(chunk, memoryview(self._plain)[:held])
            self._held = chunk
        count = min(len(target), held - offset)
        target[:count] = memoryview(self._plain)[offset : offset + count]
        self._position += count
        return count

    def begins_with(self, tag: bytes) -> bool:
        """Whether the plain bytes begin with a tag; the first chunk is held for the next read."""
        if self.size < len(tag):
            return False
        self._open_chunk(0, memoryview(self._plain))
        self._held = 0
        return self._plain.startswith(tag)

    def read_whole(self) -> pa.Buffer:
        """Decrypt the whole blob into one aligned buffer. Raises SealBroken."""
        whole: pa.Buffer = pa.allocate_buffer(self.size)
        view = memoryview(whole).cast("B")
        for chunk in range(self._chunks):
            plain = view[chunk * CHUNK : (chunk + 1) * CHUNK]
            if chunk == self._held:
                plain[:] = memoryview(self._plain)[: len(plain)]
            else:
                self._open_chunk(chunk, plain)
        return whole

    def close(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            self._file.close()
        super().close()

    def _open_chunk(self, chunk: int, plain: memoryview) -> None:
        sealed = memoryview(self._sealed)[: len(plain) + TAG_BYTES]
        try:
            got = self._file.read_into(sealed, self._start + chunk * (CHUNK + TAG_BYTES))
        except FileNotFoundError as error:  # of a bucket, which has no open files
            raise BlobMissing(f"blob {self._id} was deleted while it was read") from error
        nonce = nonce_of(chunk, last=chunk == self._chunks - 1)
        try:
            if got != len(sealed):
                raise InvalidTag
            self._cipher.decrypt_into(nonce, sealed, None, plain)
        except InvalidTag as error:
            raise SealBroken(f"blob {self._id} was changed or truncated at chunk {chunk}") from error
