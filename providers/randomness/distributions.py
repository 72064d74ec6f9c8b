"""Uniform and normal numbers from random words.

Draw d of a stream is made of its words 2d and 2d + 1 (`chacha20`), whatever was drawn before it. Only
additions, multiplications, divisions and square roots are used, each rounded separately. Hence every
platform that follows IEEE 754 computes the same bits; for this reason the logarithm is a series, not a
library function.

References
----------
Wichura 1988, Applied Statistics 37(3), doi:10.2307/2347330: algorithm AS 241, PPND16.
"""

import math
from typing import Any

import numpy as np

from providers.kernels.decorators import within, within_ieee
from providers.numba import intrinsic, ir, njit, types
from providers.randomness.chacha20 import LANES, chacha20_blocks

# --------------------------------------------------------------------------------------- uniform


@njit(cache=True, nogil=True)
def uniform(high, low):
    """Return the float64 in [0, 1) made of 53 bits of two words: a multiple of 2**-53.

    `high` and `low` (uint32) are the words: all bits of `high` precede the upper 21 bits of `low`.
    """
    bits = np.uint64(high) << np.uint64(21) | np.uint64(low) >> np.uint64(11)
    return np.float64(bits) * 2.0**-53


@within
def _centred(high, low):
    """Return (k + 1/2) / 2**53 - 1/2 for the 53 bits k of two words: in (-1/2, 1/2), exact, never 0.

    `high` and `low` (uint32) are the words, as for `uniform`.
    """
    above = np.float64(np.int32(high ^ np.uint32(0x80000000))) * 2.0**21
    return (above + (np.float64(np.int32(low >> np.uint32(11))) + 0.5)) * 2.0**-53


# ---------------------------------------------------------------------------------------- normal

_CENTRAL = 0.425
"""Largest abs(q) of the first of the three rational functions; 85 % of the draws."""

_FAR = 5.0
"""Largest r of the second function; all draws except 3 in 10**11."""

_A = (
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
    4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
)  # fmt: skip

_B = (
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
    2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
)  # fmt: skip

_C = (
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
    1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2,
    7.74545014278341407640e-4,
)  # fmt: skip

_D = (
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)  # fmt: skip

_E = (
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5,
    2.01033439929228813265e-7,
)  # fmt: skip

_F = (
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)  # fmt: skip


@within_ieee
def _horner(c, x):
    """Return c[0] + c[1] x + ... + c[7] x**7 for eight coefficients c and x, float64, by Horner's scheme."""
    value = ((c[7] * x + c[6]) * x + c[5]) * x + c[4]
    return (((value * x + c[3]) * x + c[2]) * x + c[1]) * x + c[0]


@intrinsic
def _bits_of(typingctx: Any, value: Any) -> Any:
    """Return the bits of `value` (float64) as a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), codegen


@intrinsic
def _float_of(typingctx: Any, bits: Any) -> Any:
    """Return the float64 with these `bits` (uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


_borrowing = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)  # see providers.kernels.decorators

_SQRT_HALF = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2)

_UP_TO_ONE = 0x3FF0000000000000 - _SQRT_HALF

_MANTISSA = 2**52 - 1

