"""How much more a table may take than the text it came as.

In Arrow a null takes as much as a value, and an object all members of its type: a few bytes of JSON could
else ask for any amount of memory.
"""

import pyarrow as pa

from app.api.formats.errors import FormatError

MOST_CELLS = 1 << 25
"""Of rows or objects that lack fields: their text would else take memory as the square of its length."""
MOST_BYTES = 1 << 29
"""Of columns with such nulls as take far more than their text."""
_LITTLE = 64  # bytes: no more than the null of it takes as a parsed value


def check_cells(names: int, objects: int, field: str) -> None:
    """Raise FormatError if the objects of a field have too many different members for their number."""
    if names * objects > MOST_CELLS:
        raise FormatError(
            f"field '{field}' has {names} different members in {objects} objects, most of which most lack; "
            "write it as a list of names and values, or upload the table in POST /v1/buffers"
        )


def check_room(data_type: pa.DataType, count: int, what: str) -> None:
    """Raise FormatError if so many nulls of the type would take too much memory; `what` has the type."""
    width = _width(data_type)
    if width > _LITTLE and width * count > MOST_BYTES:
        raise FormatError(
            f"{what} would take {width * count >> 20} MiB, at {width} bytes for each value, null or not; "
            "state narrower types, such as binary for fixed_binary"
        )


def _width(data_type: pa.DataType) -> int:
    """Bytes that a null takes, or near it."""
    if pa.types.is_fixed_size_binary(data_type):
        return int(data_type.byte_width)
    if pa.types.is_struct(data_type):
        return sum(_width(member.type) for member in data_type)
    return 8
