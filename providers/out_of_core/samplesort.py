"""Sort rows by labels out of core (sample sort).

Splitters are sampled from the rows. The rows between two splitters form a part, which is spooled and later
sorted in memory. Ties are ordered by row number, so that no part is much larger than the others, whatever
the labels.

References
----------
Frazer and McKellar 1970, doi:10.1145/321592.321600: samplesort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array, UInt64Array
from providers.kernels.radix_sort import radix_order
from providers.out_of_core.partitions import Rows, Span, scatter
from providers.out_of_core.splitters import place_ties, places
from providers.storage import Scratch, Spool
from providers.tables.columns import take_rows
from providers.tables.sort_keys import packed, sort_keys

Labels: TypeAlias = "Callable[[pa.Table], list[pa.ChunkedArray]]"
"""Callback(table): columns by which rows are sorted; a row's values do not depend on the piece."""

_SAMPLED = 2**14
"""Approximate rows from which splitters are chosen."""


def label_keys(labels: Sequence[pa.ChunkedArray]) -> list[UInt64Array]:
    """Return keys that sort rows like their labels."""
    return packed([key for label in labels for key in sort_keys(label)])


@dataclass(frozen=True)
class SortedRows:
    """Rows in the order of their labels."""

    count: int
    parts: Iterator[pa.Table]
    """Parts that fit in memory. Rows within a part are in row order, and so are equal labels across parts."""


@dataclass(frozen=True)
class UnitCuts:
    """Rows that cut a job into units, and rows that cut a unit into the parts in which it is sorted."""

    first_rows: pa.Table
    """First row of each unit but the first, in order."""
    splitters: pa.Table
    """First row of each part of all units but the first, in order; see `sorted_parts`."""
    whole_labels: bool
    """Whether equal labels stay in one unit; else ties are cut by row number."""

    @classmethod
    def of_rows(
        cls, rows: Rows, controls: Sequence[str], labels: Labels, units: int, part_rows: int,
        whole_labels: bool,
    ) -> UnitCuts:  # fmt: skip
        """Cut rows into units of about equally many, each of which is sorted in parts of `part_rows` rows."""
        sample = RowSample.for_units(rows.count, units, part_rows)
        sample.read(rows, controls)
        return cls.of_sample(sample, labels, units, whole_labels)

    @classmethod
    def of_sample(cls, sample: RowSample, labels: Labels, units: int, whole_labels: bool) -> UnitCuts:
        """Cut rows as `of_rows` does, by a sample of them that was drawn for as many units."""
        splitters = sample.splitting_rows(labels)
        parts = sample.parts // units
        return cls(take_rows(splitters, np.arange(1, units) * parts - 1), splitters, whole_labels)


class UnitParts:
    """Parts in which the rows of all units are sorted, in the order of the labels.

    Parameters
    ----------
    cuts : UnitCuts
    controls : sequence of str
        Fields that `labels` needs.
    labels : Labels
    row : str
        Column of row numbers.
    """

    def __init__(self, cuts: UnitCuts, controls: Sequence[str], labels: Labels, row: str) -> None:
        self._columns = [*controls, row]
        self._units = Splitters(cuts.first_rows, labels, None if cuts.whole_labels else row)
        self._splitters = Splitters(cuts.splitters, labels, row)
        # A unit has one part more than splitters: another one begins with the unit.
        unit_of_splitter = self._units.parts_of(cuts.splitters.select(self._columns))
        sizes = np.bincount(unit_of_splitter, minlength=cuts.first_rows.num_rows + 1) + 1
        self.firsts: tuple[int, ...] = (0, *np.cumsum(sizes).tolist())
        """First part of each unit, and the number of parts."""

    def scatter(self, tables: Iterator[pa.Table], spool: Spool, first: int) -> None:
        """Append rows to their parts of a spool, of which the first one is ``first``."""
        own = Span([spool], first, self.firsts[-1])
        for table in tables:
            keys = table.select(self._columns)
            units, parts = parts_by([self._units, self._splitters], keys)
            scatter(own, units + parts, table)


def sorted_spools(spools: Sequence[Spool], first: int, stop: int) -> SortedRows:
    """Return the rows of adjacent parts of several spools, in the order of the parts and of the spools."""
    parts = Span(spools, first, stop - first)
    return SortedRows(sum(parts.rows(part) for part in range(parts.parts)), _parts_in_order(parts))