_LN2 = math.log(2.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _logarithm(x):
    """Return the natural logarithm of a normal float64 x = m 2**e > 0, sqrt(1/2) <= m < sqrt(2).

    log m = 2 (s + s**3 / 3 + ... + s**19 / 19) with s = (m - 1) / (m + 1). The relative truncation error of
    log m is below 2**-55.
    """
    bits = _bits_of(x) + np.uint64(_UP_TO_ONE)
    exponent = np.float64(np.int32(bits >> np.uint64(52)) - np.int32(1023))
    m = _float_of((bits & np.uint64(_MANTISSA)) + np.uint64(_SQRT_HALF))
    s = (m - 1.0) / (m + 1.0)
    w = s * s
    series = ((w * (1 / 19) + 1 / 17) * w + 1 / 15) * w + 1 / 13
    series = (((series * w + 1 / 11) * w + 1 / 9) * w + 1 / 7) * w + 1 / 5
    return exponent * _LN2 + 2.0 * s * ((series * w + 1 / 3) * w + 1.0)


@within_ieee
def _normal_centre(q):
    """Return the normal quantile of 1/2 + q for a float64 q with abs(q) <= 0.425 (AS 241)."""
    r = 0.180625 - q * q
    return q * _horner(_A, r) / _horner(_B, r)


@within_ieee
def _normal_tail(r):
    """Return the absolute normal quantile of a tail p, for the float64 r = sqrt(-log p) <= 5 (AS 241)."""
    return _horner(_C, r - 1.6) / _horner(_D, r - 1.6)


@within_ieee
def _normal_far_tail(r):
    """Return the absolute normal quantile of a tail p, for a float64 r > 5, that is p < 1.4e-11 (AS 241)."""
    return _horner(_E, r - 5.0) / _horner(_F, r - 5.0)


@_borrowing
def _put_tails(tail):
    """Replace each r in `tail` (float64, shape (draws,)) by its quantile, in place; r > 5 is very rare."""
    farthest = 0.0
    for nth in range(len(tail)):
        farthest = max(farthest, tail[nth])
    if farthest <= _FAR:
        for nth in range(len(tail)):
            tail[nth] = _normal_tail(tail[nth])
    else:
        for nth in range(len(tail)):
            tail[nth] = _normal_tail(tail[nth]) if tail[nth] <= _FAR else _normal_far_tail(tail[nth])


PIECE = 8 * LANES
"""Draws in one call of the generator."""


@njit(cache=True, nogil=True, error_model="numpy")
def normals(key, identity, level, first, out):
    """Write the standard normal draws `first`, `first` + 1, ... of the stream (identity, level).

    Parameters
    ----------
    key : uint32, shape (8,)
    identity : uint64
    level : uint32
    first : int
        A multiple of 8, at which a block of the stream begins.
    out : float64, shape (draws,)
        Receives the draws.

    Notes
    -----
    Draw d is the normal quantile of p = (k + 1/2) / 2**53 for the 53 bits k of words 2d and 2d + 1. It is
    finite, at most 8.3 in size, and the draw of 2**53 - 1 - k is its negative. The central function is
    computed for all draws of a piece, and the tail functions only for those in the tail, both
    vectorised.
    """
    normals_in(room_for_normals(), key, identity, level, first, out)


@within_ieee
def room_for_normals():
    """Allocate the scratch space of `normals_in`."""
    address = np.empty((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    centred = np.empty(PIECE)
    value = np.empty(PIECE)
    where = np.empty(PIECE, np.int64)  # indices of the draws in the tail
    tail = np.empty(PIECE)
    return address, block, centred, value, where, tail


@_borrowing
def normals_in(room, key, identity, level, first, out):
    """Write normal draws like `normals`, without allocating memory.

    `room` is scratch space, the tuple of arrays that `room_for_normals` returns, and is reusable. `key`,
    `identity`, `level`, `first` and `out` are as in `normals`; `out` is written.
    """
    address, block, centred, value, where, tail = room
    for lane in range(LANES):
        address[1, lane] = np.uint32(identity & np.uint64(0xFFFFFFFF))
        address[2, lane] = np.uint32(identity >> np.uint64(32))
        address[3, lane] = np.uint32(level)
    for start in range(0, len(out), PIECE):
        for lane in range(LANES):
            address[0, lane] = np.uint32((first + start) // 8 + lane)
        chacha20_blocks(key, address, block)
        for pair in range(8):  # draw 8 lane + pair is stored at 16 pair + lane
            for lane in range(LANES):
                centred[LANES * pair + lane] = _centred(block[2 * pair, lane], block[2 * pair + 1, lane])
        for at in range(PIECE):
            value[at] = _normal_centre(centred[at])
        count = 0
        for at in range(PIECE):
            where[count] = at
            count += abs(centred[at]) > _CENTRAL
        for nth in range(count):
            tail[nth] = math.sqrt(-_logarithm(0.5 - abs(centred[where[nth]])))
        _put_tails(tail[:count])
        for nth in range(count):
            value[where[nth]] = math.copysign(tail[nth], centred[where[nth]])
        if start + PIECE <= len(out):
            for lane in range(LANES):
                for pair in range(8):
                    out[start + 8 * lane + pair] = value[LANES * pair + lane]
        else:
            for at in range(start, len(out)):
                out[at] = value[LANES * ((at - start) % 8) + (at - start) // 8]
