"""Limits on the memory of a table, relative to its encoded size.

In Arrow a null takes as much memory as a value, and an object has all members of its type. Without limits, a
few bytes of JSON could request any amount of memory.
"""

from __future__ import annotations

import pyarrow as pa

from app.formats.errors import FormatError

MOST_CELLS = 1 << 25
"""Maximum cells of rows or objects that lack fields, whose memory may be quadratic in the text's length."""

MOST_BYTES = 1 << 29
"""Maximum bytes of columns with nulls that take far more memory than their text."""

_LITTLE = 64  # bytes: no more than a parsed null value takes


def check_cells(names: int, objects: int, field: str) -> None:
    """Raise FormatError if the objects of a field have too many different members for their number."""
    if names * objects > MOST_CELLS:
        raise FormatError(
            f"field '{field}' has {names} different members in {objects} objects, most of them missing in "
            "most objects; write it as a list of names and values, or upload the table in POST "
            "/v1/buffers"
        )


def check_size(data_type: pa.DataType, count: int, what: str) -> None:
    """Raise FormatError if `count` nulls of the type would take too much memory; `what` names the field."""
    width = _width(data_type)
    if width > _LITTLE and width * count > MOST_BYTES:
        raise FormatError(
            f"{what} would take {width * count >> 20} MiB, at {width} bytes for each value, null or not; "
            "state narrower types, such as binary for fixed_binary"
        )


def _width(data_type: pa.DataType) -> int:
    """Return the approximate number of bytes of a null."""
    if pa.types.is_fixed_size_binary(data_type):
        return int(data_type.byte_width)
    if pa.types.is_struct(data_type):
        return sum(_width(member.type) for member in data_type)
    return 8
