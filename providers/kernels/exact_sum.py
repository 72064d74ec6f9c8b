"""Exact, order-independent float64 sums (Kulisch accumulator).

A sum is one long binary number in 32-bit limbs, wide enough for every float64, and is rounded only when it is
read. Hence a mean is the float64 nearest to the true mean, whatever the order of the terms.

References
----------
Kulisch 2013, Computer Arithmetic and Validity, doi:10.1515/9783110301793: the long accumulator.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt

from providers.kernels.decorators import within
from providers.numba import njit

LIMBS = 69
"""Limbs of a sum, the lowest first: from 2**-1106, below the last bit of any float64, to 2**1102.

A limb is an int64, to which each term adds less than 2**33: a sum may have at most 2**30 - 1 terms.
"""

_LOWEST_BIT = -1106

_LOWEST_KEPT = 32  # bit of 2**-1074, the smallest subnormal number

_MASK = 0xFFFFFFFF


@within
def add_exactly(limbs, bits, sign):
    """Add a finite float64 to a sum, or subtract it.

    Parameters
    ----------
    limbs : int64, shape (LIMBS,)
        The sum; updated.
    bits : int64
        Bits of the float64.
    sign : int64
        1 to add, -1 to subtract.
    """
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent == 0:
        exponent = 1
    else:
        mantissa |= 1 << 52
    if bits < 0:
        sign = -sign
    shift = exponent + 31
    limb = shift >> 5
    shift &= 31
    low = (mantissa & _MASK) << shift
    high = (mantissa >> 32) << shift
    limbs[limb] += sign * (low & _MASK)
    limbs[limb + 1] += sign * ((low >> 32) + (high & _MASK))
    limbs[limb + 2] += sign * (high >> 32)


@within
def nearest_mean(limbs, count):
    """Return the float64 nearest to the sum divided by `count`, ties to even.

    Parameters
    ----------
    limbs : int64, shape (LIMBS,)
        The sum; not modified.
    count : int64
        1 or more.
    """
    # Normalise: every limb to 32 bits.
    digits = np.empty(LIMBS, np.int64)
    carry = np.int64(0)
    for at in range(LIMBS):
        total = limbs[at] + carry
        digits[at] = total & _MASK
        carry = total >> 32
    negative = carry < 0
    if negative:  # two's complement: invert and add one
        carry = np.int64(1)
        for at in range(LIMBS):
            total = (digits[at] ^ _MASK) + carry
            digits[at] = total & _MASK
            carry = total >> 32
    # Long division by the count, from the highest limb.
    rest = np.int64(0)
    top = -1
    for at in range(LIMBS - 1, -1, -1):
        total = (rest << 32) | digits[at]
        digits[at] = total // count
        rest = total % count
        if top < 0 and digits[at]:
            top = at
    if top < 0:
        return 0.0
    highest = 32 * top - 1
    while digits[top] >> (highest + 1 - 32 * top):
        highest += 1
    if highest < _LOWEST_KEPT - 1:  # less than half of the smallest float64
        return 0.0
    # The mantissa has 53 bits, or fewer if the number is subnormal.
    lowest = max(highest - 52, _LOWEST_KEPT)
    limb, shift = lowest >> 5, lowest & 31
    mantissa = digits[limb] >> shift
    if limb + 1 < LIMBS:
        mantissa |= digits[limb + 1] << (32 - shift)
    if shift > 0 and limb + 2 < LIMBS:
        mantissa |= digits[limb + 2] << (64 - shift)
    # Round half to even: the remainder is more than half if any lower bit or the rest is not 0.
    below = lowest - 1
    if (digits[below >> 5] >> (below & 31)) & 1:  # half a step or more
        sticky = rest != 0 or (digits[below >> 5] & ((1 << (below & 31)) - 1)) != 0
        for at in range(below >> 5):
            sticky |= digits[at] != 0
        mantissa += np.int64(sticky or mantissa & 1)
    value = math.ldexp(np.float64(mantissa), lowest + _LOWEST_BIT)
    return -value if negative else value


@njit(cache=True, nogil=True)
def _add_all(bits, limbs):
    """Add numbers to a sum.

    Parameters
    ----------
    bits : int64, shape (n,)
        Bits of finite float64 numbers.
    limbs : int64, shape (LIMBS,)
        The sum; updated.
    """
    for at in range(len(bits)):
        add_exactly(limbs, bits[at], 1)


@njit(cache=True, nogil=True)
def _mean_of_sum(limbs, count):
    """Return the mean of a sum, as `nearest_mean`.

    Parameters
    ----------
    limbs : int64, shape (LIMBS,)
        The sum; not modified.
    count : int64
        Number of terms, 1 or more.
    """
    return nearest_mean(limbs, count)


class ExactSum:
    """Exact sum of finite float64 numbers, up to 2**30 - 1 of them, that are added in any order."""

    def __init__(self) -> None:
        self._limbs = np.zeros(LIMBS, np.int64)
        self._count = 0

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Add finite numbers."""
        _add_all(np.ascontiguousarray(values).view(np.int64), self._limbs)
        self._count += len(values)

    def mean(self) -> float:
        """Return the float64 nearest to the mean of the numbers, one or more."""
        return float(_mean_of_sum(self._limbs, self._count))

    def error_of_mean(self) -> float:
        """Return the true mean of the numbers, one or more, less `mean()`."""
        return float(total_of(self._limbs) / self._count - Fraction(self.mean()))


