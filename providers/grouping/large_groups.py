"""Random order of one large group, one range of buckets at a time.

A group of more than `shuffle.ONE_BUCKET` rows is ordered by random buckets: word e of a stream names the
bucket of element e, and each bucket is shuffled separately. Therefore the exchange within adjacent buckets
can be computed from the rows of these buckets alone.

References
----------
Rao 1961, Sankhya A 23; Sandelius 1962, J. R. Stat. Soc. B 24: a uniform order by random buckets.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.arrays import Int64Array, UInt64Array
from providers.grouping.groups import Groups, Pairing, inverse
from providers.grouping.shuffle import BUCKET_BITS, BUCKET_LEVEL, rows_taking_part, shuffle_buckets
from providers.kernels.radix_sort import radix_order
from providers.numba import njit
from providers.randomness.chacha20 import LANES, Key, stream_words


@njit(cache=True, nogil=True)
def _fill_buckets(key, identity, bits, first, buckets):
    """Draw the bucket of each element from `first` on.

    Parameters
    ----------
    key : uint32, shape (8,)
    identity : uint64
    bits : int64
        log2 of the number of buckets.
    first : int64
    buckets : int32, shape (n,)
        Receives the buckets.
    """
    address = np.empty((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    words = np.empty(256, np.uint32)
    shift = np.uint32(32 - bits)
    buffered = np.int64(-1)  # number of the 256 words in the buffer
    for index in range(len(buckets)):
        element = first + index
        if element >> 8 != buffered:
            buffered = element >> 8
            first_block = np.uint32(16 * buffered)
            stream_words(key, identity, np.uint32(BUCKET_LEVEL), first_block, address, block, words)
        buckets[index] = np.int32(words[element & 255] >> shift)


@njit(cache=True, nogil=True)
def _rows_taking_part(rows, rate, key, identity):
    """Return the number of rows of a group that take part; see `shuffle.rows_taking_part`.

    Parameters
    ----------
    rows : int64
        Number of rows of the group.
    rate : float64
    key : uint32, shape (8,)
    identity : uint64
    """
    address = np.empty((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    words = np.empty(256, np.uint32)
    return rows_taking_part(rows, rate, 2, key, identity, words, address, block)


@dataclass(frozen=True)
class BucketRange:
    """Adjacent buckets, a unit of work."""

    first: int
    """First bucket."""
    sizes: Int64Array
    """Number of rows of each bucket."""
    start: int
    """Number of rows in all earlier buckets; even, so that no pair crosses the border."""

    @property
    def rows(self) -> int:
        """Number of rows in the range."""
        return int(self.sizes.sum())


@dataclass(frozen=True)
class LargeGroup:
    """Group of more than `shuffle.ONE_BUCKET` rows in one exchange."""

    rows: int
    identity: int
    key: Key
    rate: float

    @property
    def bits(self) -> int:
        """log2 of the number of buckets."""
        return int(self.rows - 1 >> BUCKET_BITS).bit_length()

    def buckets(self, first: int, count: int) -> npt.NDArray[np.int32]:
        """Draw the buckets of `count` elements from `first` on; elements are numbered in listing order."""
        buckets = np.empty(count, np.int32)
        _fill_buckets(self.key, np.uint64(self.identity), self.bits, first, buckets)
        return buckets

    def bucket_sizes(self) -> Int64Array:
        """Count the rows of each bucket; shape (buckets,)."""
        counts = np.zeros(1 << self.bits, np.int64)
        for first in range(0, self.rows, _ELEMENTS_PER_STEP):
            drawn = self.buckets(first, min(_ELEMENTS_PER_STEP, self.rows - first))
            counts += np.bincount(drawn, minlength=len(counts))
        return counts

    def ranges(self, most_rows: int) -> list[BucketRange]:
        """Divide the buckets into ranges of at most about `most_rows` rows, each beginning at an even place.

        The last range has 3 rows or more, so that it contains a cycle of three.
        """
        counts = self.bucket_sizes()
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
        """Return the exchange of the rows of a range, numbered from 0 in listing order.

        Parameters
        ----------
        part : BucketRange
        buckets : ndarray of int32, shape (rows,)
            Bucket of each row.
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
        all_taking_part = int(_rows_taking_part(self.rows, self.rate, self.key, np.uint64(self.identity)))
        # Ranges start at even places. Hence the number is odd only in the last range, of which all rows move.
        took_part = min(max(all_taking_part - part.start, 0), rows)
        groups = Groups(rows, None, starts, identities)
        return Pairing(groups, shuffled, np.array([took_part], np.int64), moved)


_ELEMENTS_PER_STEP = 2**20
"""Elements whose buckets are counted together."""
