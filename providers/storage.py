"""What a provider reads from, and puts aside in, when a table is larger than memory.

How a table is cut depends on the memory; what comes out does not, to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


class Source(Protocol):
    """A table that is read batch by batch, as often as wanted."""

    @property
    def schema(self) -> pa.Schema:
        """All fields."""

    @property
    def rows(self) -> int:
        """Rows of the table."""

    @property
    def nbytes(self) -> int:
        """About the bytes of all fields."""

    def batches(self, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The named fields, one or more, in the schema's order; the rows in order, a few at a time."""


class Spool(Protocol):
    """Tables put aside in parts."""

    @property
    def parts(self) -> int:
        """How many there are."""

    def add(self, part: int, table: pa.Table) -> None:
        """Rows for the end of a part."""

    def rows(self, part: int) -> int:
        """Rows of the part so far."""

    def read(self, part: int) -> Iterator[pa.Table]:
        """The part's rows, in the order in which they were added."""

    def clear(self, part: int) -> None:
        """Forget the part."""


class Scratch(Protocol):
    """Where tables are put aside while a job runs."""

    def spool(self, parts: int, memory: int) -> Spool:
        """Room for so many parts, of which at most about ``memory`` bytes wait to be written."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a run out of core may use."""

    scratch: Scratch
    memory_bytes: int
    """Memory for the work beyond the idle process's own."""


def bytes_read(source: Source, fields: Sequence[str]) -> int:
    """About the bytes of these fields, and never much less: what has no fixed width counts in full."""
    fixed = {field.name: _width(field.type) for field in source.schema}
    known = sum(-(-width * source.rows // 8) for width in fixed.values() if width is not None)
    found = sum(-(-(fixed[name] or 0) * source.rows // 8) for name in fields)
    if any(fixed[name] is None for name in fields):
        found += max(0, source.nbytes - known)
    return found


def _width(kind: pa.DataType) -> int | None:
    """Bits of a value; None where they vary."""
    if pa.types.is_dictionary(kind):
        return None
    try:
        return int(kind.bit_width)
    except ValueError:
        return None
