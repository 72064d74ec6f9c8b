"""The random order of a large group, one range of its buckets at a time.

A group of more than `kernels.ONE_BUCKET` rows is put in order by random buckets: word e of a stream names
the bucket of element e, and each bucket is shuffled on its own. So whoever holds the rows of some buckets
that lie side by side, in their order, knows how they are exchanged, and needs none of the others.

References
----------
Rao 1961, Sankhya A 23; Sandelius 1962, J. R. Stat. Soc. B 24: a uniform order by random buckets.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from providers.groups import Groups, Pairing, inverse
from providers.kernels import BUCKET_BITS, BUCKET_LEVEL, pairs_of, shuffle_buckets
from providers.radix import Int64Array, UInt64Array, radix_order
from providers.rng import LANES, Key, stream_words


@njit(cache=True, nogil=True)
def _fill_buckets(key, identity, bits, first, buckets):
    """The buckets of the elements from `first` on."""
    address = np.zeros((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    words = np.empty(256, np.uint32)
    shift = np.uint32(32 - bits)
    held = np.int64(-1)
    for at in range(len(buckets)):
        element = first + at
        if element >> 8 != held:
            held = element >> 8
            stream_words(key, identity, np.uint32(BUCKET_LEVEL), np.uint32(16 * held), address, block, words)
        buckets[at] = np.int32(words[element & 255] >> shift)


@njit(cache=True, nogil=True)
def _pairs(rows, rate, key, identity):
    address = np.zeros((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    words = np.empty(256, np.uint32)
    return pairs_of(rows, rate, 2, key, identity, words, address, block)


@dataclass(frozen=True)
class BucketRange:
    """Some buckets side by side: a unit of work."""

    first: int
    """The first bucket."""
    sizes: Int64Array
    """Rows of each bucket."""
    start: int
    """Rows of the buckets before: even, so that no pair lies across."""

    @property
    def rows(self) -> int:
        """Rows of all its buckets."""
        return int(self.sizes.sum())


@dataclass(frozen=True)
class LargeGroup:
    """A group of more than `kernels.ONE_BUCKET` rows that takes part in one exchange."""

    rows: int
    identity: int
    key: Key
    rate: float

    @property
    def bits(self) -> int:
        """log2 of the number of buckets."""
        return int(self.rows - 1 >> BUCKET_BITS).bit_length()

    def buckets(self, first: int, count: int) -> npt.NDArray[np.int32]:
        """The buckets of `count` elements from `first` on; elements count from 0 in listing order."""
        buckets = np.empty(count, np.int32)
        _fill_buckets(self.key, np.uint64(self.identity), self.bits, first, buckets)
        return buckets

    def ranges(self, most_rows: int) -> list[BucketRange]:
        """All buckets in ranges of about `most_rows` rows at most: each begins at an even place.

        The last has three rows or more, so that a cycle of three lies within it.
        """
        counts = np.zeros(1 << self.bits, np.int64)
        for first in range(0, self.rows, _AT_ONCE):
            there = self.buckets(first, min(_AT_ONCE, self.rows - first))
            counts += np.bincount(there, minlength=len(counts))
        ends = np.cumsum(counts)
        cuts = [0]
        for bucket in range(1, len(counts)):
            start = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
            full = int(ends[bucket]) - start > most_rows
            if full and ends[bucket - 1] % 2 == 0 and start < ends[bucket - 1] <= self.rows - 3:
                cuts.append(bucket)
        stops = [*cuts[1:], len(counts)]
        return [
            BucketRange(cut, counts[cut:stop], int(ends[cut - 1]) if cut else 0)
            for cut, stop in zip(cuts, stops, strict=True)
        ]

    def pairing(self, part: BucketRange, buckets: npt.NDArray[np.int32]) -> Pairing:
        """The exchange of the rows of a range, which are numbered from 0 in listing order.

        Parameters
        ----------
        part : BucketRange
        buckets : ndarray of int32, shape (rows,)
            Their buckets.
        """
        rows = len(buckets)
        local = (buckets - part.first).astype(np.uint64)
        moved = inverse(radix_order([local]), rows)
        starts = np.array([0, rows], np.int64)
        identities: UInt64Array = np.array([self.identity], np.uint64)
        bucket_starts = np.concatenate(([0], np.cumsum(part.sizes)[:-1])).astype(np.int64)
        shuffled = np.empty(rows, moved.dtype)
        shuffle_buckets(
            starts, np.array([rows], np.int64), identities,
            np.array([-part.first, len(part.sizes)], np.int64), bucket_starts, self.key, shuffled,
        )  # fmt: skip
        every = int(_pairs(self.rows, self.rate, self.key, np.uint64(self.identity)))
        pairs = min(max(every - part.start // 2, 0), rows // 2)
        groups = Groups(rows, None, starts, identities)
        return Pairing(groups, shuffled, np.array([pairs], np.int64), self.rate == 1.0, moved)


_AT_ONCE = 2**20
"""Elements whose buckets are counted at a time."""
