"""Collect results by row range and reassemble them in row order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Int64Array, row_index_type
from providers.out_of_core.partitions import Span, scatter
from providers.sections import PLACE, Section
from providers.storage import Spool
from providers.tables.columns import scattered

Marks = npt.NDArray[np.uint8]


class Ranges:
    """Spooled results, collected by range of consecutive rows, and read in row order."""

    def __init__(
        self, spools: Sequence[Spool], rows: int, range_rows: int, moves: int, drops: int = 0
    ) -> None:
        """Combine the spools of all processes.

        Parameters
        ----------
        spools : sequence of Spool
            One for every process, with `parts` parts each.
        rows : int
        range_rows : int
        moves : int
            Number of sets of fields that move together.
        drops : int
            Marks of rows that the run drops: `put` also stores their places, as one set more. 0: it does not.
        """
        self.rows = rows
        self.range_rows = range_rows
        self.count = -(-rows // range_rows)
        self._spools = [Span(spools, which * self.count, self.count) for which in range(moves)]
        self._drops = np.uint8(drops)
        self._dropped = Span(spools, moves * self.count, self.count)

    @staticmethod
    def starts(rows: int, range_rows: int) -> tuple[int, ...]:
        """Return the first row of each range."""
        return tuple(range(0, rows, range_rows))

    def within(self, section: Section) -> Iterator[tuple[int, int, slice]]:
        """Yield number, first row and own rows of each range of a section, as far as they belong to it."""
        for number in section.ranges(self.starts(self.rows, self.range_rows)):
            start = number * self.range_rows
            first, stop = max(start, section.first), min(start + self.range_rows, section.stop)
            yield number, first, slice(first - start, stop - start)

    @staticmethod
    def parts(rows: int, range_rows: int, moves: int) -> int:
        """Return the parts that a spool needs: one for each range and set of fields that move together."""
        return max(1, moves * -(-rows // range_rows))

    def put(self, which: int, rows: Int64Array, columns: Sequence[pa.ChunkedArray], marks: Marks) -> None:
        """Store values and marks of some rows, for set `which` of the fields that move together."""
        range_of_row = rows // self.range_rows
        offset = (rows - range_of_row * self.range_rows).astype(np.uint32)
        extra = [pa.array(offset), pa.array(marks)]
        table = pa.table([*columns, *extra], names=[str(number) for number in range(len(columns) + 2)])
        scatter(self._spools[which], range_of_row, table)
        dropped = np.flatnonzero(marks & self._drops)
        if len(dropped):
            places = pa.table({PLACE: offset[dropped]})
            scatter(self._dropped, range_of_row[dropped], places)

    def get(self, which: int, number: int, rows: slice = slice(None)) -> tuple[list[pa.ChunkedArray], Marks]:
        """Return values and marks of a range in row order, or those of some of its rows, and delete it."""
        spool = self._spools[which]
        table = pa.concat_tables(spool.read(number))
        spool.clear(number)
        places = table.column(table.num_columns - 2).to_numpy().astype(row_index_type(self.range_rows))
        start, stop, _ = rows.indices(len(places))
        columns = [
            scattered(column, places).slice(start, stop - start)
            for column in table.columns[:-2] + table.columns[-1:]
        ]
        return columns[:-1], columns[-1].to_numpy()

    def marks(self, which: int, number: int) -> Marks:
        """Return the marks of a range, without deleting it."""
        tables = [table.select([-2, -1]) for table in self._spools[which].read(number)]
        marks: Marks = np.zeros(sum(table.num_rows for table in tables), np.uint8)
        for table in tables:
            marks[table.column(0).to_numpy()] = table.column(1).to_numpy()
        return marks
