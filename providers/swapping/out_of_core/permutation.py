"""Permutation of a group that does not fit in memory, one range of buckets of its random order at a time.

The value of each row comes from the row before it in the random order, or, at the start of a cycle, from the
last row of the cycle. So a range of the order needs few rows of other ranges: the last row before it, and the
last row of each cycle that starts in it and ends later. A group of m rows has about ln(m) cycles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, Int64Array
from providers.grouping.groups import Groups
from providers.grouping.large_groups import BucketRange, LargeGroup
from providers.swapping.permutation import Cycles, Permutation, draw_cycles

_ELEMENTS_PER_STEP = 2**20


@dataclass(frozen=True)
class _Link:
    """Row of a range that gets its value from a row of another range, as places in the random order."""

    place: int
    giver: int


@dataclass(frozen=True)
class PermutedGroup:
    """Permutation of one large group, with the links between its ranges."""

    group: LargeGroup
    cycles: Cycles
    ranges: Sequence[BucketRange]
    """Ranges that this unit permutes."""
    links: Sequence[Sequence[_Link]]
    """For each of these ranges its links."""
    elements: Int64Array
    """Element, by its number in listing order, that gives the value of each link, over all ranges."""

    @classmethod
    def of(cls, group: LargeGroup, ranges: Sequence[BucketRange]) -> "PermutedGroup":
        """Draw the cycles of a group, and find the rows that give their values to other ranges.

        Parameters
        ----------
        group : LargeGroup
            `rate` is the probability of a row to be selected.
        ranges : sequence of BucketRange
            Ranges that this unit permutes.
        """
        starts = np.array([0, group.rows], np.int64)
        identities = np.array([group.identity], np.uint64)
        cycles = draw_cycles(starts, identities, group.key, group.rate)
        links = [_links(cycles, each) for each in ranges]
        givers = np.array([link.giver for each in links for link in each], np.int64)
        return cls(group, cycles, ranges, links, _elements_at(group, givers))

    def givers(self, before: int, count: int) -> tuple[IndexArray, npt.NDArray[np.int32], Int64Array]:
        """Return the rows of a batch that give values to other ranges.

        Parameters
        ----------
        before, count : int
            Rows of the group before the batch, and rows of the batch.

        Returns
        -------
        tuple of ndarrays, shape (givers,)
            Row in the batch; label -1 - k for link k of a range; number of the range.
        """
        ranges = np.repeat(np.arange(len(self.links)), [len(each) for each in self.links])
        labels = np.concatenate([[0], *(-1 - np.arange(len(each)) for each in self.links)])[1:]
        found = np.flatnonzero((self.elements >= before) & (self.elements < before + count))
        return self.elements[found] - before, labels[found].astype(np.int32), ranges[found]

    def permutation(self, part: BucketRange, buckets: npt.NDArray[np.int32], givers: int) -> Permutation:
        """Return the permutation of the rows of a range, numbered from 0 in listing order.

        Parameters
        ----------
        part : BucketRange
        buckets : ndarray of int32, shape (rows,)
            Bucket of each row.
        givers : int
            Number of rows of other ranges, which follow in the order of the links.
        """
        rows = len(buckets)
        order = self.group.pairing(part, buckets).order
        source = np.arange(rows + givers, dtype=order.dtype)
        moving = min(max(int(self.cycles.moving[0]) - part.start, 0), rows)
        source[order[1:moving]] = order[: max(moving - 1, 0)]
        ends = self.cycles.starts + self.cycles.lengths
        inside = (self.cycles.starts >= part.start) & (ends <= part.start + rows)
        first = self.cycles.starts[inside] - part.start
        source[order[first]] = order[first + self.cycles.lengths[inside] - 1]
        links = self.links[next(i for i, each in enumerate(self.ranges) if each.start == part.start)]
        for number, link in enumerate(links):
            source[order[link.place - part.start]] = rows + number
        starts = np.array([0, rows + givers], np.int64)
        groups = Groups(rows + givers, None, starts, np.array([self.group.identity], np.uint64))
        return Permutation(groups, order[:0], np.array([moving], np.int64), source=source)


def _links(cycles: Cycles, part: BucketRange) -> list[_Link]:
    """Return the links of a range, in the order of the places."""
    stop = min(part.start + part.rows, int(cycles.moving[0]))
    if stop <= part.start:
        return []
    ends = cycles.starts + cycles.lengths
    chosen = np.flatnonzero((cycles.starts >= part.start) & (cycles.starts < stop))
    links = [
        _Link(start, end - 1)
        for start, end in zip(cycles.starts[chosen].tolist(), ends[chosen].tolist(), strict=True)
        if end > part.start + part.rows
    ]
    if part.start not in cycles.starts[chosen]:
        links.insert(0, _Link(part.start, part.start - 1))
    return links


def _elements_at(group: LargeGroup, places: Int64Array) -> Int64Array:
    """Return the elements at places of the random order, in the group's listing order; shape (places,)."""
    if not len(places):
        return places
    whole = group.bucket_sizes()
    ends = np.cumsum(whole)
    bucket_of_place = np.searchsorted(ends, places, side="right")
    wanted = np.unique(bucket_of_place)
    is_wanted = np.zeros(len(whole), np.bool_)
    is_wanted[wanted] = True
    elements: dict[int, list[Int64Array]] = {int(bucket): [] for bucket in wanted}
    for first in range(0, group.rows, _ELEMENTS_PER_STEP):
        drawn = group.buckets(first, min(_ELEMENTS_PER_STEP, group.rows - first))
        found = np.flatnonzero(is_wanted[drawn])
        for bucket in np.unique(drawn[found]).tolist():
            elements[bucket].append(first + found[drawn[found] == bucket])
    result = np.empty(len(places), np.int64)
    for bucket in wanted.tolist():
        members = np.concatenate(elements[bucket])
        start = int(ends[bucket] - whole[bucket])
        part = BucketRange(bucket, whole[bucket : bucket + 1], start)
        order = group.pairing(part, np.full(len(members), bucket, np.int32)).order
        chosen = bucket_of_place == bucket
        result[chosen] = members[order[places[chosen] - start]]
    return result
