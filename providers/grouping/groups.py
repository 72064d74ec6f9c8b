"""Groups of rows, pairings within them, and reusable buffers.

The kernels are those of `shuffle`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, Int64Array, UInt64Array, row_index_type
from providers.kernels.bucket_sort import Layout
from providers.kernels.parallel import ROWS_OF_A_THREAD, parallel, ranges_of
from providers.numba import prange

_FEW_GROUPS = 1 << 12
"""Number of groups up to which their sizes are kept: they take little memory."""


@dataclass(frozen=True)
class Groups:
    """Rows divided into groups, within which values may be exchanged."""

    rows: int
    """Rows of the table, including those in no group."""
    listing: IndexArray | None
    """Rows that take part, group by group. None for all rows, in row order, or in the order of `layout` or
    `standing`."""
    starts: Int64Array
    """Group g is ``order[starts[g]:starts[g + 1]]``; shape (groups + 1,)."""
    identities: UInt64Array
    """Identity of each group in the addresses of its draws; shape (groups,)."""
    layout: Layout | None = None
    """Memory layout in which values are exchanged, and order of all rows; None: values stay in place."""
    standing: IndexArray | None = None
    """Position of each row in `order`, if known instead of the listing; all rows are then in a group."""

    @property
    def sizes(self) -> Int64Array:
        """Number of rows of each group; shape (groups,)."""
        return self._few_sizes if len(self.starts) <= _FEW_GROUPS else np.diff(self.starts)

    @cached_property
    def _few_sizes(self) -> Int64Array:
        """Sizes, kept because every step of a small swap needs them."""
        sizes = np.diff(self.starts)
        sizes.flags.writeable = False
        return sizes

    @property
    def order(self) -> IndexArray:
        """Rows that take part, group by group, in listing order; recomputed if `listing` is None."""
        if self.layout is not None:
            return inverse(self.layout.places, self.rows)[self.layout.of_rank]
        if self.standing is not None:
            return self._listed
        if self.listing is None:
            return np.arange(self.rows, dtype=row_index_type(self.rows))
        return self.listing

    @cached_property
    def _listed(self) -> IndexArray:
        """Order that belongs to `standing`."""
        assert self.standing is not None  # noqa: S101 - as `order` has seen
        return inverse(self.standing, self.rows)

    @cached_property
    def in_row_order(self) -> bool:
        """Whether all rows take part, in row order."""
        if self.standing is not None:
            return _are_in_row_order(self.standing)
        if self.listing is None:
            return self.layout is None
        return len(self.listing) == self.rows and _are_in_row_order(self.listing)

    @cached_property
    def places(self) -> IndexArray:
        """Position of each row in `order`, -1 if it is in no group; shape (rows,)."""
        if self.standing is not None:
            return self.standing
        return self.order if self.in_row_order else inverse(self.order, self.rows)


@dataclass
class Pairing:
    """Rows that exchange values with each other.

    In the layout, the rows of a group, or of a bucket of a large group, are adjacent, so that an exchange
    stays within the cache. In group g the first ``took_part[g]`` of its shuffled places exchange values: 1
    and 2, 3 and 4, ... If that number is odd, it is the whole group of m rows, and the last three places
    move in a cycle: (m-2, m), then (m-1, m), counted from 1.
    """

    groups: Groups
    shuffled: IndexArray
    """Places of each group in the layout, group by group, in a uniformly random order."""
    took_part: Int64Array
    """Number of rows that move in each group; odd only if all rows of an odd group move; shape (groups,)."""
    moved: IndexArray | None = None
    """Place in the layout of each position in listing order, if large groups are stored by bucket. None: the
    layout is the listing."""

    @cached_property
    def places(self) -> IndexArray:
        """Place of each row in the layout, -1 if it is in no group; shape (rows,)."""
        if self.moved is None:
            return self.groups.places
        if self.groups.in_row_order:
            return self.moved
        places = np.empty_like(self.groups.places)
        _compose(self.groups.places, self.moved, places)
        return places

    @property
    def order(self) -> IndexArray:
        """Rows that take part, group by group, in their uniformly random order."""
        if self.moved is None:
            return self.groups.order[self.shuffled]
        return inverse(self.places, len(self.shuffled))[self.shuffled]


ORDER = "order"
"""Purpose of the buffer with the random order of a pairing, of 8 bytes for each row of the table. The values
of the last field that moves by this order get the buffer, since the order is not needed any more."""

SMALL_GROUPS = 128
"""Mean number of rows of a group up to which a layout does not pay off."""


class BufferPool:
    """Buffers reused from field to field.

    Fresh memory is zeroed by the operating system, which costs as much as one pass over it.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, UInt64Array] = {}

    def array(self, purpose: str, count: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return undefined values of a type, shape (count,), in the buffer of a purpose."""
        size = -(-count * kind.itemsize // 8)
        if purpose not in self._buffers or len(self._buffers[purpose]) < size:
            self._buffers.pop(purpose, None)  # the old buffer is freed before the new one is allocated
            self._buffers[purpose] = np.empty(size, np.uint64)
        return self._buffers[purpose].view(kind)[:count]

    def taken(self, purpose: str, count: int, kind: np.dtype[Any]) -> npt.NDArray[Any] | None:
        """Return undefined values in the buffer of a purpose, which leaves the pool.

        None if the pool has no buffer of that purpose, if it is too small, or if the values take less than
        half of it.
        """
        buffer = self._buffers.get(purpose)
        if buffer is None or not count * kind.itemsize <= buffer.nbytes <= 2 * count * kind.itemsize:
            return None
        del self._buffers[purpose]
        return buffer.view(kind)[:count]


# ------------------------------------------------------------------------------- rows and places


@parallel
def _count_misplaced(order, misplaced):
    """Count the i with ``order[i] != i`` in each of equal ranges.

    `order` is int32 or int64 (rows,); `misplaced`, int64 (ranges,), receives the counts.
    """
    ranges = len(misplaced)
    for chunk in prange(ranges):
        count = 0
        for index in range(len(order) * chunk // ranges, len(order) * (chunk + 1) // ranges):
            count += order[np.uint64(index)] != index
        misplaced[chunk] = count


def _are_in_row_order(order: IndexArray) -> bool:
    """Whether ``order[i] == i`` for all i."""
    misplaced = np.empty(ranges_of(len(order)), np.int64)
    _count_misplaced(order, misplaced)
    return not misplaced.any()


@parallel(least=ROWS_OF_A_THREAD)
def _invert(order, places):
    """Write ``places[order[i]] = i`` for all i with ``order[i] >= 0``.

    `order` and `places` are int32 or int64, of shapes (listed rows,) and (rows,).
    """
    for index in prange(len(order)):
        if order[index] >= 0:
            places[order[index]] = index


def inverse(order: IndexArray, rows: int) -> IndexArray:
    """Return the position of each of `rows` row numbers in `order`, -1 if it is not there."""
    is_complete = len(order) == rows
    places = np.empty(rows, order.dtype) if is_complete else np.full(rows, -1, order.dtype)
    _invert(order, places)
    return places


@parallel(least=ROWS_OF_A_THREAD)
def _compose(places, moved, composed):
    """Write ``moved[places[row]]``, or -1 where the place is negative, to `composed`.

    All are int32 or int64; `places` and `composed` have the shape (rows,), `moved` (listed rows,).
    """
    for row in prange(len(places)):
        composed[row] = moved[places[row]] if places[row] >= 0 else -1
