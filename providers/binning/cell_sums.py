"""Number of rows, first row and sum of the rows of each grid cell that holds rows, read batch by batch.

The values of a cell are added one after the other in the order of the rows, so that the sums do not depend on
the batches, and equal the sums of a run in memory. A grid of few cells has an entry for each of them. Of
other grids the rows of each batch are sorted by cell, and the cells with rows are merged with those before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from providers.arrays import Float64Array, Int64Array, UInt64Array
from providers.binning.singletons import add_up
from providers.errors import SourceError
from providers.kernels.decorators import uncounted
from providers.kernels.pointers import addresses_of, float_at
from providers.kernels.radix_sort import radix_runs

MOST_DENSE = 1 << 16
"""Largest grid with an entry for each cell: the entries of two fields, 32 bytes each, stay in the cache."""

_MEMORY_DIVISOR = 4
"""The statistics of all cells take at most the memory budget divided by this."""

_FEW_CELLS = 1 << 12
"""Number of cells whose statistics are kept with any memory budget."""


@dataclass(frozen=True, slots=True)
class CellSums:
    """Statistics of the cells that hold rows, in the order of their ids."""

    words: UInt64Array
    """Cell ids, shape (words, cells)."""
    sizes: Int64Array
    """Number of rows."""
    first: Int64Array
    """Smallest row number."""
    sums: Float64Array
    """Sums of the rows in widths from the origin, shape (cells, fields that vary)."""

    @property
    def count(self) -> int:
        """Number of cells that hold rows."""
        return len(self.sizes)

    @property
    def singletons(self) -> int:
        """Number of cells of one row."""
        return int(np.count_nonzero(self.sizes == 1))


class GrowingSums(Protocol):
    """Statistics that grow batch by batch."""

    def add(self, ids: UInt64Array, rows: Int64Array, columns: Sequence[Float64Array]) -> None:
        """Add the next rows of the table. Raises SourceError: the cells are too many for the memory.

        Parameters
        ----------
        ids : ndarray of uint64, shape (words, rows)
            Cell id of each row.
        rows : ndarray of int64, shape (rows,)
            Row numbers, ascending.
        columns : sequence of ndarray of float64, shape (rows,)
            Values of the fields that vary.
        """

    def found(self) -> CellSums:
        """Return the statistics of all rows that were added."""


def new_cell_sums(cells: Sequence[int], cuts: Float64Array, memory_bytes: int) -> GrowingSums:
    """Return empty statistics of a grid.

    Parameters
    ----------
    cells : sequence of int
        Number of cells of each field.
    cuts : ndarray of float64, shape (fields that vary, 2)
        Origin and width of each field that varies.
    memory_bytes : int
        Memory budget of the run.
    """
    cell_bytes = 48 + 40 * len(cells)  # about: words, sums and the tree of the means
    most = max(_FEW_CELLS, memory_bytes // (_MEMORY_DIVISOR * cell_bytes))
    grid = math.prod(cells)
    return _DenseSums(grid, cuts) if grid <= min(MOST_DENSE, most) else _SparseSums(cuts, most)


class _DenseSums:
    """Entries of all cells of a grid, whose ids have one word."""

    def __init__(self, cells: int, cuts: Float64Array) -> None:
        self._cuts = cuts
        self._sizes: Int64Array = np.zeros(cells, np.int64)
        self._first: Int64Array = np.zeros(cells, np.int64)
        self._sums: Float64Array = np.zeros((cells, len(cuts)))

    def add(self, ids: UInt64Array, rows: Int64Array, columns: Sequence[Float64Array]) -> None:
        _add_by_cell(ids[0], rows, addresses_of(columns), self._cuts, self._sizes, self._first, self._sums)

    def found(self) -> CellSums:
        held = np.flatnonzero(self._sizes)
        words = held.astype(np.uint64)[np.newaxis]
        return CellSums(words, self._sizes[held], self._first[held], self._sums[held])


@uncounted
def _add_by_cell(ids, rows, addresses, cuts, sizes, first, sums):
    """Add the rows of a batch to the entries of their cells, one after the other.

    Parameters
    ----------
    ids : ndarray of uint64, shape (rows,)
    rows : ndarray of int64, shape (rows,)
    addresses : ndarray of uint64, shape (fields,)
        Addresses of the columns of float64.
    cuts : ndarray of float64, shape (fields, 2)
    sizes, first : ndarrays of int64, shape (cells,)
        Written.
    sums : ndarray of float64, shape (cells, fields)
        Added to.
    """
    for row in range(len(ids)):
        cell = np.int64(ids[row])
        if sizes[cell] == 0:
            first[cell] = rows[row]
        sizes[cell] += 1
        for field in range(len(cuts)):
            sums[cell, field] += (float_at(addresses[field], row) - cuts[field, 0]) / cuts[field, 1]


class _SparseSums:
    """Entries of the cells that hold rows, in the order of their ids; at most `most` of them."""

    def __init__(self, cuts: Float64Array, most: int) -> None:
        self._cuts = cuts
        self._most = most
        self._found: CellSums | None = None

    def add(self, ids: UInt64Array, rows: Int64Array, columns: Sequence[Float64Array]) -> None:
        before = self.found(len(ids))
        order, starts = radix_runs(list(ids))
        known = before.count
        words = np.concatenate([before.words, ids[:, order[starts[:-1]]]], axis=1)
        sizes = np.concatenate([before.sizes, np.diff(starts)])
        first = np.concatenate([before.first, rows[order[starts[:-1]]]])
        sums = np.concatenate([before.sums, np.zeros((len(starts) - 1, len(self._cuts)))])
        # The sort is stable: if a cell has two entries, the known one comes before that of this batch.
        merged_order, cuts = radix_runs(list(words))
        first_entry, last_entry = merged_order[cuts[:-1]], merged_order[cuts[1:] - 1]
        if len(first_entry) > self._most:
            raise SourceError(
                f"more than {self._most} cells hold rows; to merge singletons, the means of all these "
                "cells must fit in memory: widen the cells, or set 'singletons' to 'keep' or "
                "'suppression'",
                "/parameters/singletons",
            )
        sums = sums[first_entry]
        with_new_rows = np.flatnonzero(last_entry >= known)
        batch_cells = (last_entry[with_new_rows] - known).astype(np.int64)
        cell_sums = sums[with_new_rows]
        add_up(columns, order, starts, batch_cells, self._cuts, cell_sums)
        sums[with_new_rows] = cell_sums
        self._found = CellSums(
            words[:, first_entry],
            sizes[first_entry] + np.where(last_entry == first_entry, 0, sizes[last_entry]),
            first[first_entry],
            sums,
        )

    def found(self, words: int = 1) -> CellSums:
        if self._found is not None:
            return self._found
        nothing = np.zeros(0, np.int64)
        return CellSums(np.zeros((words, 0), np.uint64), nothing, nothing, np.zeros((0, len(self._cuts))))
