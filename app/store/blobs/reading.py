"""Plain bytes of a stored table, which is in a row, in one file, or in parts that several workers wrote.

A blob in parts is named, sealed and deleted like any other. Its plain bytes are: a tag of 16 bytes; u64
length of the list, little-endian; the list as JSON, with the lengths of ``head`` and ``tail`` and for each of
the ``parts`` its token and its length; the head; the tail. The table's plain bytes are the head, the parts in
order, and the tail. No Arrow stream begins with the tag.

A part is a file of its own next to the blob's, ``<blob id>.<token>.part``, without a header. Its data key is
derived from the blob's data key and the token, so that whatever gives access to the blob gives access to its
parts. Each run of a worker has a new token: two runs that write the same rows share no key.

References
----------
Krawczyk and Eronen 2010, RFC 5869 (HKDF, by which the keys of parts are derived).
"""

from __future__ import annotations

import bisect
import io
import itertools
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from typing_extensions import Buffer

from app.store.blobs.field_digests import read_at
from app.store.blobs.sealed_files import PART, BlobAccess, SealedWriter
from app.store.blobs.sealed_reader import PlainStream, SealedReader
from app.store.crypto.sealing import SealBroken

_TAG = b"rowveil.parts/1\n"

_LENGTH_BYTES = 8

_MOST_LIST = 1 << 20
"""Most bytes of a list of parts, some 50 for each. Worker processes write it, and the service reads it."""

_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a blob."""

    token: str
    """32 hex digits, random."""
    size: int
    """Plain bytes."""


def new_token() -> str:
    """Return the token of a new part."""
    return secrets.token_hex(16)


def part_access(access: BlobAccess, token: str) -> BlobAccess:
    """Return access to a part of a blob. Raises ValueError: the token is none."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("the token of a part has 32 hex digits")
    info = f"rowveil/part of a blob/{token}".encode()
    key = HKDF(SHA256(), 32, salt=None, info=info).derive(access.data_key)
    suffix = f".{token}{PART}"
    path = f"{access.path}{suffix}"
    return replace(access, id=f"{access.id}{suffix}", path=path, header=b"", data_key=key)


def write_parts(access: BlobAccess, head: bytes, parts: Sequence[Part], tail: bytes) -> None:
    """Write a blob whose parts have been written. Raises OSError."""
    described = {
        "head": len(head),
        "tail": len(tail),
        "parts": [[part.token, part.size] for part in parts],
    }
    listed = json.dumps(described).encode()
    with SealedWriter(access) as writer:
        for piece in (_TAG, len(listed).to_bytes(_LENGTH_BYTES, "little"), listed, head, tail):
            writer.write(piece)


def parts_of(access: BlobAccess) -> list[Part]:
    """Return the parts of a stored table; none if it is in one file or in a row.

    Raises BlobMissing, SealBroken.
    """
    with open_blob(access) as reader:
        return list(reader.parts) if isinstance(reader, PartsReader) else []


class MemoryReader(io.BytesIO):
    """Plain bytes of a small table, with the interface of `SealedReader`."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.size = len(content)
        self._content = content

    def read_whole(self) -> pa.Buffer:
        """Return all bytes."""
        return pa.py_buffer(self._content)


class PartsReader(PlainStream):
    """Seekable stream of the plain bytes of a blob in parts, which holds one chunk of one part at a time."""

    def __init__(self, access: BlobAccess, main: SealedReader) -> None:
        """``main``: the blob's own file, which this reader closes. Raises SealBroken."""
        listed = _read_list(access, main)
        sizes = [listed.head, *(part.size for part in listed.parts), listed.tail]
        super().__init__(sum(sizes))
        self.parts = listed.parts
        self._starts = [0, *itertools.accumulate(sizes)]
        """Position of the head, of each part, of the tail, and of the end."""
        self._access = access
        self._main = main
        self._head_start = listed.end
        self._tail_start = listed.end + listed.head
        self._open: tuple[int, SealedReader] | None = None
        """Number of the part that is open, and its reader."""

    def readinto(self, buffer: Buffer, /) -> int:
        """Read at most the rest of one chunk of one part into ``buffer``. Raises BlobMissing, SealBroken."""
        target = memoryview(buffer).cast("B")
        if self._position >= self.size or not len(target):
            return 0
        number = bisect.bisect_right(self._starts, self._position) - 1
        within = self._position - self._starts[number]
        reader, start = self._segment(number)
        reader.seek(start + within)
        left = self._starts[number + 1] - self._position
        count = reader.readinto(target[: min(len(target), left)])
        if not count:
            raise SealBroken(f"blob {self._access.id} ends early")
        self._position += count
        return count

    def read_whole(self) -> pa.Buffer:
        """Decrypt the whole table into one aligned buffer. Raises BlobMissing, SealBroken."""
        whole: pa.Buffer = pa.allocate_buffer(self.size)
        view = memoryview(whole).cast("B")
        self._position = filled = 0
        while filled < self.size:
            filled += self.readinto(view[filled:])
        return whole

    def close(self) -> None:
        """Close the files."""
        if hasattr(self, "_main"):  # not if the list of parts was refused
            if self._open is not None:
                self._open[1].close()
            self._main.close()
        super().close()

    def _segment(self, number: int) -> tuple[SealedReader, int]:
        """Return the reader of a segment, and its position there; the head is the first one."""
        if number == 0:
            return self._main, self._head_start
        if number == len(self.parts) + 1:
            return self._main, self._tail_start
        if self._open is None or self._open[0] != number:
            if self._open is not None:
                self._open[1].close()
                self._open = None
            part = self.parts[number - 1]
            reader = SealedReader(part_access(self._access, part.token))
            if reader.size != part.size:
                reader.close()
                raise SealBroken(f"a part of blob {self._access.id} has another size")
            self._open = number, reader
        return self._open[1], 0


PlainReader: TypeAlias = "SealedReader | PartsReader | MemoryReader"


def open_blob(access: BlobAccess) -> PlainReader:
    """Open the table for reading. Raises BlobMissing, SealBroken."""
    if access.content is not None:
        return MemoryReader(access.content)
    reader = SealedReader(access)
    try:
        return PartsReader(access, reader) if reader.begins_with(_TAG) else reader
    except BaseException:
        reader.close()
        raise


@dataclass(frozen=True, slots=True)
class _List:
    """List of a blob's parts."""

    end: int
    """Position after the list, in the plain bytes of the blob's own file."""
    head: int
    tail: int
    parts: tuple[Part, ...]


def _read_list(access: BlobAccess, main: SealedReader) -> _List:
    """Read the list of parts. Raises SealBroken: it does not fit the file."""
    start = len(_TAG) + _LENGTH_BYTES
    length = int.from_bytes(read_at(main, len(_TAG), _LENGTH_BYTES), "little")
    if length > _MOST_LIST:
        raise SealBroken(f"blob {access.id} has a list of its parts that is too long")
    try:
        listed = json.loads(read_at(main, start, length))
        parts = tuple(Part(_text(token), _size(size)) for token, size in listed["parts"])
        found = _List(start + length, _size(listed["head"]), _size(listed["tail"]), parts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SealBroken(f"blob {access.id} has no list of its parts") from error
    if found.end + found.head + found.tail != main.size:
        raise SealBroken(f"blob {access.id} has a list of parts that does not fit it")
    return found


def _text(token: object) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("a token is none")
    return token


def _size(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a length is no number of bytes")
    return value
