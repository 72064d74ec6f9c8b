"""Encode rows as points out of core.

Ranges, medians and category codes are found in passes over all rows, before the first row is encoded. A
median is found digit by digit, sixteen bits at a time. The categories of a field are sorted on disk,
whatever their number. The points are equal to those of `providers.neighbours.points`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Float64Array
from providers.kernels.radix_sort import radix_order
from providers.neighbours.points import (
    UNKNOWN,
    Points,
    kind_of,
    level_positions,
    median_of,
    refuse_infinite,
    refuse_unknown,
    scale,
)
from providers.out_of_core.partitions import Reader, Rows, row_numbers
from providers.out_of_core.row_ranges import Ranges
from providers.out_of_core.samplesort import label_keys, sorted_parts
from providers.out_of_core.unit_sizes import Sizes
from providers.progress import Progress, sub_progress
from providers.storage import Resources, Source
from providers.tables.columns import unused
from providers.tables.numbers import counted, smallest_whole

_DIGIT = 16
"""Bits of a number that one pass counts."""


@dataclass(frozen=True)
class Layout:
    """Columns of points in a table: row number, numbers, codes, and optionally a mark."""

    numbers: int
    """Number of columns with scaled numbers."""
    codes: int
    """Number of columns with codes."""
    flags: int
    """Index of the first code that is a missing flag."""
    weight: float
    """Squared distance that a mismatch of a nominal field adds."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the columns with numbers, then of those with codes."""
        return (*(f"n{at}" for at in range(self.numbers)), *(f"c{at}" for at in range(self.codes)))

    @property
    def row_bytes(self) -> int:
        """Bytes of a point with its row number and mark."""
        return 8 * self.numbers + 4 * self.codes + 5

    def points(self, table: pa.Table) -> Points:
        """Return the points of a table's rows."""
        numbers = np.empty((table.num_rows, self.numbers))
        codes = np.empty((table.num_rows, self.codes), np.int32)
        for index, name in enumerate(self.dimensions):
            values = table.column(name).to_numpy()
            if index < self.numbers:
                numbers[:, index] = values
            else:
                codes[:, index - self.numbers] = values
        return Points(numbers, codes, self.flags, self.weight)


ROW, MARK = "row", "mark"
"""Columns of the row number (int32) and of the mark (bool)."""


@dataclass(slots=True)
class _NumberFit:
    """Range, median and faults of a field that counts as a number."""

    levels: Sequence[Any] | None
    """Levels of an ordinal field; None for other numbers."""
    smallest: int | None = None
    low: float = np.inf
    high: float = -np.inf
    missing: int = 0
    faults: int = 0
    """Number of values that are infinite, or none of the levels."""
    middle: float = 0.0
    """Scaled median, which replaces missing values."""

    def values(self, column: pa.ChunkedArray, field: pa.Field) -> Float64Array:
        """Return the field's numbers in a piece of the table; NaN for null."""
        if self.levels is not None:
            return level_positions(column, field, self.levels)
        values = counted(column, self.smallest)
        assert values is not None  # noqa: S101 - by its kind
        return values

    @property
    def varies(self) -> bool:
        """Whether two values differ."""
        return self.high > self.low


