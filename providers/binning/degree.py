"""Find the grid whose number of occupied cells is nearest to a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from providers.arrays import Float64Array
from providers.binning.grid import BLOCK_ROWS, CellIds, axis_of_cells, block_ids, row_blocks
from providers.binning.values import FieldValues
from providers.kernels.decorators import within
from providers.kernels.parallel import parallel
from providers.kernels.radix_sort import radix_runs
from providers.numba import get_num_threads, njit, prange
from providers.progress import Progress

MOST_STEPS = 100_000
"""Largest number of grids that a search for a degree tries upwards, and downwards."""

MOST_WORK = 2**36
"""Largest number of values that a search for a degree reads; a few grids are tried for any table."""

_FEWEST_STEPS = 64
"""Number of grids that are tried for any table, however large."""

# ----------------------------------------------------------------------------------- counting cells


@within
def _insert(ids, column, slots, stamps, stamp):
    """Insert an id into a hash table with linear probing; return whether it is new.

    Parameters
    ----------
    ids : ndarray of uint64, shape (words, ids)
    column : int
        Column of the id.
    slots : ndarray of uint64, shape (capacity, words)
        Ids in the table; capacity is a power of two. Written.
    stamps : ndarray of uint32, shape (capacity,)
        Equal to `stamp` where a slot is in use, so that a new stamp clears the table. Written.
    stamp : uint32
    """
    mixed = np.uint64(0)
    for word in range(len(ids)):
        # Multiply and shift, by 2**64 divided by the golden ratio.
        mixed = (mixed ^ ids[word, column]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    mask = np.uint64(len(stamps) - 1)
    slot = mixed & mask
    while stamps[slot] == stamp:
        same = True
        for word in range(len(ids)):
            if slots[slot, word] != ids[word, column]:
                same = False
        if same:
            return False
        slot = (slot + np.uint64(1)) & mask
    stamps[slot] = stamp
    for word in range(len(ids)):
        slots[slot, word] = ids[word, column]
    return True


@njit(cache=True, nogil=True)
def _insert_rows(addresses, row, stop, cuts, cells, words, slots, stamps, stamp, count, limit):
    """Insert the ids of rows into one hash table; return its number of ids.

    Parameters
    ----------
    addresses, cuts, cells, words
        See `grid.block_ids`.
    row, stop : int
        Range of rows.
    slots, stamps, stamp
        See `_insert`; written.
    count : int
        Ids in the table before.
    limit : int
        The insertion ends at the first block of rows in which the count exceeds this.
    """
    ids = np.empty((slots.shape[1], BLOCK_ROWS), np.uint64)
    while row < stop and count <= limit:
        block = min(BLOCK_ROWS, stop - row)
        block_ids(addresses, row, block, cuts, cells, words, ids, 0)
        for column in range(block):
            count += _insert(ids, column, slots, stamps, stamp)
        row += block
    return count


@parallel
def _insert_into_each(addresses, row, stop, cuts, cells, words, slots, stamps, stamp, counts, limit):
    """Insert the ids of rows into several hash tables in parallel, an equal share of the rows for each.

    Parameters
    ----------
    addresses, row, stop, cuts, cells, words, stamp, limit
        See `_insert_rows`.
    slots : ndarray of uint64, shape (tables, capacity, words)
        Written.
    stamps : ndarray of uint32, shape (tables, capacity)
        Written.
    counts : ndarray of int64, shape (tables,)
        Number of ids in each table. Updated.
    """
    tables = len(counts)
    for table in prange(tables):
        first = row + (stop - row) * table // tables
        last = row + (stop - row) * (table + 1) // tables
        counts[table] = _insert_rows(
            addresses,
            first,
            last,
            cuts,
            cells,
            words,
            slots[table],
            stamps[table],
            stamp,
            counts[table],
            limit,
        )


@njit(cache=True, nogil=True)
def _unite(slots, stamps, stamp, counts, limit):
    """Insert the ids of all tables into the first one; return their number, or `limit` + 1 if larger.

    Parameters
    ----------
    slots, stamps, stamp, counts
        See `_insert_into_each`; the first table and its count are written.
    limit : int
    """
    ids = np.empty((slots.shape[2], 1), np.uint64)
    for table in range(1, len(counts)):
        for slot in range(stamps.shape[1]):
            if counts[0] > limit or counts[table] > limit:
                return limit + 1
            if stamps[table, slot] == stamp:
                ids[:, 0] = slots[table, slot]
                counts[0] += _insert(ids, 0, slots[0], stamps[0], stamp)
    return min(counts[0], limit + 1)


class _Tables:
    """Hash tables of cell ids, one for each thread."""

    def __init__(self, most: int, words: int, rows: int) -> None:
        self.words = words
        self._counts = np.zeros(get_num_threads() if rows > 4 * BLOCK_ROWS else 1, np.int64)
        capacity = 1 << (2 * (most + BLOCK_ROWS)).bit_length()  # a table may exceed its limit by one block
        self._slots = np.empty((len(self._counts), capacity, words), np.uint64)
        self._stamps = np.zeros((len(self._counts), capacity), np.uint32)
        self._stamp = np.uint32(0)

    def count(self, ids: CellIds, limit: int) -> int:
        """Return the number of different ids, or `limit` + 1 if there are more."""
        self._stamp += np.uint32(1)
        self._counts[:] = 0
        grid = ids.cuts, ids.cells, ids.words
        if len(self._counts) == 1:  # threads would cost more than the work
            table = self._slots[0], self._stamps[0], self._stamp
            return int(min(_insert_rows(ids.addresses, 0, ids.rows, *grid, *table, 0, limit), limit + 1))
        tables = self._slots, self._stamps, self._stamp, self._counts
        for start, stop in row_blocks(ids.rows, len(ids.cells)):
            _insert_into_each(ids.addresses, start, stop, *grid, *tables, limit)
            if self._counts.max() > limit:
                return limit + 1
        return int(_unite(self._slots, self._stamps, self._stamp, self._counts, limit))


@njit(cache=True, nogil=True)
def _count_sorted(values, origin, width, last, limit):
    """Count the cells that hold values by galloping from cell to cell; return at most `limit` + 1.

    Parameters
    ----------
    values : ndarray of float64, shape (values,)
        Ascending.
    origin, width, last : float
        Of the field's `Axis`.
    limit : int
    """
    count = 0
    index = 0
    rows = len(values)
    while index < rows and count <= limit:
        count += 1
        cell = min(np.floor((values[index] - origin) / width), last)
        step = 1  # gallop over the cell, then halve
        while index + step < rows and min(np.floor((values[index + step] - origin) / width), last) == cell:
            index += step
            step *= 2
        while step > 0:
            if index + step < rows and min(np.floor((values[index + step] - origin) / width), last) == cell:
                index += step
            step //= 2
        index += 1
    return count


class CellCounter:
    """Counter of the cells that hold rows, for one grid after the other.

    Parameters
    ----------
    fields : sequence of FieldValues
    most : int
        Largest limit that will be given to a count.
    """

    def __init__(self, fields: Sequence[FieldValues], most: int) -> None:
        self._fields = [field for field in fields if field.low < field.high]
        self._most = most
        self.rows = len(fields[0].values)
        self.dimensions = len(self._fields)
        self._ascending: Float64Array | None = None
        self._tables: _Tables | None = None
        if self.dimensions == 1:
            self._ascending = np.unique(self._fields[0].values)
            self._ascending.flags.writeable = False

    def distinct(self, limit: int) -> int:
        """Return the number of distinct rows, or `limit` + 1 if there are more."""
        if self.dimensions == 0:
            return 1
        if self._ascending is not None:
            return min(len(self._ascending), limit + 1)
        most = 0
        for rows in (4 * limit + 1024, self.rows):  # the first rows usually suffice
            bits = [(field.values[:rows] + 0.0).view(np.uint64) for field in self._fields]  # + 0.0: one zero
            most = len(radix_runs(bits)[1]) - 1
            if most > limit or rows >= self.rows:
                break
        return min(most, limit + 1)

    def cells(self, origins: Sequence[float], number: int, limit: int) -> int:
        """Count the cells that hold rows if each varying field has `number` cells; at most `limit` + 1."""
        pairs = zip(self._fields, origins, strict=True)
        axes = [axis_of_cells(field, origin, number) for field, origin in pairs]
        if self.dimensions == 0:
            return 1
        if self._ascending is not None:
            axis = axes[0]
            return int(_count_sorted(self._ascending, axis.origin, axis.width, axis.last, limit))
        ids = CellIds(self._fields, axes)
        if self._tables is None or self._tables.words != ids.word_count:
            self._tables = _Tables(min(self._most, self.rows), ids.word_count, self.rows)
        return self._tables.count(ids, limit)


# --------------------------------------------------------------------------------- the wanted degree


@dataclass(frozen=True, slots=True)
class Degree:
    """The grid whose degree is nearest to the wanted one."""

    cells: int
    """Number of cells of each field."""
    ended: bool
    """Whether the search reached its bounds before the wanted degree."""


def nearest_degree(
    fields: Sequence[FieldValues], origins: Sequence[float], degree: int, progress: Progress
) -> Degree:
    """Find the number m of cells per field whose partition degree is nearest to `degree`.

    Parameters
    ----------
    fields : sequence of FieldValues
    origins : sequence of float
        Lower end of each field's first cell, at most its smallest value.
    degree : int
        Wanted number of cells that hold rows (definition 1 of Li and Shen 2010).
    progress : Progress

    Notes
    -----
    m = 1, 2, ... are tried until the count reaches the degree. The result is the m with the least
    ``|count - degree|``, the smaller one on ties. The count is not monotone in m, but at most m^p cells
    hold rows. So the search starts at the p-th root of the degree, and smaller m are tried afterwards
    only if they can still be nearer. The count never exceeds the number of distinct rows, which replaces
    a larger degree.

    One count reads every row in O(rows p) and compares whole ids; it stops when it can no longer be the
    nearest. The values of a single field are sorted once, and a count takes O(count log(rows / count)).
    The search ends after `MOST_STEPS` counts or `MOST_WORK` values.
    """
    counter = CellCounter(fields, 2 * degree)
    varying = [origin for field, origin in zip(fields, origins, strict=True) if field.low < field.high]
    wanted = min(degree, counter.distinct(degree))
    dimensions = max(1, counter.dimensions)
    work = min(counter.rows, 16 * wanted) if dimensions == 1 else counter.rows * dimensions
    steps = max(_FEWEST_STEPS, min(MOST_STEPS, MOST_WORK // work))
    least, nearest = wanted - 1, 1  # one cell holds every row
    first = _root(wanted, dimensions)
    number = first
    ended = False
    most = 0
    while least:
        count = counter.cells(varying, number, wanted + least - 1)
        most = max(most, count)
        progress(min(1.0, most / wanted), "searching the degree")
        if abs(count - wanted) < least:
            least, nearest = abs(count - wanted), number
        if count >= wanted:
            break
        number += 1
        ended = number - first >= steps
        if ended:
            break
    for number in range(first - 1, max(0, first - steps), -1):
        if wanted - number**dimensions > least:
            break
        count = counter.cells(varying, number, wanted)
        if wanted - count <= least:
            least, nearest = wanted - count, number
    return Degree(nearest, ended)


def _root(number: int, order: int) -> int:
    """Return the largest integer whose power of this order is at most the number."""
    root = max(1, round(math.pow(number, 1.0 / order)))
    while root**order > number:
        root -= 1
    while (root + 1) ** order <= number:
        root += 1
    return root
