"""Index of a stored table's batches, kept in its blob between the Arrow stream and the digests of its fields.

A reader that begins at a row finds there a batch to begin with, and opens no chunk of the rows before.

The bytes are: for each entry u64 number of the batch's first row and u64 position of its message in the plain
bytes; u64 number of entries; 16 bytes of tag; all integers little-endian. A reader of the stream stops before
them. Short tables, tables with dictionaries, and blobs of older versions have no index.
"""

import bisect
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from app.store.blobs.field_digests import digests_bytes, read_at, read_field_digests

_TAG = b"rowveil.batches\n"

_ENTRY = struct.Struct("<QQ")

_END = struct.Struct("<Q16s")

_INDEX_ROWS = 1 << 20
"""Least rows from one entry to the next."""

Entry = tuple[int, int]
"""Number of a batch's first row, and position of its message in the plain bytes."""


@dataclass(frozen=True, slots=True)
class BatchIndex:
    """Some batches of a table."""

    entries: tuple[Entry, ...] = ()
    """Batches in order."""

    def before(self, row: int) -> Entry | None:
        """Return the last of these batches that begins at a row or before it; None if there is none."""
        place = bisect.bisect_right(self.entries, row, key=lambda entry: entry[0])
        return self.entries[place - 1] if place else None


class IndexSoFar:
    """Index of a table that is being written."""

    def __init__(self) -> None:
        self._rows = 0
        self._entries: list[Entry] = []

    def add(self, rows: int, position: int) -> None:
        """Add the next batch with its number of rows and its position."""
        if not self._entries or self._rows - self._entries[-1][0] >= _INDEX_ROWS:
            self._entries.append((self._rows, position))
        self._rows += rows

    def finish(self) -> BatchIndex:
        """Return the index of all batches so far."""
        return BatchIndex(tuple(self._entries))


def index_bytes(entries: Sequence[Entry]) -> bytes:
    """Return the bytes of an index; none if it has one entry or none, which is where the table begins."""
    if len(entries) < 2:
        return b""
    return b"".join(_ENTRY.pack(*entry) for entry in entries) + _END.pack(len(entries), _TAG)


def read_batch_index(reader: io.RawIOBase | io.BytesIO, size: int, fields: int) -> BatchIndex:
    """Read the index of a blob of ``size`` plain bytes; empty if the blob has none. Raises SealBroken."""
    stop = size
    if read_field_digests(reader, size, fields) is not None:
        stop -= digests_bytes(fields)
    if stop < _END.size:
        return BatchIndex()
    count, tag = _END.unpack(read_at(reader, stop - _END.size, _END.size))
    start = stop - _END.size - count * _ENTRY.size
    if tag != _TAG or start < 0:
        return BatchIndex()
    return BatchIndex(tuple(_ENTRY.iter_unpack(read_at(reader, start, count * _ENTRY.size))))