def total_of(limbs: npt.NDArray[np.int64]) -> Fraction:
    """Return the sum that limbs, of shape (LIMBS,), hold."""
    digits = sum(limb << (32 * at) for at, limb in enumerate(limbs.tolist()))
    return Fraction(digits, 1 << -_LOWEST_BIT)


def exact_total(values: npt.NDArray[np.float64]) -> Fraction:
    """Return the sum of finite numbers, up to 2**30 - 1 of them."""
    limbs = np.zeros(LIMBS, np.int64)
    _add_all(np.ascontiguousarray(values).view(np.int64), limbs)
    return total_of(limbs)


@dataclass(frozen=True, slots=True)
class Standard:
    """Mean and standard deviation of a field, scaled by a power of two so that no square overflows."""

    exponent: int
    """The numbers are multiplied by 2**-exponent, which is exact; all are then below 1."""
    mean: float
    """Mean of the scaled numbers."""
    sd: float
    """Population standard deviation of the scaled numbers from `mean`; 0 if all numbers are equal."""
    bias: float
    """Mean of the standardised numbers: not 0 if they differ so little that the rounding of `mean` counts."""

    @property
    def variance(self) -> float:
        """Population variance of the standardised numbers; 0 if all numbers are equal."""
        return 1.0 - self.bias**2 if self.sd else 0.0

    @classmethod
    def of_fields(
        cls,
        ranges: Sequence[tuple[float, float]],
        batches: Callable[[], Iterable[Sequence[npt.NDArray[np.float64]]]],
    ) -> list[Self]:
        """Return the statistics of several fields of finite numbers, which are read twice together.

        Parameters
        ----------
        ranges : sequence of (float, float)
            Smallest and largest number of each field.
        batches : callable
            Yields the numbers of all fields, batch by batch, in any order.
        """
        exponents = {
            field: math.frexp(max(abs(low), abs(high)))[1]
            for field, (low, high) in enumerate(ranges)
            if low != high
        }
        sums, squares = ({field: ExactSum() for field in exponents} for _ in range(2))
        for columns in batches() if exponents else ():
            for field, exponent in exponents.items():
                sums[field].add(np.ldexp(columns[field], -exponent))
        means = {field: total.mean() for field, total in sums.items()}
        for columns in batches() if exponents else ():
            for field, exponent in exponents.items():
                deviations = np.ldexp(columns[field], -exponent)
                deviations -= means[field]
                deviations *= deviations
                squares[field].add(deviations)
        found = []
        for field, (low, _) in enumerate(ranges):
            if field in exponents:
                sd = math.sqrt(squares[field].mean())
                bias = sums[field].error_of_mean() / sd if sd else 0.0
                found.append(cls(exponents[field], means[field], sd, bias))
            else:
                found.append(cls(0, low, 0.0, 0.0))
        return found

    @classmethod
    def of_values(cls, values: npt.NDArray[np.float64]) -> Self:
        """Return the statistics of finite numbers, one or more."""
        (found,) = cls.of_fields([(float(values.min()), float(values.max()))], lambda: [[values]])
        return found

    def standardised(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return (y - mean) / sd of numbers y of the field; 0 if all are equal."""
        if self.sd == 0.0:
            return np.zeros(len(values))
        deviations = np.ldexp(values, -self.exponent)
        deviations -= self.mean
        deviations /= self.sd
        return np.asarray(deviations)


def standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (y - mean) / sd of the numbers y, with the population's sd; all 0 if the numbers are equal."""
    if not len(values):
        return np.zeros(0)
    return Standard.of_values(values).standardised(values)
