"""Rows told apart by the part they belong to."""

from collections.abc import Iterator, Sequence
from typing import Any

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
    for part in np.flatnonzero(sizes).tolist():
        # rows of their own, not a view: what waits to be written must not hold on to all the others
        spool.add(part, take_rows(table, order[bounds[part] : bounds[part + 1]]))


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
        held: list[pa.Table] = []
        while rows:
            table = self._left if self._left is not None else pa.Table.from_batches([next(self._batches)])
            taken = min(rows, table.num_rows)
            held.append(table.slice(0, taken))
            self._left = table.slice(taken) if taken < table.num_rows else None
            rows -= taken
        return pa.concat_tables(held)


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
