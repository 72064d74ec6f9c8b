"""Rows as points out of core: the same numbers and codes as `providers.space` makes of the whole table.

Ranges, medians and the places of categories are found in all rows before the first becomes a point. A
median is found by its bits, sixteen at a time; the categories of a field are put in order on the disk,
however many they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.external.exchanging import Ranges
from providers.external.parts import Reader, Rows, unused
from providers.external.sorting import label_keys, sorted_parts
from providers.external.swaps import Sizes
from providers.numeric import counted, smallest_whole
from providers.provider import Progress, part_of
from providers.radix import radix_order
from providers.space import (
    UNKNOWN,
    Float64Array,
    Points,
    kind_of,
    median_of,
    places,
    refuse_infinite,
    refuse_unknown,
    scaled,
)
from providers.storage import Room, Source

_DIGIT = 16
"""Bits of a number that are counted at a time."""


@dataclass(frozen=True)
class Layout:
    """How points lie in a table: row numbers, numbers, codes, and a mark where one is wanted."""

    numbers: int
    codes: int
    flags: int
    """The first code that is a missing flag."""
    weight: float

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The columns of the numbers, and then those of the codes."""
        return (*(f"n{at}" for at in range(self.numbers)), *(f"c{at}" for at in range(self.codes)))

    @property
    def row_bytes(self) -> int:
        """Bytes of a point."""
        return 8 * self.numbers + 4 * self.codes + 5

    def points(self, table: pa.Table) -> Points:
        """The points of a table's rows."""
        numbers = np.empty((table.num_rows, self.numbers))
        codes = np.empty((table.num_rows, self.codes), np.int32)
        for at, name in enumerate(self.dimensions):
            values = table.column(name).to_numpy()
            if at < self.numbers:
                numbers[:, at] = values
            else:
                codes[:, at - self.numbers] = values
        return Points(numbers, codes, self.flags, self.weight)


ROW, MARK = "row", "mark"
"""The columns of the row number (int32), and of the mark (bool)."""


@dataclass(slots=True)
class _Number:
    """What all rows say of a field that counts as a number."""

    levels: Sequence[Any] | None
    """Of an ordinal field."""
    smallest: int | None = None
    low: float = np.inf
    high: float = -np.inf
    missing: int = 0
    faults: int = 0
    """Values that are infinite, or no level."""
    middle: float = 0.0
    """The scaled number that stands for what is missing."""

    def values(self, column: pa.ChunkedArray, of: pa.Field) -> Float64Array:
        """The field's numbers in a piece of the table; NaN for null."""
        if self.levels is not None:
            return places(column, of, self.levels)
        values = counted(column, self.smallest)
        assert values is not None  # noqa: S101 - by its kind
        return values

    @property
    def varies(self) -> bool:
        return self.high > self.low


