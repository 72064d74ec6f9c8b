"""Values of the numeric fields that define bins: conversion, range, standard deviation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Float64Array
from providers.errors import SourceError
from providers.kernels.parallel import parallel
from providers.numba import get_num_threads, prange
from providers.tables.columns import combined, words_of
from providers.tables.numbers import float_values
from providers.tables.type_names import value_type

# ------------------------------------------------------------------------------- conversion and range


@dataclass(frozen=True, slots=True)
class FieldValues:
    """One numeric field of the rows that are put into bins."""

    name: str
    values: Float64Array
    """Finite, read-only, shape (rows,); wider types are rounded. Empty if only the range is known."""
    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    step: float = 0.0
    """Difference of two adjacent values of the field's type, in which values may have more digits than in
    float64; 0 for floats."""


@parallel
def _scan(values, lows, highs, unusable):
    """Find the smallest and the largest finite value of each chunk, and count the other values.

    Parameters
    ----------
    values : ndarray of float64, shape (rows,)
    lows, highs : ndarrays of float64, shape (chunks,)
        Written.
    unusable : ndarray of int64, shape (chunks,)
        Number of NaN and infinite values. Written.
    """
    chunks = len(lows)
    for chunk in prange(chunks):
        low, high = np.inf, -np.inf
        bad = 0
        for row in range(len(values) * chunk // chunks, len(values) * (chunk + 1) // chunks):
            value = values[row]
            if abs(value) < np.inf:
                low = min(low, value)
                high = max(high, value)
            else:
                bad += 1
        lows[chunk] = low
        highs[chunk] = high
        unusable[chunk] = bad


def extent(values: Float64Array) -> tuple[float, float, int]:
    """Return the smallest and largest finite value (inf and -inf if none is), and the number of others."""
    if len(values):  # numpy's two passes take half of the time of `_scan`, which few fields need
        low, high = float(values.min()), float(values.max())  # NaN if one is NaN
        if -math.inf < low and high < math.inf:
            return low + 0.0, high + 0.0, 0  # + 0.0: never -0.0
    chunks = get_num_threads() if len(values) > 65536 else 1
    lows, highs, unusable = np.empty(chunks), np.empty(chunks), np.empty(chunks, np.int64)
    _scan(values, lows, highs, unusable)
    return float(lows.min()) + 0.0, float(highs.max()) + 0.0, int(unusable.sum())


def numbers_of(column: pa.ChunkedArray) -> Float64Array:
    """Return a column's values as read-only float64; no copy if they are float64 without nulls."""
    if column.type == pa.float64() and column.null_count == 0:
        return words_of(combined(column)).view(np.float64)
    return read_only(float_values(column))


def step_of(kind: pa.DataType) -> float:
    """Return the `step` of fields of a numeric type: 1 for integers, 0.01 for decimals of scale 2."""
    kind = value_type(kind)
    if pa.types.is_decimal(kind):
        return float(10.0**-kind.scale)
    return 1.0 if pa.types.is_integer(kind) else 0.0


def read_only(values: Float64Array) -> Float64Array:
    """Return the same array, read-only like Arrow's, so that one compiled kernel serves both."""
    values.flags.writeable = False
    return values


def unusable_values(name: str, count: int) -> SourceError:
    """Return the error for a field that holds `count` values that are null or not finite."""
    return SourceError(
        f"field '{name}' holds {count} value{'s' if count != 1 else ''} that "
        f"{'are' if count != 1 else 'is'} null, NaN or infinite; fill them in, remove these rows, or set "
        "'nulls' to 'keep' so that these rows take no part"
    )


# ------------------------------------------------------------------------------------------- spread

SUMMED = 1024
"""Number of values summed one after the other; fixed, so that no sum depends on the threads."""


@parallel
def _sums(values, low, span, centre, squared, sums):
    """Sum ``(x - low) / span - centre``, or its square, over blocks of `SUMMED` rows.

    Parameters
    ----------
    values : ndarray of float64, shape (rows,)
    low, span, centre : float
    squared : bool
        Whether squares are summed.
    sums : ndarray of float64, shape (blocks,)
        Written.
    """
    for block in prange(len(sums)):
        total = 0.0
        for row in range(block * SUMMED, min(len(values), (block + 1) * SUMMED)):
            term = (values[row] - low) / span - centre
            total += term * term if squared else term
        sums[block] = total


def _total(batches: Iterable[Float64Array], field: FieldValues, centre: float, squared: bool) -> float:
    """Sum over all batches: the blocks' sums are added exactly."""
    sums = []
    for values in batches:
        block_sums: npt.NDArray[np.float64] = np.empty(-(-len(values) // SUMMED))
        _sums(values, field.low, field.high - field.low, centre, squared, block_sums)
        sums.append(block_sums)
    return math.fsum(itertools.chain.from_iterable(sums))


def standard_deviation(
    field: FieldValues, count: int, batches: Callable[[], Iterable[Float64Array]]
) -> float:
    """Population standard deviation of a field that is not constant.

    Values are scaled to [0, 1], so that no square overflows. They are summed in blocks of 1024 in the order
    of the rows; the sums of the blocks are added exactly.

    Parameters
    ----------
    field : FieldValues
        Only the range is used.
    count : int
        Number of rows.
    batches : callable
        Returns the values in the order of the rows, read-only, in batches. All but the last batch hold a
        multiple of `SUMMED` values. Called twice.
    """
    mean = _total(batches(), field, 0.0, squared=False) / count
    variance = _total(batches(), field, mean, squared=True) / count
    return math.sqrt(variance) * (field.high - field.low)
