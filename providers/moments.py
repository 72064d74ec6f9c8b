"""Means, standard deviations and correlations of many fields in one pass, in a fixed order of sums.

The rows are cut into blocks of `BLOCK` rows of the source. Of a block those rows that take part are
shifted by the block's own means, and their products summed, row after row; the blocks are then joined
in their order. No sum depends on threads, slices or chunks.

References
----------
Chan, Golub, LeVeque 1983, The American Statistician 37(3), doi:10.2307/2683386: how two parts are joined.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

from providers.provider import Progress
from providers.table import BoolArray

FloatArray = npt.NDArray[np.float64]

BLOCK = 1024
"""Rows of a block: part of the result, since it cuts the sums."""
_VECTOR = 8
_CELLS = 1 << 22
"""Cells that a kernel works on before Python is in control again: some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What is known of the fields of the rows that take part."""

    rows: int
    """Rows that take part."""
    smallest: FloatArray
    """Shape (fields,), like all but `products`; infinite where no row takes part."""
    largest: FloatArray
    mean: FloatArray
    products: FloatArray
    """Sums of products of deviations from the mean; shape (fields, fields)."""

    @property
    def deviation(self) -> FloatArray:
        """Standard deviations, with n - 1."""
        return np.sqrt(np.diag(self.products) / (self.rows - 1))

    def correlation(self, fields: npt.NDArray[np.int64]) -> FloatArray:
        """The correlation matrix of some fields, none of them constant."""
        deviation = self.deviation[fields]
        matrix = self.products[np.ix_(fields, fields)] / (self.rows - 1)
        matrix /= deviation[:, np.newaxis] * deviation
        np.fill_diagonal(matrix, 1.0)
        return matrix


def slices(fields: int, rows: int) -> range:
    """The first rows of slices of bounded work: whole blocks, some for each thread."""
    blocks = max(1, _CELLS // (BLOCK * max(1, fields)))
    threads = get_num_threads()
    return range(0, rows, BLOCK * (-(-blocks // threads) * threads))


@njit(cache=True, nogil=True)
def _fill(values, absent, start, stop, buffer):
    """Copy the rows that are not absent, row by row; returns how many they are."""
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


@njit(cache=True, nogil=True, error_model="numpy")
def _shift(buffer, count, smallest, largest, mean):
    """Find the extremes and means of the first `count` rows, and subtract the means from them."""
    smallest[:] = np.inf
    largest[:] = -np.inf
    mean[:] = 0.0
    for row in range(count):
        mine = buffer[row]
        for field in range(len(mean)):
            smallest[field] = min(smallest[field], mine[field])
            largest[field] = max(largest[field], mine[field])
            mean[field] += mine[field]
    for field in range(len(mean)):
        mean[field] /= count
    for row in range(count):
        mine = buffer[row]
        for field in range(len(mean)):
            mine[field] -= mean[field]


@njit(cache=True, nogil=True)
def _sum_products(buffer, count, products):
    """Sum the products of fields over the first `count` rows, in their order, four at a time.

    The rows after them, up to a multiple of four, are 0. Only where the second field is not after
    the first, and what fills up a vector beside it, are the sums formed.
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


@njit(cache=True, nogil=True, parallel=True)
def _block_moments(values, absent, first, counts, smallest, largest, means, products):
    """Of each block from row `first` on: rows that take part, extremes, means, sums of products.

    `values` float64, shape (fields, rows); `absent` bool, shape (rows,), or of no length for no row;
    the last of `products`' axes is filled up to whole vectors.
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
    """Join blocks, in their order, to the `joined` rows that are there already; their number then."""
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


class MomentsSoFar:
    """Moments of rows that come in pieces: each of whole blocks, but for the last."""

    def __init__(self, fields: int) -> None:
        self._rows = 0
        self._least, self._most = np.full(fields, np.inf), np.full(fields, -np.inf)
        self._mean, self._product = np.zeros(fields), np.zeros((fields, fields))

    def add(self, values: FloatArray, absent: BoolArray | None, progress: Progress) -> None:
        """The next rows (float64, shape (fields, rows)); see `moments`."""
        fields, rows = values.shape
        missing = np.zeros(0, np.bool_) if absent is None else absent
        width = -(-fields // _VECTOR) * _VECTOR
        starts = slices(fields, rows)
        for start in starts:
            progress(start / rows, "fitting")
            blocks = -(-min(starts.step, rows - start) // BLOCK)
            counts = np.zeros(blocks, np.int64)
            smallest, largest, means = np.empty((3, blocks, fields))
            products = np.empty((blocks, fields, width))
            _block_moments(values, missing, start, counts, smallest, largest, means, products)
            self._rows = _join(
                counts, smallest, largest, means, products, self._rows,
                self._least, self._most, self._mean, self._product,
            )  # fmt: skip

    def finish(self) -> Moments:
        """The moments of all rows so far."""
        product = self._product + np.tril(self._product, -1).T
        return Moments(self._rows, self._least, self._most, self._mean, product)


def moments(values: FloatArray, absent: BoolArray | None, progress: Progress) -> Moments:
    """The moments of the fields (float64, shape (fields, rows)) over the rows that are not absent.

    Values below an absent row may be anything. O(fields**2 rows); one pass over the values.
    """
    so_far = MomentsSoFar(len(values))
    so_far.add(values, absent, progress)
    return so_far.finish()
