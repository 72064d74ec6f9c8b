"""Exact, order-independent float64 sums (Kulisch accumulator).

A sum is one long binary number in 32-bit limbs, wide enough for every float64, and is rounded only when it is
read. Hence a mean is the float64 nearest to the true mean, whatever the order of the terms.

References
----------
Kulisch 2013, Computer Arithmetic and Validity, doi:10.1515/9783110301793: the long accumulator.
"""

import math

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
def _mean_of_bits(bits):
    """Return the exact mean of the float64 numbers with these bits (int64, shape (n,)), as `nearest_mean`."""
    limbs = np.zeros(LIMBS, np.int64)
    for at in range(len(bits)):
        add_exactly(limbs, bits[at], 1)
    return nearest_mean(limbs, len(bits))


def exact_mean(values: npt.NDArray[np.float64]) -> float:
    """Return the float64 nearest to the mean of finite numbers, 1 to 2**30 - 1 of them."""
    return float(_mean_of_bits(np.ascontiguousarray(values).view(np.int64)))


def standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (y - mean) / sd of the numbers y, with the population's sd; all 0 if the numbers are equal.

    The numbers are first scaled by a power of two, which is exact, so that no square overflows.
    """
    if not len(values) or values.min() == values.max():
        return np.zeros(len(values))
    _, exponent = np.frexp(np.abs(values).max())
    deviations = np.ldexp(values, -exponent)
    deviations -= exact_mean(deviations)
    return np.asarray(deviations / math.sqrt(exact_mean(deviations * deviations)))