@dataclass
class Encoding:
    """Distance fields, with ranges, medians and category codes fitted on all rows."""

    source: Source
    fields: Sequence[str]
    categorical: Sequence[str]
    ordinal: Mapping[str, Sequence[Any]]
    weight: float
    """Weight of the categories in a distance."""
    resources: Resources
    _numbers: dict[str, _NumberFit] = field(default_factory=dict)
    _varying: dict[str, int] = field(default_factory=dict)
    """Nominal field with two categories or more -> index of its codes in `_codes`."""
    _codes: Ranges | None = None

    def fit(self, progress: Progress) -> Layout:
        """Read all rows, and return the layout of their points.

        Raises SourceError like `providers.neighbours.points.encode`, for the first faulty field.
        """
        nominals = []
        for name in self.fields:
            if name in self.ordinal:
                self._numbers[name] = _NumberFit(self.ordinal[name])
            elif name in self.categorical or kind_of(self.source.schema.field(name).type) == "nominal":
                nominals.append(name)
            else:
                self._numbers[name] = _NumberFit(None)
        self._find_ranges(sub_progress(progress, 0.0, 0.4))
        self._find_medians(sub_progress(progress, 0.4, 0.6))
        if self.weight > 0 and self.source.rows:
            self._find_codes(nominals, sub_progress(progress, 0.6, 1.0))
        flags = [name for name, fit in self._numbers.items() if self._is_flagged(fit)]
        varying = [name for name, fit in self._numbers.items() if fit.varies]
        codes = len(self._varying)
        return Layout(len(varying), codes + len(flags), codes, 2.0 * self.weight * self.weight)

    def varies(self, name: str) -> bool:
        """Whether a nominal distance field holds two different values, counting null as one."""
        return name in self._varying

    def pieces(self, layout: Layout) -> Iterator[pa.Table]:
        """Yield all rows as points, in row order; may be called once."""
        range_rows = self.sizes().range_rows
        read = Reader(self.source, list(self._numbers)) if self._numbers else None
        for number, first in enumerate(range(0, self.source.rows, range_rows)):
            rows = min(range_rows, self.source.rows - first)
            columns: list[npt.NDArray[Any]] = [np.arange(first, first + rows, dtype=np.int32)]
            flags = []
            table = None if read is None else read.take(rows)
            for name, fit in self._numbers.items():
                assert table is not None  # noqa: S101 - there are numbers
                values = fit.values(table.column(name), table.schema.field(name))
                missing = np.isnan(values)
                if fit.varies:
                    values = scale(values, fit.low, fit.high)
                    values[missing] = fit.middle
                    columns.append(values)
                if self._is_flagged(fit):
                    flags.append(missing.astype(np.int32))
            for which in self._varying.values():
                assert self._codes is not None  # noqa: S101 - where there are categories
                (codes,), _ = self._codes.get(which, number)
                columns.append(codes.to_numpy())
            yield pa.table([pa.array(each) for each in (*columns, *flags)], names=[ROW, *layout.dimensions])

    def _is_flagged(self, fit: _NumberFit) -> bool:
        """Whether the field has missing and present values, and therefore a missing flag."""
        return 0 < fit.missing < self.source.rows

    def sizes(self) -> Sizes:
        """Sizes of the pieces in which rows are read."""
        return Sizes.of(self.source, tuple(self.fields), self.resources.memory_bytes // 2)

    # ------------------------------------------------------------------------------------ numbers

    def _read(self, names: Sequence[str], progress: Progress, stage: str) -> Iterator[pa.Table]:
        """Yield the named fields batch by batch, and report progress."""
        done = 0
        for batch in self.source.batches(names) if names else ():
            yield pa.Table.from_batches([batch])
            done += batch.num_rows
            progress(done / self.source.rows, stage)

    def _find_ranges(self, progress: Progress) -> None:
        """Find the range of each number, and count missing values and faults."""
        plain = [name for name, fit in self._numbers.items() if fit.levels is None]
        for table in self._read(plain, sub_progress(progress, 0.0, 0.4), "scaling"):
            for name in plain:
                fit, smallest = self._numbers[name], smallest_whole(table.column(name))
                if smallest is not None:
                    fit.smallest = smallest if fit.smallest is None else min(fit.smallest, smallest)
        for table in self._read(list(self._numbers), sub_progress(progress, 0.4, 1.0), "scaling"):
            for name, fit in self._numbers.items():
                values = fit.values(table.column(name), table.schema.field(name))
                present = values[~np.isnan(values)]
                fit.missing += len(values) - len(present)
                wrong = np.isinf(present) if fit.levels is None else present == UNKNOWN
                fit.faults += int(np.count_nonzero(wrong))
                fit.low = min(fit.low, float(present.min(initial=np.inf)))
                fit.high = max(fit.high, float(present.max(initial=-np.inf)))
        for name, fit in self._numbers.items():
            (refuse_infinite if fit.levels is None else refuse_unknown)(name, fit.faults)

    def _find_medians(self, progress: Progress) -> None:
        """Find the median of each field in which it replaces missing values.

        Scaling keeps the order, so that the median of unscaled numbers is scaled at the end.
        """
        statistics: dict[str, list[_OrderStatistic]] = {}
        for name, fit in self._numbers.items():
            if self._is_flagged(fit) and fit.varies:
                present = self.source.rows - fit.missing
                half = present // 2
                statistics[name] = [_OrderStatistic(rank) for rank in range(half - 1 + present % 2, half + 1)]
        for shift in range(64 - _DIGIT, -1, -_DIGIT):
            pass_progress = sub_progress(progress, 0.75 - shift / 64, 1.0 - shift / 64)
            for table in self._read(list(statistics), pass_progress, "scaling"):
                for name, middle in statistics.items():
                    values = self._numbers[name].values(table.column(name), table.schema.field(name))
                    keys = _sort_keys(values[~np.isnan(values)])
                    for statistic in middle:
                        statistic.count(keys, shift)
            for middle in statistics.values():
                for statistic in middle:
                    statistic.choose()
        for name, middle in statistics.items():
            fit = self._numbers[name]
            numbers = np.array([statistic.number for statistic in middle])
            fit.middle = median_of(scale(numbers, fit.low, fit.high).tolist())

    # ------------------------------------------------------------------------------------ categories

    def _find_codes(self, names: Sequence[str], progress: Progress) -> None:
        """Find the code of each row's category: its rank among the categories of the field."""
        sizes = self.sizes()
        parts = Ranges.parts(self.source.rows, sizes.range_rows, max(1, len(names)))
        spool = self.resources.scratch.spool(parts, sizes.waiting)
        self._codes = Ranges([spool], self.source.rows, sizes.range_rows, len(names))
        row = unused("row", names)
        for which, name in enumerate(names):
            field_progress = sub_progress(progress, which / len(names), (which + 1) / len(names))
            if self._store_codes(which, name, row, field_progress):
                self._varying[name] = which

    def _store_codes(self, which: int, name: str, row: str, progress: Progress) -> bool:
        """Store the codes of one field, and return whether it has two categories or more."""
        assert self._codes is not None  # noqa: S101 - the caller has made it
        unit = Sizes.of(self.source, (name,), self.resources.memory_bytes)
        rows = Rows.of_source(self.source, row)
        last: pa.Table | None = None
        code = done = 0
        parts = sorted_parts(
            rows, (name,), (name,), lambda table: [table.column(name)], row,
            unit.unit_rows, self.resources.scratch, unit.waiting,
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
            numbers = row_numbers(part, row)
            marks = np.zeros(len(numbers), np.uint8)
            self._codes.put(which, numbers, [pa.chunked_array([pa.array(codes[before:])])], marks)
            done += part.num_rows
            progress(done / self.source.rows, "sorting categories")
        return code > 0


class _OrderStatistic:
    """Number of a given rank among the numbers of a field, found from its upper bits down."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._upper = np.uint64(0)
        self._counts = np.zeros(1 << _DIGIT, np.int64)

    def count(self, keys: npt.NDArray[np.uint64], shift: int) -> None:
        """Count the next digit of the keys whose upper bits match those found so far."""
        digits = keys >> np.uint64(shift)
        if shift < 64 - _DIGIT:
            digits = digits[digits >> np.uint64(_DIGIT) == self._upper]
        digits &= np.uint64((1 << _DIGIT) - 1)
        self._counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)

    def choose(self) -> None:
        """Choose the digit that contains the rank, after all keys have been counted."""
        ends = np.cumsum(self._counts)
        digit = int(np.searchsorted(ends, self._rank, side="right"))
        self._rank -= int(ends[digit - 1]) if digit else 0
        self._upper = (self._upper << np.uint64(_DIGIT)) | np.uint64(digit)
        self._counts[:] = 0

    @property
    def number(self) -> float:
        """The number, after all digits have been chosen."""
        sign = np.uint64(1 << 63)
        bits = self._upper ^ sign if self._upper & sign else ~self._upper
        return float(np.array(bits, np.uint64).view(np.float64))


def _sort_keys(values: Float64Array) -> npt.NDArray[np.uint64]:
    """Return uint64 keys in the order of the numbers."""
    bits = (values + 0.0).view(np.uint64)  # turns -0.0 into 0.0
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)
