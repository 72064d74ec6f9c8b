"""One field of both tables in the forms that measures take: numbers, and codes of equal values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.encodings import plain
from providers.equality import equality_codes
from providers.measures.kinds import Kind, kind_of
from providers.numeric import is_numeric
from providers.table import combined, null_mask, words_of

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Side = Literal["source", "destination"]


@dataclass(slots=True)
class Column:
    """A field that both tables have."""

    name: str
    kind: Kind
    tables: dict[Side, pa.ChunkedArray]
    """Plain: without encodings, dates as days."""
    offset: int = 0
    """What is taken off every number, so that large integers and nanoseconds stay apart in float64."""
    _codes: dict[Side, Int32Array] = field(default_factory=dict)

    def numbers(self, side: Side, start: int = 0, stop: int | None = None) -> Float64Array:
        """The numbers of some rows, less the offset; NaN for null, NaN and infinite; shape (rows,).

        Times are in the units in which they are stored, dates in days.
        """
        column = self.tables[side]
        piece = column.slice(start, None if stop is None else stop - start)
        values = _numbers(piece, self.offset)
        values[~np.isfinite(values)] = np.nan
        return values

    def codes(self, side: Side) -> Int32Array:
        """A code for each value, the same in both tables exactly for equal values; null is one of them."""
        if not self._codes:
            self._make_codes()
        return self._codes[side]

    @property
    def levels(self) -> int:
        """Codes are below this number."""
        return int(max((self.codes(side).max(initial=-1) for side in self.tables), default=-1)) + 1

    @property
    def is_whole(self) -> bool:
        """Whether the numbers are whole, in both tables."""
        return all(_is_whole(table.type) for table in self.tables.values())

    def missing(self, side: Side) -> npt.NDArray[np.int64]:
        """The rows that are null."""
        return np.flatnonzero(null_mask(self.tables[side]))

    def labels(self, codes: Sequence[int]) -> list[str]:
        """The values of these codes, each of which the source has, as text."""
        if not codes:
            return []
        first = np.zeros(self.levels, np.int64)
        own = self.codes("source")
        first[own[::-1]] = np.arange(len(own) - 1, -1, -1)
        values = self.tables["source"].take(pa.array(first[list(codes)]))
        return [value.hex() if isinstance(value, bytes) else str(value) for value in values.to_pylist()]

    def as_text(self, numbers: Sequence[float]) -> list[str] | None:
        """Dates and timestamps of these numbers as text; None where the field has no such."""
        kind = self.tables["source"].type
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        unit = "D" if pa.types.is_date(kind) else kind.unit
        bound = 2.0**62
        whole = [int(min(bound, max(-bound, number))) for number in numbers]
        text: list[str] = np.array(whole, np.int64).astype(f"datetime64[{unit}]").astype(str).tolist()
        return text

    def _make_codes(self) -> None:
        source, destination = self.tables["source"], self.tables["destination"]
        if source.type != destination.type:
            common = pa.float64() if self.kind == "number" else _widest(source.type)
            source, destination = source.cast(common), destination.cast(common)
        together = combined(pa.chunked_array([*source.chunks, *destination.chunks], source.type))
        codes = equality_codes(together)
        codes = codes - codes.min(initial=0)  # null is -1
        self._codes["source"] = codes[: len(source)].astype(np.int32)
        self._codes["destination"] = codes[len(source) :].astype(np.int32)


def column_of(name: str, source: pa.ChunkedArray, destination: pa.ChunkedArray, categorical: bool) -> Column:
    """The field, of types that compare."""
    one, two = _plain_column(source), _plain_column(destination)
    kind = kind_of(source.type)
    assert kind is not None  # noqa: S101 - by `why_not`
    if kind == "time" and is_numeric(two.type):
        one, kind = one.cast(pa.int32()), "number"  # dates, and days
    column = Column(name, "category" if categorical else kind, {"source": one, "destination": two})
    if column.kind != "category" and one.type == two.type and _is_whole(one.type):
        column.offset = min(
            (_smallest(side) for side in (one, two) if side.null_count < len(side)), default=0
        )
    return column


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    array = plain(combined(column))
    mask = null_mask(column)
    if pa.types.is_dictionary(column.type) and int(mask.sum()) > array.null_count:
        array = pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    return pa.chunked_array([array])


def _widest(kind: pa.DataType) -> pa.DataType:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.large_string() if text else pa.large_binary()


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)))


def _integers(array: pa.Array) -> npt.NDArray[Any]:
    words = words_of(array)
    sign = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    return words.view(f"{sign}{words.dtype.itemsize}")


def _smallest(column: pa.ChunkedArray) -> int:
    integers = _integers(combined(column))
    if column.null_count:
        integers = integers[~null_mask(column)]
    return int(integers.min())


def _numbers(column: pa.ChunkedArray, offset: int) -> Float64Array:
    """The numbers less the offset, NaN for null; a copy."""
    array = combined(column)
    if _is_whole(array.type):
        integers = _integers(array)
        if offset:  # the least of all: what is left fits the unsigned words, in which it may wrap
            unsigned = integers.astype(np.int64 if integers.dtype.kind == "i" else np.uint64).view(np.uint64)
            values = (unsigned - np.uint64(offset % 2**64)).astype(np.float64)
        else:
            values = integers.astype(np.float64)
    elif pa.types.is_floating(array.type):
        words = words_of(array)
        values = words.view(f"f{words.dtype.itemsize}").astype(np.float64)
    else:
        values = np.array(pc.cast(array, pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    if array.null_count:
        values[null_mask(column)] = np.nan
    return np.asarray(values, np.float64)
