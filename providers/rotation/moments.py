"""Means, deviations and correlations in one pass, order-independent.

The source is cut into blocks of `BLOCK` rows. The rows of a block that take part are centred on the block's
own means, and their products are summed row by row; the blocks are then joined in their order. No sum
depends on threads, slices or chunks.

References
----------
Chan, Golub, LeVeque 1983, The American Statistician 37(3), doi:10.2307/2683386: moments of two sets joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.kernels.decorators import within, within_ieee
from providers.kernels.parallel import parallel
from providers.numba import get_num_threads, njit, prange
from providers.progress import Progress

BLOCK = 1024
"""Rows of a block. It determines the order of summation, so that changing it changes results."""

_VECTOR = 8
"""Number of float64 values in a vector register, to which rows of products are padded."""

_CELLS = 1 << 22
"""Number of cells that one call of a kernel processes: some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Extremes, means and products of the fields, over the rows that take part."""

    rows: int
    """Number of rows that take part."""
    smallest: Float64Array
    """Smallest value of each field, shape (fields,); inf if no row takes part."""
    largest: Float64Array
    """Largest value of each field, shape (fields,); -inf if no row takes part."""
    mean: Float64Array
    """Mean of each field, shape (fields,)."""
    products: Float64Array
    """Sums of products of deviations from the mean; shape (fields, fields)."""

    @property
    def deviation(self) -> Float64Array:
        """Standard deviations, with divisor n - 1."""
        return np.sqrt(np.diag(self.products) / (self.rows - 1))

    def correlation(self, fields: npt.NDArray[np.int64]) -> Float64Array:
        """Return the correlation matrix of some fields, given by index, none of them constant."""
        deviation = self.deviation[fields]
        matrix = self.products[np.ix_(fields, fields)] / (self.rows - 1)
        matrix /= deviation[:, np.newaxis] * deviation
        np.fill_diagonal(matrix, 1.0)
        return matrix


def slices(fields: int, rows: int) -> range:
    """Return the first rows of slices of bounded work: whole blocks, the same number for each thread."""
    blocks = max(1, _CELLS // (BLOCK * max(1, fields)))
    threads = get_num_threads()
    return range(0, rows, BLOCK * (-(-blocks // threads) * threads))


@njit(cache=True, nogil=True)
def _fill(values, absent, start, stop, buffer):
    """Copy the rows that take part, row by row; return their number.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
    absent : ndarray of bool, shape (rows,) or (0,)
        Rows to skip; of length 0 for none.
    start, stop : int
        Range of rows.
    buffer : ndarray of float64, shape (BLOCK, at least fields)
        Written.
    """
    fields = len(values)
    if len(absent) == 0:
        for field in range(fields):
            for row in range(start, stop):
                buffer[row - start, field] = values[field, row]
        return stop - start
    count = 0
    for row in range(start, stop):
        if not absent[row]:
            for field in range(fields):
                buffer[count, field] = values[field, row]
            count += 1
    return count


@within_ieee
def _shift(buffer, count, smallest, largest, mean):
    """Find the extremes and means of the first `count` rows, and subtract the means from these rows.

    Parameters
    ----------
    buffer : ndarray of float64, shape (BLOCK, at least fields)
        Changed in place.
    count : int
    smallest, largest, mean : ndarrays of float64, shape (fields,)
        Written.
    """
    smallest[:] = np.inf
    largest[:] = -np.inf
    mean[:] = 0.0
    for row in range(count):
        row_values = buffer[row]
        for field in range(len(mean)):
            smallest[field] = min(smallest[field], row_values[field])
            largest[field] = max(largest[field], row_values[field])
            mean[field] += row_values[field]
    for field in range(len(mean)):
        mean[field] /= count
    for row in range(count):
        row_values = buffer[row]
        for field in range(len(mean)):
            row_values[field] -= mean[field]


@within
def _sum_products(buffer, count, products):
    """Sum the products of pairs of fields over the first `count` rows, in their order, four at a time.

    Only the lower triangle is computed, padded to whole vectors.

    Parameters
    ----------
    buffer : ndarray of float64, shape (BLOCK, padded fields)
        Rows from `count` up to a multiple of four are 0.
    count : int
    products : ndarray of float64, shape (fields, padded fields)
        Written.
    """
    products[:] = 0.0
    for row in range(0, count, 4):
        one, two, three, four = buffer[row], buffer[row + 1], buffer[row + 2], buffer[row + 3]
        for field in range(len(products)):
            sums = products[field]
            a, b, c, d = one[field], two[field], three[field], four[field]
            for other in range((field // _VECTOR + 1) * _VECTOR):
                total = sums[other] + a * one[other] + b * two[other]
                sums[other] = total + c * three[other] + d * four[other]


@parallel
def _block_moments(values, absent, first, counts, smallest, largest, means, products):
    """Compute the moments of each block from row `first` on.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
    absent : ndarray of bool, shape (rows,) or (0,)
        Rows that take no part; of length 0 for none.
    first : int
        First row of the first block.
    counts : ndarray of int64, shape (blocks,)
        Number of rows that take part. Written.
    smallest, largest, means : ndarrays of float64, shape (blocks, fields)
        Written.
    products : ndarray of float64, shape (blocks, fields, padded fields)
        Lower triangle of the sums of products, padded to whole vectors. Written.
    """
    rows = values.shape[1]
    for block in prange(len(counts)):
        start = first + block * BLOCK
        buffer = np.zeros((BLOCK, products.shape[2]))
        count = _fill(values, absent, start, min(start + BLOCK, rows), buffer)
        if count > 0:
            _shift(buffer, count, smallest[block], largest[block], means[block])
            _sum_products(buffer, count, products[block])
        counts[block] = count


@njit(cache=True, nogil=True, error_model="numpy")
def _join(counts, smallest, largest, means, products, joined, least, most, mean, product):
    """Join the moments of blocks, in their order, to those of earlier rows; return the number of rows.

    Parameters
    ----------
    counts, smallest, largest, means, products
        Moments of the blocks; see `_block_moments`.
    joined : int
        Number of earlier rows.
    least, most, mean : ndarrays of float64, shape (fields,)
        Moments of the earlier rows. Updated.
    product : ndarray of float64, shape (fields, fields)
        Lower triangle, likewise. Updated.
    """
    fields = len(mean)
    shift = np.empty(fields)
    for block in range(len(counts)):
        if counts[block] == 0:
            continue
        count, before = np.float64(counts[block]), np.float64(joined)
        joined += counts[block]
        for field in range(fields):
            least[field] = min(least[field], smallest[block, field])
            most[field] = max(most[field], largest[block, field])
            shift[field] = means[block, field] - mean[field]
            mean[field] += shift[field] * (count / joined)
        weight = before * (count / joined)
        for field in range(fields):
            for other in range(field + 1):
                product[field, other] += products[block, field, other] + shift[field] * shift[other] * weight
    return joined


@dataclass(frozen=True, slots=True)
class BlockMoments:
    """Moments of consecutive blocks of rows."""

    counts: Int64Array
    """Number of rows that take part, shape (blocks,)."""
    extremes: Float64Array
    """Smallest values, largest values and means of the fields, shape (3, blocks, fields)."""
    products: Float64Array
    """Lower triangle of the sums of products, padded to whole vectors, shape (blocks, fields, padded)."""

    def packed(self) -> Float64Array:
        """Return a row of numbers for each block, without what is padded."""
        blocks, fields, _ = self.products.shape
        lower = self.products[:, *np.tril_indices(fields)]
        extremes = self.extremes.transpose(1, 0, 2).reshape(blocks, 3 * fields)
        return np.hstack([self.counts[:, np.newaxis].astype(np.float64), extremes, lower])

    @classmethod
    def unpacked(cls, packed: Float64Array, fields: int) -> BlockMoments:
        """Return the moments that `packed` has made rows of numbers, float64, shape (blocks, any)."""
        blocks = len(packed)
        counts = packed[:, 0].astype(np.int64)
        extremes = packed[:, 1 : 1 + 3 * fields].reshape(blocks, 3, fields).transpose(1, 0, 2)
        products = np.zeros((blocks, fields, _padded(fields)))
        products[:, *np.tril_indices(fields)] = packed[:, 1 + 3 * fields :]
        return cls(counts, extremes.copy(), products)  # kernels are compiled for arrays that can be written


def block_moments(
    values: Float64Array, absent: BoolArray | None, progress: Progress
) -> Iterator[BlockMoments]:
    """Compute the moments of the blocks of some rows, several blocks at a time; see `moments`."""
    fields, rows = values.shape
    missing = np.zeros(0, np.bool_) if absent is None else absent
    starts = slices(fields, rows)
    for start in starts:
        progress(start / rows, "fitting")
        blocks = -(-min(starts.step, rows - start) // BLOCK)
        counts, extremes = np.zeros(blocks, np.int64), np.empty((3, blocks, fields))
        products = np.empty((blocks, fields, _padded(fields)))
        _block_moments(values, missing, start, counts, *extremes, products)
        yield BlockMoments(counts, extremes, products)


def _padded(fields: int) -> int:
    """Return the number of fields that fill whole vectors."""
    return -(-fields // _VECTOR) * _VECTOR


class MomentsSoFar:
    """Moments of rows that come in batches of whole blocks; only the last batch may be shorter."""

    def __init__(self, fields: int) -> None:
        self._rows = 0
        self._least, self._most = np.full(fields, np.inf), np.full(fields, -np.inf)
        self._mean, self._product = np.zeros(fields), np.zeros((fields, fields))

    def add(self, values: Float64Array, absent: BoolArray | None, progress: Progress) -> None:
        """Add the next rows (float64, shape (fields, rows)); see `moments`."""
        for blocks in block_moments(values, absent, progress):
            self.join(blocks)

    def join(self, blocks: BlockMoments) -> None:
        """Add the moments of the next blocks."""
        self._rows = _join(
            blocks.counts, *blocks.extremes, blocks.products, self._rows,
            self._least, self._most, self._mean, self._product,
        )  # fmt: skip

    def finish(self) -> Moments:
        """Return the moments of all rows added."""
        product = self._product + np.tril(self._product, -1).T
        return Moments(self._rows, self._least, self._most, self._mean, product)


def moments(values: Float64Array, absent: BoolArray | None, progress: Progress) -> Moments:
    """Compute the moments of the fields over the rows that take part.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
        Values of absent rows are ignored.
    absent : ndarray of bool, shape (rows,), or None
        Mask of the rows that take no part.
    progress : Progress

    Notes
    -----
    O(fields**2 rows); one pass over the values.
    """
    so_far = MomentsSoFar(len(values))
    so_far.add(values, absent, progress)
    return so_far.finish()
