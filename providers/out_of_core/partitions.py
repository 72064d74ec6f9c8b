"""Scatter rows into the partitions of a spool; read sources in row ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Int64Array, row_index_type
from providers.kernels.counting_sort import places_by_part
from providers.storage import Source, Spool
from providers.tables.columns import has_words, inverse, scattered_words, take_rows, words_array
from providers.tables.joining import in_one_chunk


def scatter(spool: Spool, parts: npt.NDArray[np.integer[Any]], table: pa.Table) -> None:
    """Append rows to their parts of the spool.

    Parameters
    ----------
    spool : Spool
    parts : ndarray of int, shape (rows,)
        Part of each row.
    table : pa.Table
    """
    if not len(parts):
        return
    places, starts = places_by_part(parts, spool.parts)
    table = in_one_chunk(table)  # otherwise each part would copy all rows
    # Words are written to their places, which reads them once; of other types Arrow takes each part's rows.
    words = {
        at: scattered_words(column, places) for at, column in enumerate(table.columns) if has_words(column)
    }
    others = table.select([at for at in range(table.num_columns) if at not in words])
    order = inverse(places) if others.num_columns else None
    for part in np.flatnonzero(np.diff(starts)).tolist():
        # Copies, not views: buffered rows must not keep all the others in memory.
        span = slice(starts[part], starts[part + 1])
        taken = iter(() if order is None else take_rows(others, order[span]).columns)
        columns = [
            words_array(words[at][span].copy(), kind, None) if at in words else next(taken)
            for at, kind in enumerate(table.schema.types)
        ]
        spool.add(part, pa.Table.from_arrays(columns, schema=table.schema))


class Span:
    """Range of adjacent parts of several spools, used like a single spool."""

    def __init__(self, spools: Sequence[Spool], first: int, parts: int) -> None:
        """Use `parts` parts from `first` on."""
        self.parts = parts
        self._spools = spools
        self._first = first

    def add(self, part: int, table: pa.Table) -> None:
        """Append rows to a part of the last spool."""
        self._spools[-1].add(self._first + part, table)

    def rows(self, part: int) -> int:
        """Return the number of rows of a part."""
        return sum(spool.rows(self._first + part) for spool in self._spools)

    def read(self, part: int) -> Iterator[pa.Table]:
        """Yield the rows of a part, spool by spool."""
        for spool in self._spools:
            yield from spool.read(self._first + part)

    def clear(self, part: int) -> None:
        """Delete the rows of a part."""
        for spool in self._spools:
            spool.clear(self._first + part)


@dataclass(frozen=True)
class Rows:
    """Rows with their row numbers, which can be read repeatedly."""

    count: int
    read_within: Callable[[Sequence[str], range | None], Iterator[pa.Table]]
    """Callback(fields, row numbers of the source) that yields these fields and the row numbers, in row
    order, of the rows that have these numbers; None: of all rows."""

    @classmethod
    def of_source(cls, source: Source, row: str) -> Self:
        """Return all rows of a source; ``row`` names the column of row numbers."""
        return cls(source.rows, lambda fields, within: numbered(source, fields, row, within))

    def read(self, fields: Sequence[str]) -> Iterator[pa.Table]:
        """Yield fields of all rows, and the row numbers, in row order."""
        return self.read_within(fields, None)


def numbered(
    source: Source, fields: Sequence[str], row: str, within: range | None = None
) -> Iterator[pa.Table]:
    """Yield the batches of a source, with the row numbers in a column named `row`.

    Row numbers have the narrowest type for the source's rows: each row is written with its number.

    ``within``: consecutive row numbers, at least one, to which the batches are limited.
    """
    first, stop = (0, source.rows) if within is None else (within.start, within.stop)
    kind = row_index_type(source.rows)
    for batch in source.batches(fields, first):
        table = pa.Table.from_batches([batch]).slice(0, stop - first)
        rows = np.arange(first, first + table.num_rows, dtype=kind)
        first += table.num_rows
        yield table.append_column(row, pa.array(rows))
        if within is not None and first >= stop:
            return


def row_numbers(table: pa.Table, row: str) -> Int64Array:
    """Return the row numbers of a `numbered` table, which are in the column `row`; shape (rows,)."""
    return np.asarray(table.column(row).to_numpy()).astype(np.int64)


def joined(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of many tables in tables of about ``rows`` rows, each in one chunk."""
    together: list[pa.Table] = []
    count = 0
    for table in tables:
        if table.num_rows:
            together.append(table)
            count += table.num_rows
        if count >= rows:
            yield in_one_chunk(pa.concat_tables(together))
            together.clear()
            count = 0
    if together:
        yield in_one_chunk(pa.concat_tables(together))


class Reader:
    """Sequential reader of a source, for any number of rows at a time."""

    def __init__(self, source: Source, fields: Sequence[str], start: int = 0) -> None:
        """Start at a row. ``fields``: one or more."""
        self._batches = source.batches(fields, start)
        self._remaining: pa.Table | None = None

    def take(self, rows: int) -> pa.Table:
        """Return the next `rows` rows, one or more; the source must have them."""
        return pa.concat_tables(list(self._next(rows)))

    def _next(self, rows: int) -> Iterator[pa.Table]:
        """Yield the next `rows` rows in pieces."""
        while rows:
            table = self._remaining
            if table is None:
                table = pa.Table.from_batches([next(self._batches)])
            taken = min(rows, table.num_rows)
            self._remaining = table.slice(taken) if taken < table.num_rows else None
            rows -= taken
            yield table.slice(0, taken)


def in_ranges(
    source: Source, fields: Sequence[str], rows: int, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield (first row, fields) of each range of `rows` rows of a source; the last range may be shorter.

    Parameters
    ----------
    source : Source
    fields : sequence of str
        One or more.
    rows : int
    start : int
        First row of the first range.
    stop : int, optional
        Row after the last one. Default: the end of the source.
    """
    stop = source.rows if stop is None else stop
    reader = Reader(source, fields, start)
    for first in range(start, stop, rows):
        yield first, reader.take(min(rows, stop - first))
