"""A grid over numeric fields: the cell of every row, the rows by cell, and the grid of a wanted degree.

A field is cut into cells of one width; the cells of all fields together make the grid. Its size does
not matter, since only cells that hold rows are ever named: ids are digits of cell numbers in as many
64-bit words as it takes, and they are sorted, or counted in a hash table that compares whole ids.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from providers.addresses import addresses_of, float_at
from providers.bins import FieldValues, Float64Array
from providers.provider import Progress, no_progress, part_of
from providers.radix import IndexArray, Int64Array, UInt64Array, radix_runs

MOST_CELLS = 2**52
"""Cells of one field: float64 tells so many apart, and half as many again."""

MOST_STEPS = 100_000
"""Partitions that a search for a degree tries at most, upwards, and as many downwards."""
MOST_WORK = 2**36
"""Values that a search for a degree reads at most; a few partitions are tried of any table."""

_BLOCK = 2048  # rows whose ids stay in the cache while the fields are read one after the other
_AT_ONCE = 2**22  # values that are read between two words of progress
_FEWEST_STEPS = 64
_SMALLEST_WIDTH = 5e-324  # a width below it would be zero


@dataclass(frozen=True, slots=True)
class Axis:
    """How one field is cut: the cell of x is ``min(floor((x - origin) / width), last)``."""

    origin: float
    width: float
    """0 for a constant field, which is one cell."""
    first: float
    """Cell of the smallest value."""
    last: float
    """The largest value's cell is never beyond this one."""

    @property
    def cells(self) -> int:
        """Cells from the smallest value's to the last."""
        return int(self.last - self.first) + 1


def axis_of_width(field: FieldValues, origin: float, width: float) -> Axis | None:
    """Cells of this width; None where float64 cannot tell them apart."""
    if field.low == field.high:
        return Axis(origin, 0.0, 0.0, 0.0)
    low, high = (field.low - origin) / width, (field.high - origin) / width
    if not max(abs(low), abs(high)) <= MOST_CELLS:
        return None
    last = math.ceil(high) - 1.0
    return Axis(origin, width, min(math.floor(low), last), last)


def axis_of_cells(field: FieldValues, origin: float, cells: int) -> Axis:
    """So many cells from the origin, at most the smallest value, to the largest value."""
    if field.low == field.high:
        return Axis(origin, 0.0, 0.0, 0.0)
    width = max((field.high - origin) / cells, _SMALLEST_WIDTH)
    last = cells - 1.0
    return Axis(origin, width, min(math.floor((field.low - origin) / width), last), last)


# ------------------------------------------------------------------------------------- rows by cell


@njit(cache=True, nogil=True)
def _block_ids(addresses, start, count, cuts, cells, words, ids, to):
    """Write the ids of `count` rows from `start` on to ``ids[:, to:]``."""
    ids[:, to : to + count] = 0
    for field in range(len(addresses)):
        address, base, word = addresses[field], cells[field], ids[words[field]]
        origin, width, first, last = cuts[field, 0], cuts[field, 1], cuts[field, 2], cuts[field, 3]
        for at in range(count):
            cell = min(np.floor((float_at(address, start + at) - origin) / width), last) - first
            word[to + at] = word[to + at] * base + np.uint64(np.int64(cell))


