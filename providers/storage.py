"""Interfaces for out-of-core runs: source table, spool, scratch space, resources.

The cuts of a table depend on the memory budget; the bytes of the result do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


class Source(Protocol):
    """Table that can be read batch by batch, any number of times."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of all fields."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def nbytes(self) -> int:
        """Approximate bytes of all fields."""

    def batches(self, fields: Sequence[str], start: int = 0) -> Iterator[pa.RecordBatch]:
        """Read one or more fields: record batches in row order, with the fields in the schema's order.

        ``start``: first row; the rows before it are not read, if that is possible.
        """


class Spool(Protocol):
    """Partitioned table in scratch space."""

    @property
    def parts(self) -> int:
        """Number of partitions."""

    def add(self, part: int, table: pa.Table) -> None:
        """Append rows to a partition."""

    def rows(self, part: int) -> int:
        """Return the number of rows that the partition holds so far."""

    def read(self, part: int) -> Iterator[pa.Table]:
        """Read the partition's rows, in the order in which they were added."""

    def clear(self, part: int) -> None:
        """Delete the partition's rows."""


class Scratch(Protocol):
    """Scratch space of a running job."""

    def spool(self, parts: int, memory: int) -> Spool:
        """Create a spool of ``parts`` partitions that buffers about ``memory`` bytes before writing."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Memory budget and scratch space of an out-of-core run."""

    scratch: Scratch
    memory_bytes: int
    """Memory budget in bytes, in addition to that of the idle process."""


def bytes_read(source: Source, fields: Sequence[str]) -> int:
    """Estimate the bytes of these fields, never much too low.

    If a field has no fixed width, the bytes of all such fields of the source count.
    """
    fixed = {field.name: _width(field.type) for field in source.schema}
    known = sum(-(-width * source.rows // 8) for width in fixed.values() if width is not None)
    found = sum(-(-(fixed[name] or 0) * source.rows // 8) for name in fields)
    if any(fixed[name] is None for name in fields):
        found += max(0, source.nbytes - known)
    return found


def _width(kind: pa.DataType) -> int | None:
    """Return the bits of a value; None where the width varies."""
    if pa.types.is_dictionary(kind):
        return None
    try:
        return int(kind.bit_width)
    except ValueError:
        return None
