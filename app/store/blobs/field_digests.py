"""Digests of a stored table's fields, kept in its blob behind the Arrow stream.

A run that leaves a field unchanged takes its digest from there. The digests are sealed with the table: the
values of a single short field could be found by its digest, so no response and no manifest contains them.

The end of the plain bytes is: the digests of 32 bytes each, in the order of the fields; u64 number of rows;
u64 number of fields, both little-endian; 16 bytes of tag. A reader of the stream stops before it, and blobs
of older versions do not have it.
"""

import io
import struct
from dataclasses import dataclass, field

_TAG = b"rowveil.digests\n"

_END = struct.Struct("<QQ16s")

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class FieldDigests:
    """Digests of all fields of a table, of the form by parts."""

    rows: int
    digests: tuple[bytes, ...] = field(repr=False)
    """Digest of each field in the order of the table, 32 bytes each."""

    def to_bytes(self) -> bytes:
        """Return the end of the blob."""
        return b"".join(self.digests) + _END.pack(self.rows, len(self.digests), _TAG)


def digests_bytes(fields: int) -> int:
    """Return the bytes that the digests of a number of fields take."""
    return fields * _DIGEST_BYTES + _END.size


def read_at(reader: io.RawIOBase | io.BytesIO, position: int, size: int) -> bytes:
    """Read ``size`` plain bytes from a position, fewer at the end. Raises SealBroken."""
    reader.seek(position)
    content = b""
    while len(content) < size and (piece := reader.read(size - len(content))):
        content += piece
    return content


def read_field_digests(reader: io.RawIOBase | io.BytesIO, size: int, fields: int) -> FieldDigests | None:
    """Read the digests from the end of a blob of ``size`` plain bytes; None if it has none of as many fields.

    Raises SealBroken.
    """
    length = digests_bytes(fields)
    if size < length:
        return None
    content = read_at(reader, size - length, length)
    rows, count, tag = _END.unpack(content[-_END.size :])
    if tag != _TAG or count != fields:
        return None
    starts = range(0, fields * _DIGEST_BYTES, _DIGEST_BYTES)
    digests = (content[start : start + _DIGEST_BYTES] for start in starts)
    return FieldDigests(rows, tuple(digests))