def sorted_parts(
    rows: Rows, fields: Sequence[str], controls: Sequence[str], labels: Labels, row: str,
    part_rows: int, scratch: Scratch, memory: int,
) -> Iterator[pa.Table]:  # fmt: skip
    """Yield all rows in parts of about `part_rows` rows, in the order of their labels.

    Rows within a part are in row order, and so are equal labels across parts.

    Parameters
    ----------
    rows : Rows
    fields : sequence of str
        Fields to yield.
    controls : sequence of str
        Fields that `labels` needs.
    labels : Labels
    row : str
        Column of row numbers.
    part_rows : int
    scratch : Scratch
    memory : int
        Bytes buffered before writing.
    """
    count = max(1, -(-rows.count // part_rows))
    if count == 1:
        yield pa.concat_tables(rows.read(fields))
        return
    sample = RowSample(rows.count, count)
    sample.read(rows, controls)
    splitters = Splitters(sample.splitting_rows(labels), labels, row)
    spool = scratch.spool(count, memory)
    for table in rows.read(fields):
        scatter(spool, splitters.parts_of(table.select([*controls, row])), table)
    yield from _parts_in_order(spool)


def _parts_in_order(spool: Spool) -> Iterator[pa.Table]:
    """Yield the rows of each part that has some, and clear it."""
    for part in range(spool.parts):
        pieces = list(spool.read(part))
        spool.clear(part)
        if pieces:
            yield pa.concat_tables(pieces)


class RowSample:
    """Systematic sample of rows, one of every `step`, from which splitters are chosen.

    Parameters
    ----------
    rows : int
        Number of all rows.
    parts : int
        Number of parts to cut them into, with about equally many rows.
    """

    def __init__(self, rows: int, parts: int) -> None:
        self.parts = parts
        self._step = max(1, rows // max(_SAMPLED, 4 * parts))
        self._taken: list[pa.Table] = []
        self._seen = 0

    @classmethod
    def for_units(cls, rows: int, units: int, part_rows: int) -> Self:
        """Return the sample for units of about equally many rows, sorted in parts of `part_rows` rows."""
        return cls(rows, units * -(-rows // (units * part_rows)))

    def read(self, rows: Rows, controls: Sequence[str]) -> None:
        """Draw the sample from the rows; ``controls``: fields that the labels need."""
        for _ in self.drawing(rows.read(controls)):
            pass

    def drawing(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables that hold the rows, in row order, and draw the sample from them."""
        for table in tables:
            places = np.arange(-self._seen % self._step, table.num_rows, self._step)
            self._taken.append(take_rows(table, places))
            self._seen += table.num_rows
            yield table

    def splitting_rows(self, labels: Labels) -> pa.Table:
        """Choose sorted splitters, one fewer than the parts."""
        sample = pa.concat_tables(self._taken)
        order = radix_order(label_keys(labels(sample)))
        places = [len(order) * part // self.parts for part in range(1, self.parts)]
        return take_rows(sample, order[np.array(places, np.int64)])


@dataclass(frozen=True)
class Splitters:
    """Sorted rows, each the first of its part."""

    rows: pa.Table
    labels: Labels
    row: str | None
    """Column that orders ties; None: equal labels stay in one part, whatever its size."""

    def parts_of(self, table: pa.Table) -> Int64Array:
        """Return the part of each row: the number of splitters at or before it."""
        return parts_by([self], table)[0]


def parts_by(splitters: Sequence[Splitters], table: pa.Table) -> list[Int64Array]:
    """Return the part of each row by each set of splitters, which all have the same labels."""
    counts = [each.rows.num_rows for each in splitters]
    if not any(counts) or not table.num_rows:
        return [np.zeros(table.num_rows, np.int64) for _ in splitters]
    together = pa.concat_tables([*(each.rows.select(table.column_names) for each in splitters), table])
    keys_by_row: dict[str | None, list[UInt64Array]] = {None: label_keys(splitters[0].labels(together))}
    found, first = [], 0
    for each, count in zip(splitters, counts, strict=True):
        if each.row not in keys_by_row:
            numbers = together.column(each.row).to_numpy().astype(np.uint64)
            keys_by_row[each.row] = packed([*keys_by_row[None], numbers])
        keys = keys_by_row[each.row]
        own = [key[first : first + count] for key in keys]
        found.append(_parts(own, [key[sum(counts) :] for key in keys]))
        first += count
    return found


def _parts(splitters: Sequence[UInt64Array], keys: Sequence[UInt64Array]) -> Int64Array:
    """Return the number of splitters at or before each row, by the keys of both in descending weight."""
    parts, ties = places(splitters[0], keys[0], wants_ties=len(keys) > 1)
    # The further keys decide only for rows whose first key is that of a splitter.
    if len(ties):
        place_ties(parts, ties, splitters, [key[ties] for key in keys], radix_order)
    return parts
