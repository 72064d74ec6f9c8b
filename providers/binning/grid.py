"""Equal-width grid: axes, cell ids, rows by cell.

Each field is cut into cells of equal width; the cells of all fields together form the grid. The size of the
grid does not matter, since only cells that hold rows are represented. The id of a cell is a mixed-radix
number whose digits are the cell numbers of the fields, in as many 64-bit words as necessary. Ids are
sorted, or counted in a hash table that compares whole ids.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.arrays import IndexArray, Int64Array, UInt64Array
from providers.binning.values import FieldValues
from providers.kernels.decorators import within
from providers.kernels.parallel import parallel
from providers.kernels.pointers import addresses_of, float_at
from providers.kernels.radix_sort import radix_runs
from providers.numba import prange
from providers.progress import Progress, no_progress, sub_progress
from providers.results import Event

MOST_CELLS = 2**52
"""Largest number of cells of one field: float64 can distinguish 1.5 times as many."""

BLOCK_ROWS = 2048  # rows whose ids stay in the cache while the fields are read one after the other

_AT_ONCE = 2**22  # values read between two progress reports

_SMALLEST_WIDTH = 5e-324  # a width below it would be zero


@dataclass(frozen=True, slots=True)
class Axis:
    """Partition of one field: the cell number of x is ``min(floor((x - origin) / width), last)``."""

    origin: float
    """Lower end of cell 0."""
    width: float
    """Width of a cell; 0 for a constant field, which is one cell."""
    first: float
    """Cell number of the smallest value."""
    last: float
    """Upper bound of cell numbers: the largest value belongs to this cell, not to the next one."""

    @property
    def cells(self) -> int:
        """Number of cells from that of the smallest value to the last."""
        return int(self.last - self.first) + 1


def axis_of_width(field: FieldValues, origin: float, width: float) -> Axis | None:
    """Cut a field into cells of this width; None if float64 cannot distinguish the cells."""
    if field.low == field.high:
        return Axis(origin, 0.0, 0.0, 0.0)
    low, high = (field.low - origin) / width, (field.high - origin) / width
    if not max(abs(low), abs(high)) <= MOST_CELLS:
        return None
    last = math.ceil(high) - 1.0
    return Axis(origin, width, min(math.floor(low), last), last)


def axis_of_cells(field: FieldValues, origin: float, cells: int) -> Axis:
    """Cut the range from the origin to the largest value into `cells` cells.

    The origin is at most the smallest value.
    """
    if field.low == field.high:
        return Axis(origin, 0.0, 0.0, 0.0)
    width = max((field.high - origin) / cells, _SMALLEST_WIDTH)
    last = cells - 1.0
    return Axis(origin, width, min(math.floor((field.low - origin) / width), last), last)


# ------------------------------------------------------------------------------------- rows by cell


@within
def block_ids(addresses, start, count, cuts, cells, words, ids, to):
    """Write the ids of `count` rows from `start` on to ``ids[:, to:]``.

    Parameters
    ----------
    addresses : ndarray of uint64, shape (fields,)
        Address of each field's float64 values.
    start, count : int
        Range of rows.
    cuts : ndarray of float64, shape (fields, 4)
        Origin, width, first and last of each field's `Axis`.
    cells : ndarray of uint64, shape (fields,)
        Number of cells of each field: the base of its digit.
    words : ndarray of int64, shape (fields,)
        Word of the id that the field's digit is in.
    ids : ndarray of uint64, shape (words, at least to + count)
        Written.
    to : int
        Column of `ids` for the first row.
    """
    ids[:, to : to + count] = 0
    for field in range(len(addresses)):
        address, base = addresses[field], cells[field]
        # A contiguous view, whose indices are never negative: otherwise LLVM would not vectorise the loop.
        word = ids[words[field]][to : to + count]
        origin, width, first, last = cuts[field, 0], cuts[field, 1], cuts[field, 2], cuts[field, 3]
        for at in range(count):
            cell = min(np.floor((float_at(address, start + at) - origin) / width), last) - first
            word[at] = word[at] * base + np.uint64(np.int64(cell))


@parallel
def _write_ids(addresses, start, stop, cuts, cells, words, ids):
    """Write the ids of the rows from `start` to `stop`.

    Parameters
    ----------
    addresses, cuts, cells, words
        See `block_ids`.
    start, stop : int
        Range of rows.
    ids : ndarray of uint64, shape (words, all rows)
        Written.
    """
    for block in prange((stop - start + BLOCK_ROWS - 1) // BLOCK_ROWS):
        row = start + block * BLOCK_ROWS
        count = min(BLOCK_ROWS, stop - row)
        block_ids(addresses, row, count, cuts, cells, words, ids, row)


class CellIds:
    """Arguments of the kernels that compute cell ids: addresses, cuts, bases and words of the fields."""

    def __init__(self, fields: Sequence[FieldValues], axes: Sequence[Axis]) -> None:
        self.rows = len(fields[0].values)
        numbers = [number for number, axis in enumerate(axes) if axis.cells > 1]
        self._values = [fields[number].values for number in numbers]  # keeps the addressed memory alive
        self.addresses = addresses_of(self._values)
        cut = [axes[number] for number in numbers]
        self.cuts = np.array([(axis.origin, axis.width, axis.first, axis.last) for axis in cut]).reshape(
            -1, 4
        )
        self.cells = np.array([axis.cells for axis in cut], np.uint64)
        self.words = np.zeros(len(cut), np.int64)
        # A word takes digits of consecutive fields as long as their product is at most 2**64.
        remaining = 2**64
        word = 0
        for index, axis in enumerate(cut):
            if axis.cells > remaining:
                word += 1
                remaining = 2**64
            self.words[index] = word
            remaining //= axis.cells
        self.word_count = word + 1


def row_blocks(rows: int, fields: int) -> Iterator[tuple[int, int]]:
    """Iterate over (start, end) of blocks of rows between progress reports; larger for few fields."""
    step = max(BLOCK_ROWS, _AT_ONCE // max(1, fields))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def rows_by_cell(
    fields: Sequence[FieldValues], axes: Sequence[Axis], progress: Progress
) -> tuple[IndexArray, Int64Array]:
    """Sort the rows by cell; return the order and the start of each cell that holds rows.

    Cells are in lexicographic order of their cell numbers, the first field's number first; rows are
    ascending within a cell. The starts end with the number of rows. O(rows) for each word of the ids.
    """
    ids = cell_ids(fields, axes, sub_progress(progress, 0.0, 0.5))
    progress(0.5, "grouping by cell")
    return radix_runs(list(ids))


def cell_ids(
    fields: Sequence[FieldValues], axes: Sequence[Axis], progress: Progress = no_progress
) -> UInt64Array:
    """Return the cell id of each row; the most significant word comes first; shape (words, rows)."""
    columns = CellIds(fields, axes)
    ids = np.empty((columns.word_count, columns.rows), np.uint64)
    for start, stop in row_blocks(columns.rows, len(columns.cells)):
        progress(start / columns.rows, "finding cells")
        _write_ids(columns.addresses, start, stop, columns.cuts, columns.cells, columns.words, ids)
    return ids


def grid_figures(merged: int, fields: Sequence[FieldValues], axes: Sequence[Axis]) -> dict[str, Any]:
    """Return the report figures of a grid; ``merged``: number of singletons that joined another bin."""
    return {
        "merged": merged,
        "cells": {field.name: axis.cells for field, axis in zip(fields, axes, strict=True)},
        "widths": {field.name: axis.width for field, axis in zip(fields, axes, strict=True)},
    }


def coarse_numbers(fields: Sequence[FieldValues], axes: Sequence[Axis]) -> list[Event]:
    """Return an event for each field whose values float64 rounds by more than a thousandth of a cell.

    ``fields``: only ranges and steps are used; ``axes``: those of the fields, or none.
    """
    events = []
    for field, axis in zip(fields, axes, strict=False):
        spacing = float(np.spacing(max(abs(field.low), abs(field.high))))
        if 0.0 < field.step < spacing and spacing > axis.width / 1000:
            message = (
                f"field '{field.name}' holds numbers with more digits than float64 has, of which cells are "
                "formed: values may move further than the width of a cell; subtract a constant from the "
                "field first, such as its smallest value rounded, or widen the cells"
            )
            events.append(Event("coarse_numbers", message, field=field.name))
    return events


def fewest_cells(widest: float) -> int:
    """Return the smallest m with 1 / m <= widest in float64; `MOST_CELLS` + 1 if it is above `MOST_CELLS`.

    1 / widest alone may round past an integer, and is infinite for the smallest floats.
    """
    if widest < 1.0 / MOST_CELLS:
        return MOST_CELLS + 1
    cells = math.ceil(1.0 / widest)
    return cells - 1 if cells > 1 and 1.0 / (cells - 1) <= widest else cells
