"""Rows told apart by the part they belong to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.storage import Source, Spool
from providers.table import take_rows


def scatter(spool: Spool, parts: npt.NDArray[np.integer[Any]], table: pa.Table) -> None:
    """Put each row at the end of its part; ``parts``: shape (rows,)."""
    if not len(parts):
        return
    # one thread's counting sort of short words: to start more takes longer than it does
    order = np.argsort(parts.astype(np.uint16 if spool.parts < 2**16 else np.int64), kind="stable")
    sizes = np.bincount(parts, minlength=spool.parts)
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    table = table.combine_chunks()  # or each part's rows would be taken from a copy of all of them
    for part in np.flatnonzero(sizes).tolist():
        # rows of their own, not a view: what waits to be written must not hold on to all the others
        spool.add(part, take_rows(table, order[bounds[part] : bounds[part + 1]]))


class Span:
    """Some parts that lie side by side in several spools, as if these were one."""

    def __init__(self, spools: Sequence[Spool], first: int, parts: int) -> None:
        self.parts = parts
        self._spools = spools
        self._first = first

    def add(self, part: int, table: pa.Table) -> None:
        """Rows for the end of a part: of the last spool's."""
        self._spools[-1].add(self._first + part, table)

    def rows(self, part: int) -> int:
        """Rows of the part so far."""
        return sum(spool.rows(self._first + part) for spool in self._spools)

    def read(self, part: int) -> Iterator[pa.Table]:
        """The part's rows, spool by spool."""
        for spool in self._spools:
            yield from spool.read(self._first + part)

    def clear(self, part: int) -> None:
        """Forget the part."""
        for spool in self._spools:
            spool.clear(self._first + part)


@dataclass(frozen=True)
class Rows:
    """Rows with their numbers in the table, read as often as wanted."""

    count: int
    read: Callable[[Sequence[str]], Iterator[pa.Table]]
    """(fields) -> these and the numbers, piece by piece, in the order of the numbers."""

    @classmethod
    def of_source(cls, source: Source, row: str) -> Self:
        """All of the source's; ``row`` names the column of the numbers."""
        return cls(source.rows, lambda fields: numbered(source, fields, row))

    @classmethod
    def of_spool(cls, spool: Spool, row: str) -> Self:
        """Those of the only part of the spool, which holds their numbers already."""
        return cls(spool.rows(0), lambda fields: (table.select([*fields, row]) for table in spool.read(0)))


def numbered(source: Source, fields: Sequence[str], row: str) -> Iterator[pa.Table]:
    """The source's batches, with the number of each row in a column of that name."""
    first = 0
    for batch in source.batches(fields):
        rows = np.arange(first, first + batch.num_rows, dtype=np.int64)
        first += batch.num_rows
        yield pa.Table.from_batches([batch]).append_column(row, pa.array(rows))


class Reader:
    """Reads fields of a source from its first row to its last, any number of rows at a time."""

    def __init__(self, source: Source, fields: Sequence[str]) -> None:
        """``fields``: one or more."""
        self._batches = source.batches(fields)
        self._left: pa.Table | None = None

    def take(self, rows: int) -> pa.Table:
        """The next rows, one or more, which the source has."""
        return pa.concat_tables(list(self._next(rows)))

    def skip(self, rows: int) -> None:
        """Pass over the next rows, which the source has."""
        for _ in self._next(rows):
            pass

    def _next(self, rows: int) -> Iterator[pa.Table]:
        while rows:
            table = self._left if self._left is not None else pa.Table.from_batches([next(self._batches)])
            taken = min(rows, table.num_rows)
            self._left = table.slice(taken) if taken < table.num_rows else None
            rows -= taken
            yield table.slice(0, taken)


def in_ranges(source: Source, fields: Sequence[str], rows: int) -> Iterator[tuple[int, pa.Table]]:
    """The source's fields, so many rows at a time, fewer at the end; and the rows that came before."""
    reader = Reader(source, fields)
    for first in range(0, source.rows, rows):
        yield first, reader.take(min(rows, source.rows - first))


def unused(wish: str, names: Sequence[str]) -> str:
    """A name for a column of our own that none of the others has."""
    while wish in names:
        wish += "_"
    return wish