@njit(cache=True, nogil=True, parallel=True)
def _write_ids(addresses, start, cuts, cells, words, ids):
    """Write the ids of the rows from `start` on; ``ids`` uint64, shape (words, rows)."""
    rows = ids.shape[1]
    for block in prange((rows + _BLOCK - 1) // _BLOCK):
        count = min(_BLOCK, rows - block * _BLOCK)
        _block_ids(addresses, start + block * _BLOCK, count, cuts, cells, words, ids, block * _BLOCK)


class _Ids:
    """What a kernel needs to make the ids of rows: cell numbers as digits, in one word or several."""

    def __init__(self, fields: Sequence[FieldValues], axes: Sequence[Axis]) -> None:
        self.rows = len(fields[0].values)
        numbers = [number for number, axis in enumerate(axes) if axis.cells > 1]
        self._kept = [fields[number].values for number in numbers]  # which their addresses do not
        self.addresses = addresses_of(self._kept)
        cut = [axes[number] for number in numbers]
        self.cuts = np.array([(axis.origin, axis.width, axis.first, axis.last) for axis in cut]).reshape(
            -1, 4
        )
        self.cells = np.array([axis.cells for axis in cut], np.uint64)
        self.words = np.zeros(len(cut), np.int64)
        room = 2**64
        word = 0
        for at, axis in enumerate(cut):
            if axis.cells > room:
                word += 1
                room = 2**64
            self.words[at] = word
            room //= axis.cells
        self.word_count = word + 1


def _parts(rows: int, fields: int) -> Iterator[tuple[int, int]]:
    step = max(_BLOCK, _AT_ONCE // max(1, fields))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def rows_by_cell(
    fields: Sequence[FieldValues], axes: Sequence[Axis], progress: Progress
) -> tuple[IndexArray, Int64Array]:
    """The rows cell by cell, ascending within a cell, and where each cell that holds rows starts.

    Cells come in lexicographic order of their cell numbers, the first field's first. The starts end
    with the number of rows. O(rows) for each word of the ids.
    """
    ids = cell_ids(fields, axes, part_of(progress, 0.0, 0.5))
    progress(0.5, "grouping by cell")
    return radix_runs(list(ids))


def cell_ids(
    fields: Sequence[FieldValues], axes: Sequence[Axis], progress: Progress = no_progress
) -> UInt64Array:
    """The cell of each row, as one word or several, in whose order cells come; shape (words, rows)."""
    made = _Ids(fields, axes)
    ids = np.empty((made.word_count, made.rows), np.uint64)
    for start, stop in _parts(made.rows, len(made.cells)):
        progress(start / made.rows, "finding cells")
        _write_ids(made.addresses, start, made.cuts, made.cells, made.words, ids[:, start:stop])
    return ids


# ----------------------------------------------------------------------------------- counting cells


@njit(cache=True, nogil=True)
def _insert(ids, at, slots, stamps, stamp):
    """Whether the id is new to the table, in which it is now."""
    mixed = np.uint64(0)
    for word in range(len(ids)):
        mixed = (mixed ^ ids[word, at]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    mask = np.uint64(len(stamps) - 1)
    slot = mixed & mask
    while stamps[slot] == stamp:
        same = True
        for word in range(len(ids)):
            if slots[slot, word] != ids[word, at]:
                same = False
        if same:
            return False
        slot = (slot + np.uint64(1)) & mask
    stamps[slot] = stamp
    for word in range(len(ids)):
        slots[slot, word] = ids[word, at]
    return True


@njit(cache=True, nogil=True)
def _insert_rows(addresses, row, stop, cuts, cells, words, slots, stamps, stamp, count, limit):
    """Insert the rows' ids; the count of the table's ids, which ends soon beyond the limit."""
    ids = np.empty((slots.shape[1], _BLOCK), np.uint64)
    while row < stop and count <= limit:
        block = min(_BLOCK, stop - row)
        _block_ids(addresses, row, block, cuts, cells, words, ids, 0)
        for at in range(block):
            count += _insert(ids, at, slots, stamps, stamp)
        row += block
    return count


@njit(cache=True, nogil=True, parallel=True)
def _insert_into_each(addresses, row, stop, cuts, cells, words, slots, stamps, stamp, counts, limit):
    """The same with a part of the rows for each table."""
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
    """Ids in any of the tables; more than `limit` where there are more."""
    held = np.empty((slots.shape[2], 1), np.uint64)
    for table in range(1, len(counts)):
        for slot in range(stamps.shape[1]):
            if counts[0] > limit or counts[table] > limit:
                return limit + 1
            if stamps[table, slot] == stamp:
                held[:, 0] = slots[table, slot]
                counts[0] += _insert(held, 0, slots[0], stamps[0], stamp)
    return min(counts[0], limit + 1)


class _Tables:
    """Hash tables, one a thread, of ids seen so far."""

    def __init__(self, most: int, words: int, rows: int) -> None:
        self.words = words
        self._counts = np.zeros(get_num_threads() if rows > 4 * _BLOCK else 1, np.int64)
        capacity = 1 << (2 * (most + _BLOCK)).bit_length()  # a table may take a block beyond its limit
        self._slots = np.empty((len(self._counts), capacity, words), np.uint64)
        self._stamps = np.zeros((len(self._counts), capacity), np.uint32)
        self._stamp = np.uint32(0)

    def count(self, ids: _Ids, limit: int) -> int:
        """Different ids of all rows, or `limit` + 1 where there are more."""
        self._stamp += np.uint32(1)
        self._counts[:] = 0
        made = ids.cuts, ids.cells, ids.words
        if len(self._counts) == 1:  # threads would cost more than the work
            table = self._slots[0], self._stamps[0], self._stamp
            return int(min(_insert_rows(ids.addresses, 0, ids.rows, *made, *table, 0, limit), limit + 1))
        tables = self._slots, self._stamps, self._stamp, self._counts
        for start, stop in _parts(ids.rows, len(ids.cells)):
            _insert_into_each(ids.addresses, start, stop, *made, *tables, limit)
            if self._counts.max() > limit:
                return limit + 1
        return int(_unite(self._slots, self._stamps, self._stamp, self._counts, limit))


@njit(cache=True, nogil=True)
def _count_sorted(values, origin, width, last, limit):
    """Cells that hold ascending values, or `limit` + 1: from each cell straight to the next."""
    count = 0
    at = 0
    while at < len(values) and count <= limit:
        count += 1
        cell = min(np.floor((values[at] - origin) / width), last)
        step = 1  # gallop over the cell, then halve
        while at + step < len(values) and min(np.floor((values[at + step] - origin) / width), last) == cell:
            at += step
            step *= 2
        while step > 0:
            if at + step < len(values) and min(np.floor((values[at + step] - origin) / width), last) == cell:
                at += step
            step //= 2
        at += 1
    return count


class CellCounter:
    """Counts the cells that hold rows, for one grid after the other."""

    def __init__(self, fields: Sequence[FieldValues], most: int) -> None:
        """`most`: no count beyond it is asked for."""
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
        """Rows that differ from each other, or `limit` + 1 where there are more."""
        if self.dimensions == 0:
            return 1
        if self._ascending is not None:
            return min(len(self._ascending), limit + 1)
        most = 0
        for rows in (4 * limit + 1024, self.rows):  # the first rows tell as a rule
            bits = [(field.values[:rows] + 0.0).view(np.uint64) for field in self._fields]  # + 0.0: one zero
            most = len(radix_runs(bits)[1]) - 1
            if most > limit or rows >= self.rows:
                break
        return min(most, limit + 1)

    def cells(self, origins: Sequence[float], number: int, limit: int) -> int:
        """Cells that hold rows where each varying field has `number` cells, or `limit` + 1."""
        pairs = zip(self._fields, origins, strict=True)
        axes = [axis_of_cells(field, origin, number) for field, origin in pairs]
        if self.dimensions == 0:
            return 1
        if self._ascending is not None:
            axis = axes[0]
            return int(_count_sorted(self._ascending, axis.origin, axis.width, axis.last, limit))
        ids = _Ids(self._fields, axes)
        if self._tables is None or self._tables.words != ids.word_count:
            self._tables = _Tables(min(self._most, self.rows), ids.word_count, self.rows)
        return self._tables.count(ids, limit)


# --------------------------------------------------------------------------------- the wanted degree


@dataclass(frozen=True, slots=True)
class Degree:
    """The grid whose degree is nearest to the wanted one."""

    cells: int
    """Of each field."""
    ended: bool
    """Whether the search ended before the degree was passed."""


def nearest_degree(
    fields: Sequence[FieldValues], origins: Sequence[float], degree: int, progress: Progress
) -> Degree:
    """The number m of cells a field for which the cells that hold rows come nearest to `degree`.

    Parameters
    ----------
    fields, origins : sequences
        Origins at most the smallest values.
    degree : int
        Cells that are to hold rows.

    Notes
    -----
    m = 1, 2, ... until the count passes the degree; then the least ``|count - degree|``, the smaller m
    on ties. The count is not monotone in m, so that nothing can be skipped but this: no more than m^p
    cells hold rows, hence those m begin at the p-th root of the degree, and those below it are looked
    at only where they can still be nearer. Rows that differ are never more than so many, hence a degree
    beyond that number is taken for it.

    One count reads every row, in O(rows p), and compares whole ids; it stops when it can no longer be
    the nearest. Of one field the values are sorted, once, and a count goes from cell to cell, in
    O(count log(rows / count)). At most `MOST_STEPS` counts and `MOST_WORK` values.
    """
    counter = CellCounter(fields, 2 * degree)
    varying = [origin for field, origin in zip(fields, origins, strict=True) if field.low < field.high]
    wanted = min(degree, counter.distinct(degree))
    dimensions = max(1, counter.dimensions)
    work = min(counter.rows, 16 * wanted) if dimensions == 1 else counter.rows * dimensions
    steps = max(_FEWEST_STEPS, min(MOST_STEPS, MOST_WORK // work))
    least, nearest = wanted - 1, 1  # one cell holds every row
    begin = _root(wanted, dimensions)
    number = begin
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
        ended = number - begin >= steps
        if ended:
            break
    for number in range(begin - 1, max(0, begin - steps), -1):
        if wanted - number**dimensions > least:
            break
        count = counter.cells(varying, number, wanted)
        if wanted - count <= least:
            least, nearest = wanted - count, number
    return Degree(nearest, ended)


def _root(number: int, order: int) -> int:
    """The largest integer whose power is at most the number."""
    root = max(1, round(math.pow(number, 1.0 / order)))
    while root**order > number:
        root -= 1
    while (root + 1) ** order <= number:
        root += 1
    return root


# --------------------------------------------------------------------------------- what may be guessed

MOST_PARTITIONINGS = 64
"""Numbers of cells whose minimal depth is found, at most."""
FEWEST_PARTITIONINGS = 16
"""Where the table is so large that fewer could be tried, none is."""
MOST_VALUES = 2**22
"""Values that are read for minimal depths, all partitionings together."""


def may_tell_depths(rows: int, fields: int) -> bool:
    """Whether a table is small enough for `minimal_depths`."""
    return MOST_VALUES // (rows * fields) >= FEWEST_PARTITIONINGS


def minimal_depths(fields: Sequence[FieldValues], widest: float = 1.0) -> set[int] | None:
    """Rows of the smallest bin, of each partitioning in which no row is alone.

    Parameters
    ----------
    fields : sequence of FieldValues
    widest : float
        The widest cell that counts, as a share of each field's range.

    Returns
    -------
    set of ints, 2 or more
        None of a table of more than `MOST_VALUES` / `FEWEST_PARTITIONINGS` values.

    Notes
    -----
    Partitionings cut every field's range into m = 1, 2, ... cells, of which as many are tried as the
    bounds allow: more cells leave rows alone almost always. O(rows fields) for each m.
    """
    rows = len(fields[0].values)
    if not may_tell_depths(rows, len(fields)):
        return None
    tried = min(MOST_PARTITIONINGS, MOST_VALUES // (rows * len(fields)))
    least = math.ceil(1.0 / widest)
    depths = set()
    for cells in range(least, least + tried):
        _, starts = rows_by_cell(
            fields, [axis_of_cells(field, field.low, cells) for field in fields], no_progress
        )
        depths.add(int(np.diff(starts).min()))
    return depths - {1}


# ------------------------------------------------------------------------------------------- spread

SUMMED = 1024
"""Values that are summed one after the other: fixed, so that no sum depends on the threads."""


@njit(cache=True, nogil=True, parallel=True)
def _sums(values, low, span, centre, squared, sums):
    """Sums of ``(x - low) / span - centre``, or of its square, over pieces of `SUMMED` rows."""
    for piece in prange(len(sums)):
        total = 0.0
        for row in range(piece * SUMMED, min(len(values), (piece + 1) * SUMMED)):
            term = (values[row] - low) / span - centre
            total += term * term if squared else term
        sums[piece] = total


def _total(pieces: Iterable[Float64Array], field: FieldValues, centre: float, squared: bool) -> float:
    sums = []
    for values in pieces:
        of_piece: npt.NDArray[np.float64] = np.empty(-(-len(values) // SUMMED))
        _sums(values, field.low, field.high - field.low, centre, squared, of_piece)
        sums.append(of_piece)
    return math.fsum(itertools.chain.from_iterable(sums))


def standard_deviation(field: FieldValues, count: int, pieces: Callable[[], Iterable[Float64Array]]) -> float:
    """Population standard deviation of a field that is not constant.

    Of the values scaled to [0, 1], so that no square overflows; summed in pieces of 1024 values in
    the order of the rows, and the pieces' sums exactly.

    Parameters
    ----------
    field : FieldValues
        Whose values may be missing: its range is what is asked for.
    count : int
        Rows.
    pieces : callable
        The values in the order of the rows, read-only, each time anew; all but the last piece hold a
        multiple of `SUMMED` of them.
    """
    mean = _total(pieces(), field, 0.0, squared=False) / count
    variance = _total(pieces(), field, mean, squared=True) / count
    return math.sqrt(variance) * (field.high - field.low)
