"""Find the best free donor of another area with an equal match profile.

The free households of a level are ranked once. For each match profile, households with equal profile values
form a *group*, and the households of a group in one area form a *queue*, in the order of ranks. A tournament
tree for each group holds the ranks of the heads of its queues, so that the best donor outside one area is
found, and a used household removed, in O(log queues) time.

Arguments of kernels
--------------------
rank : int64 array (households,)
    Rank of each free household, 0 the best; undefined for others.
area : int64 array (households,)
used : bool array (households,)
    Households that cannot be donors: swapped, or without a donor when they needed one. Written.
queue : int64 array (profiles, households)
    Queue of each free household, numbered so that those of a group are consecutive.
members : int64 array (profiles, free households)
    Free households by queue, then rank.
start : int64 array (profiles, queues + 1)
    First place of each queue in `members`.
head : int64 array (profiles, queues)
    Place of the best unused member of each queue. Written.
group_start, group_size : int64 array (profiles, queues)
    For each queue, the first queue of its group, and the number of the group's queues.
tree : int64 array (profiles, 2 * queues)
    Tournament trees: that of a group with m queues begins at twice its first queue; its nodes are numbered
    1 to 2m - 1, the last m being the queues. Written.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Int64Array
from providers.kernels.decorators import borrowing, uncounted, within
from providers.numba import njit

_NONE = np.int64(2**62)
"""Rank of an empty queue."""


@within
def _by_code(places, code, count, out):
    """Write `places` to `out` sorted by the code (int64, below `count`) of each, stably."""
    ends = np.zeros(count + 1, np.int64)
    for place in places:
        ends[code[place] + 1] += 1
    for each in range(count):
        ends[each + 1] += ends[each]
    for place in places:
        at = code[place]
        out[ends[at]] = place
        ends[at] += 1


@njit(cache=True, nogil=True)
def _form_queues(free, group, groups, area, areas, rank, queue, members, start, group_start, group_size):
    """Sort the free households, given by rank, into queues; return the number of queues.

    `group` (int64, below `groups`) is each household's group of the profile, `area` is below `areas`;
    `queue`, `members`, `start`, `group_start` and `group_size` are one profile's, and written. `rank` is
    written.
    """
    by_area = np.empty(len(free), np.int64)
    for place in range(len(free)):
        rank[free[place]] = place
    _by_code(free, area, areas, by_area)
    _by_code(by_area, group, groups, members)
    queues = 0
    first = 0
    for place in range(len(free)):
        household = members[place]
        new_group = place == 0 or group[members[place - 1]] != group[household]
        if new_group or area[members[place - 1]] != area[household]:
            if new_group:
                for each in range(first, queues):
                    group_size[each] = queues - first
                first = queues
            start[queues] = place
            group_start[queues] = first
            queues += 1
        queue[household] = queues - 1
    for each in range(first, queues):
        group_size[each] = queues - first
    start[queues] = len(free)
    return queues


@uncounted
def _grow_trees(queues, members, start, group_start, group_size, rank, head, tree):
    """Set the heads of all queues of one profile, and the tournament tree of each group."""
    for each in range(queues):
        head[each] = start[each]
        tree[2 * group_start[each] + group_size[each] + each - group_start[each]] = rank[members[start[each]]]
    each = 0
    while each < queues:
        base, size = 2 * each, group_size[each]
        for node in range(size - 1, 0, -1):
            tree[base + node] = min(tree[base + 2 * node], tree[base + 2 * node + 1])
        each += size


@borrowing
def _remove(household, used, rank, queue, members, start, head, group_start, group_size, tree):
    """Mark a free household as used, and take it out of the trees of all profiles."""
    used[household] = True
    for profile in range(len(queue)):
        own = queue[profile, household]
        place = head[profile, own]
        if members[profile, place] != household:
            continue  # its place is passed over when it would become the head
        while place < start[profile, own + 1] and used[members[profile, place]]:
            place += 1
        head[profile, own] = place
        first, size = group_start[profile, own], group_size[profile, own]
        base, node = 2 * first, size + own - first
        tree[profile, base + node] = (
            rank[members[profile, place]] if place < start[profile, own + 1] else _NONE
        )
        while node > 1:
            node >>= 1
            tree[profile, base + node] = min(
                tree[profile, base + 2 * node], tree[profile, base + 2 * node + 1]
            )


@borrowing
def _best_elsewhere(own, first, size, tree):
    """Return the least rank in the tree of a group outside one of its queues, `_NONE` if there is none.

    `own` is the queue, `first` the group's first queue, `size` the number of its queues, `tree` the
    profile's.
    """
    best = _NONE
    base, node = 2 * first, size + own - first
    while node > 1:
        best = min(best, tree[base + (node ^ 1)])
        node >>= 1
    return best


@uncounted
def _match(requests, quota, finest, free, rank, used, queue, members, start, head, group_start, group_size,
           tree, partner, profile_of):  # fmt: skip
    """Give each request that is not used, in their order, the best donor; return the requests without one.

    Parameters
    ----------
    requests : int64, shape (requests,)
    quota : int64, shape (finest areas,)
        Swaps that each area still lacks: a request counts against it, and is passed over where it is 0 or
        less. Empty: every request must be swapped, and one without a donor is used up.
    finest : int64, shape (households,)
        Finest area of each household.
    free : int64, shape (free households,)
        Households by rank.
    partner : int64, shape (households,)
        Receives the partners.
    profile_of : int64, shape (households,)
        Receives the number of the profile on which the two agree.
    """
    without = 0
    forced = len(quota) == 0
    for household in requests:
        if used[household] or (not forced and quota[finest[household]] <= 0):
            continue
        found = False
        for profile in range(len(queue)):
            own = queue[profile, household]
            best = _best_elsewhere(own, group_start[profile, own], group_size[profile, own], tree[profile])
            if best < _NONE:
                donor = free[best]
                partner[household], partner[donor] = donor, household
                profile_of[household] = profile_of[donor] = profile
                _remove(household, used, rank, queue, members, start, head, group_start, group_size, tree)
                _remove(donor, used, rank, queue, members, start, head, group_start, group_size, tree)
                if not forced:
                    quota[finest[household]] -= 1
                found = True
                break
        if not found:
            without += 1
            if forced:
                _remove(household, used, rank, queue, members, start, head, group_start, group_size, tree)
    return without


@dataclass(frozen=True, slots=True)
class Swaps:
    """Households swapped so far, all arrays of shape (households,)."""

    used: BoolArray
    partner: Int64Array
    """Partner of each household, -1 where it has none."""
    profile: Int64Array
    """Number of the match profile on which the two agree, -1 where there is no partner."""


class Donors:
    """Free households of one level, ready to be matched.

    Parameters
    ----------
    free : int64, shape (free households,)
        Households that are not used, best first.
    groups : list of (int64 array (households,), int)
        For each profile the codes of its values and their number.
    area : int64, shape (households,)
    areas : int
    swaps : Swaps
        Updated by `match`.
    """

    def __init__(
        self,
        free: Int64Array,
        groups: list[tuple[Int64Array, int]],
        area: Int64Array,
        areas: int,
        swaps: Swaps,
    ) -> None:
        profiles, households = len(groups), len(area)
        self._free, self._swaps = free, swaps
        self._rank = np.empty(households, np.int64)
        self._queue = np.empty((profiles, households), np.int64)
        self._members = np.empty((profiles, len(free)), np.int64)
        self._start = np.empty((profiles, len(free) + 1), np.int64)
        self._head, self._group_start, self._group_size = (
            np.empty((profiles, len(free)), np.int64) for _ in range(3)
        )
        self._tree = np.empty((profiles, 2 * len(free)), np.int64)
        for number, (codes, count) in enumerate(groups):
            each: list[npt.NDArray[Any]] = [
                array[number] for array in (self._members, self._start, self._group_start, self._group_size)
            ]
            queues = _form_queues(
                free, codes, count, area, areas, self._rank, self._queue[number], *each
            )  # fmt: skip
            _grow_trees(queues, *each, self._rank, self._head[number], self._tree[number])

    def match(self, requests: Int64Array, finest: Int64Array, quota: Int64Array | None = None) -> int:
        """Swap the requests with their best donors; return the number of requests that found none."""
        given = np.zeros(0, np.int64) if quota is None else quota
        swaps = self._swaps
        return int(
            _match(
                requests, given, finest, self._free, self._rank, swaps.used, self._queue, self._members,
                self._start, self._head, self._group_start, self._group_size, self._tree, swaps.partner,
                swaps.profile,
            )
        )  # fmt: skip


def can_match(groups: list[tuple[Int64Array, int]], area: Int64Array, areas: int) -> BoolArray:
    """Mask of the households that agree with one of another area on at least one profile."""
    found = np.zeros(len(area), np.bool_)
    for codes, count in groups:
        everywhere = np.bincount(codes, minlength=count)
        _, inverse, here = np.unique(codes * areas + area, return_inverse=True, return_counts=True)
        found |= everywhere[codes] > here[inverse]
    return found