@dataclass
class Encoding:
    """The fields by which rows are near each other, and what all rows say of them."""

    source: Source
    fields: Sequence[str]
    categorical: Sequence[str]
    ordinal: Mapping[str, Sequence[Any]]
    weight: float
    """Of the categories."""
    room: Room
    _numbers: dict[str, _Number] = field(default_factory=dict)
    _varying: dict[str, int] = field(default_factory=dict)
    """Fields of two categories or more, and which of the ranges' columns has their places."""
    _codes: Ranges | None = None

    def look(self, progress: Progress) -> Layout:
        """Read all rows. Raises SourceError as `space.encode` does, of the first field that is at fault."""
        nominals = []
        for name in self.fields:
            if name in self.ordinal:
                self._numbers[name] = _Number(self.ordinal[name])
            elif name in self.categorical or kind_of(self.source.schema.field(name).type) == "nominal":
                nominals.append(name)
            else:
                self._numbers[name] = _Number(None)
        self._find_ranges(part_of(progress, 0.0, 0.4))
        self._find_medians(part_of(progress, 0.4, 0.6))
        if self.weight > 0 and self.source.rows:
            self._find_codes(nominals, part_of(progress, 0.6, 1.0))
        flags = [name for name, of in self._numbers.items() if self._is_flagged(of)]
        varying = [name for name, of in self._numbers.items() if of.varies]
        codes = len(self._varying)
        return Layout(len(varying), codes + len(flags), codes, 2.0 * self.weight * self.weight)

    def varies(self, name: str) -> bool:
        """Whether a category field that counts holds two values that differ, null being one."""
        return name in self._varying

    def pieces(self, layout: Layout) -> Iterator[pa.Table]:
        """All rows as points, in their order; once."""
        range_rows = self.sizes().range_rows
        read = Reader(self.source, list(self._numbers)) if self._numbers else None
        for number, first in enumerate(range(0, self.source.rows, range_rows)):
            rows = min(range_rows, self.source.rows - first)
            columns: list[npt.NDArray[Any]] = [np.arange(first, first + rows, dtype=np.int32)]
            flags = []
            table = None if read is None else read.take(rows)
            for name, of in self._numbers.items():
                assert table is not None  # noqa: S101 - there are numbers
                values = of.values(table.column(name), table.schema.field(name))
                missing = np.isnan(values)
                if of.varies:
                    values = scaled(values, of.low, of.high)
                    values[missing] = of.middle
                    columns.append(values)
                if self._is_flagged(of):
                    flags.append(missing.astype(np.int32))
            for which in self._varying.values():
                assert self._codes is not None  # noqa: S101 - where there are categories
                (codes,), _ = self._codes.get(which, number)
                columns.append(codes.to_numpy())
            yield pa.table([pa.array(each) for each in (*columns, *flags)], names=[ROW, *layout.dimensions])

    def _is_flagged(self, of: _Number) -> bool:
        return 0 < of.missing < self.source.rows

    def sizes(self) -> Sizes:
        """How large the pieces are."""
        return Sizes.of(self.source, tuple(self.fields), self.room.memory_bytes // 2)

    # ------------------------------------------------------------------------------------ numbers

    def _pieces_of(self, names: Sequence[str], progress: Progress, stage: str) -> Iterator[pa.Table]:
        done = 0
        for batch in self.source.batches(names) if names else ():
            yield pa.Table.from_batches([batch])
            done += batch.num_rows
            progress(done / self.source.rows, stage)

    def _find_ranges(self, progress: Progress) -> None:
        plain = [name for name, of in self._numbers.items() if of.levels is None]
        for table in self._pieces_of(plain, part_of(progress, 0.0, 0.4), "scaling"):
            for name in plain:
                of, found = self._numbers[name], smallest_whole(table.column(name))
                if found is not None:
                    of.smallest = found if of.smallest is None else min(of.smallest, found)
        for table in self._pieces_of(list(self._numbers), part_of(progress, 0.4, 1.0), "scaling"):
            for name, of in self._numbers.items():
                values = of.values(table.column(name), table.schema.field(name))
                present = values[~np.isnan(values)]
                of.missing += len(values) - len(present)
                wrong = np.isinf(present) if of.levels is None else present == UNKNOWN
                of.faults += int(np.count_nonzero(wrong))
                of.low = min(of.low, float(present.min(initial=np.inf)))
                of.high = max(of.high, float(present.max(initial=-np.inf)))
        for name, of in self._numbers.items():
            (refuse_infinite if of.levels is None else refuse_unknown)(name, of.faults)

    def _find_medians(self, progress: Progress) -> None:
        """Of the fields where it stands for something; scaling keeps the order."""
        searched: dict[str, list[_Place]] = {}
        for name, of in self._numbers.items():
            if self._is_flagged(of) and of.varies:
                present = self.source.rows - of.missing
                half = present // 2
                searched[name] = [_Place(rank) for rank in range(half - 1 + present % 2, half + 1)]
        for shift in range(64 - _DIGIT, -1, -_DIGIT):
            told = part_of(progress, 0.75 - shift / 64, 1.0 - shift / 64)
            for table in self._pieces_of(list(searched), told, "scaling"):
                for name, found in searched.items():
                    values = self._numbers[name].values(table.column(name), table.schema.field(name))
                    keys = _ascending(values[~np.isnan(values)])
                    for place in found:
                        place.count(keys, shift)
            for found in searched.values():
                for place in found:
                    place.choose()
        for name, found in searched.items():
            of = self._numbers[name]
            numbers = np.array([place.number for place in found])
            of.middle = median_of(scaled(numbers, of.low, of.high).tolist())

    # ------------------------------------------------------------------------------------ categories

    def _find_codes(self, names: Sequence[str], progress: Progress) -> None:
        """The place of each row's category among those of its field, field by field."""
        sizes = self.sizes()
        parts = Ranges.parts(self.source.rows, sizes.range_rows, max(1, len(names)))
        spool = self.room.scratch.spool(parts, sizes.waiting)
        self._codes = Ranges([spool], self.source.rows, sizes.range_rows, len(names))
        row = unused("row", names)
        for which, name in enumerate(names):
            told = part_of(progress, which / len(names), (which + 1) / len(names))
            if self._put_codes(which, name, row, told):
                self._varying[name] = which

    def _put_codes(self, which: int, name: str, row: str, progress: Progress) -> bool:
        """Put one field's places aside; whether there are two."""
        assert self._codes is not None  # noqa: S101 - the caller has made it
        unit = Sizes.of(self.source, (name,), self.room.memory_bytes)
        rows = Rows.of_source(self.source, row)
        last: pa.Table | None = None
        code = done = 0
        parts = sorted_parts(
            rows, (name,), (name,), lambda table: [table.column(name)], row,
            unit.unit_rows, self.room.scratch, unit.waiting,
        )  # fmt: skip
        for part in parts:
            before = 0 if last is None else 1
            table = part if last is None else pa.concat_tables([last, part])
            keys = label_keys([table.column(name)])
            order = radix_order(keys)
            new = np.zeros(len(order), np.int64)
            for key in keys:
                new[1:] |= key[order[1:]] != key[order[:-1]]
            codes = np.empty(len(order), np.int32)
            codes[order] = code + np.cumsum(new)
            code += int(new.sum())
            last = table.slice(int(order[-1]), 1)
            numbers = np.asarray(part.column(row).to_numpy())
            marks = np.zeros(len(numbers), np.uint8)
            self._codes.put(which, numbers, [pa.chunked_array([pa.array(codes[before:])])], marks)
            done += part.num_rows
            progress(done / self.source.rows, "sorting categories")
        return code > 0


class _Place:
    """The number at one place in the order of a field's numbers, found from its upper bits down."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._upper = np.uint64(0)
        self._counts = np.zeros(1 << _DIGIT, np.int64)

    def count(self, keys: npt.NDArray[np.uint64], shift: int) -> None:
        """Count the next digits of some keys that have the upper bits."""
        digits = keys >> np.uint64(shift)
        if shift < 64 - _DIGIT:
            digits = digits[digits >> np.uint64(_DIGIT) == self._upper]
        digits &= np.uint64((1 << _DIGIT) - 1)
        self._counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)

    def choose(self) -> None:
        """Take the digit under which the place falls; all have been counted."""
        ends = np.cumsum(self._counts)
        digit = int(np.searchsorted(ends, self._rank, side="right"))
        self._rank -= int(ends[digit - 1]) if digit else 0
        self._upper = (self._upper << np.uint64(_DIGIT)) | np.uint64(digit)
        self._counts[:] = 0

    @property
    def number(self) -> float:
        """The number, once all digits are chosen."""
        sign = np.uint64(1 << 63)
        bits = self._upper ^ sign if self._upper & sign else ~self._upper
        return float(np.array(bits, np.uint64).view(np.float64))


def _ascending(values: Float64Array) -> npt.NDArray[np.uint64]:
    """Words in the order of the numbers."""
    bits = (values + 0.0).view(np.uint64)  # 0.0 for -0.0
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)
