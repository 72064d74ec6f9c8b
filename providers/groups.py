"""Rows cut into groups, and who exchanges with whom in them: what a provider says, and a kernel does.

The kernels are those of `providers.kernels`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from providers.buckets import Layout
from providers.radix import IndexArray, Int64Array, UInt64Array, row_index_type


@dataclass(frozen=True)
class Groups:
    """Rows cut into groups within which a provider may pair."""

    rows: int
    """Rows of the table, in a group or not."""
    listing: IndexArray | None
    """The participating rows, group by group; None for all rows in their own order, the layout's, or that
    of `standing`."""
    starts: Int64Array
    """Group g is ``order[starts[g]:starts[g + 1]]``; shape (groups + 1,)."""
    identities: UInt64Array
    """What names each group in the address of its draws; shape (groups,)."""
    layout: Layout | None = None
    """Where values are moved, if not where they stand, and the order of all rows."""
    standing: IndexArray | None = None
    """The place of each row in `order`, where that is known and not the listing; all rows are in a group."""

    @property
    def sizes(self) -> Int64Array:
        """Rows of each group; shape (groups,)."""
        return np.diff(self.starts)

    @property
    def order(self) -> IndexArray:
        """The participating rows, group by group, in listing order; not kept where that is None."""
        if self.layout is not None:
            return inverse(self.layout.places, self.rows)[self.layout.of_rank]
        if self.standing is not None:
            return self._listed
        if self.listing is None:
            return np.arange(self.rows, dtype=row_index_type(self.rows))
        return self.listing

    @cached_property
    def _listed(self) -> IndexArray:
        assert self.standing is not None  # noqa: S101 - as `order` has seen
        return inverse(self.standing, self.rows)

    @cached_property
    def in_row_order(self) -> bool:
        """Whether every row takes part and the listing is the rows' own order."""
        if self.standing is not None:
            return bool(_is_in_row_order(self.standing))
        if self.listing is None:
            return self.layout is None
        return len(self.listing) == self.rows and _is_in_row_order(self.listing)

    @cached_property
    def places(self) -> IndexArray:
        """For each row its place in `order`, -1 where it is in no group; shape (rows,)."""
        if self.standing is not None:
            return self.standing
        return self.order if self.in_row_order else inverse(self.order, self.rows)


@dataclass
class Pairing:
    """Who exchanges with whom.

    The participating rows are laid out so that the rows of a group, or of a bucket of a large group,
    lie together: an exchange then happens within the cache. In group g the first ``2 * pairs[g]``
    places of its shuffled places are exchanged, 1 and 2, 3 and 4, ...
    """

    groups: Groups
    shuffled: IndexArray
    """The places of each group in the layout, group by group, in a uniformly random order."""
    pairs: Int64Array
    """Pairs exchanged in each group; 0 where nothing moves; shape (groups,)."""
    odd_rule: bool
    """Whether the last three rows of an odd group move in a cycle of three."""
    moved: IndexArray | None = None
    """The layout: for each place in listing order its place, where large groups lie in buckets; else
    the layout is the listing."""

    @cached_property
    def places(self) -> IndexArray:
        """For each row its place in the layout, -1 where it is in no group; shape (rows,)."""
        if self.moved is None:
            return self.groups.places
        if self.groups.in_row_order:
            return self.moved
        places = np.empty_like(self.groups.places)
        _compose(self.groups.places, self.moved, places)
        return places

    @property
    def took_part(self) -> Int64Array:
        """Rows that take part in each group; shape (groups,)."""
        odd = (self.groups.sizes % 2 == 1) & (self.pairs > 0) & self.odd_rule
        return np.asarray(2 * self.pairs + odd, np.int64)

    @property
    def order(self) -> IndexArray:
        """The participating rows, group by group, in their uniformly random order."""
        if self.moved is None:
            return self.groups.order[self.shuffled]
        return inverse(self.places, len(self.shuffled))[self.shuffled]


class Workspace:
    """Memory that the exchange of one field leaves to that of the next.

    What the system gives anew it clears first, which takes as long as a pass over it.
    """

    def __init__(self) -> None:
        self._kept: dict[str, UInt64Array] = {}

    def array(self, purpose: str, count: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """Undefined values of the type, shape (count,): in the memory that served the purpose before."""
        size = -(-count * kind.itemsize // 8)
        if purpose not in self._kept or len(self._kept[purpose]) < size:
            self._kept.pop(purpose, None)  # both at once would be too much
            self._kept[purpose] = np.empty(size, np.uint64)
        return self._kept[purpose].view(kind)[:count]


# ------------------------------------------------------------------------------- rows and places


@njit(cache=True, nogil=True, parallel=True)
def _is_in_row_order(order):
    elsewhere = 0
    for at in prange(len(order)):
        elsewhere += order[at] != at
    return elsewhere == 0


@njit(cache=True, nogil=True, parallel=True)
def _invert(order, places):
    for at in prange(len(order)):
        if order[at] >= 0:
            places[order[at]] = at


def inverse(order: IndexArray, rows: int) -> IndexArray:
    """Where each of `rows` row numbers stands in `order`, -1 where it does not."""
    every = len(order) == rows
    places = np.empty(rows, order.dtype) if every else np.full(rows, -1, order.dtype)
    _invert(order, places)
    return places


@njit(cache=True, nogil=True, parallel=True)
def _compose(places, moved, composed):
    for row in prange(len(places)):
        composed[row] = moved[places[row]] if places[row] >= 0 else -1
