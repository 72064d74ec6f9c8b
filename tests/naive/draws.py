"""Uniform and normal numbers made of two words, in plain Python."""

import math

A = [3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
     45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727]  # fmt: skip
B = [1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077,
     21213.794301586595867, 39307.895800092710610, 28729.085735721942674, 5226.4952788528545610]  # fmt: skip
C = [1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
     1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833,
     0.000774545014278341407640]  # fmt: skip
D = [1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550,
     0.148103976427480074590, 0.0151986665636164571966, 0.000547593808499534494600,
     0.00000000105075007164441684324]  # fmt: skip
E = [6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
     0.0265321895265761230930, 0.00124266094738807843860, 0.0000271155556874348757815,
     0.000000201033439929228813265]  # fmt: skip
F = [1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525,
     0.000786869131145613259100, 0.0000184631831751005468180, 0.000000142151175831644588870,
     0.00000000000000204426310338993978564]  # fmt: skip
"""Coefficients of Wichura 1988, algorithm AS 241, PPND16."""


def bits_of(high: int, low: int) -> int:
    """Return the upper 53 of 64 bits."""
    return (high << 32 | low) >> 11


def uniform(high: int, low: int) -> float:
    """Return a multiple of 2**-53 in [0, 1)."""
    return bits_of(high, low) * 2.0**-53


def polynomial(coefficients: list[float], x: float) -> float:
    """Return c0 + c1 x + c2 x^2 + ... by Horner's scheme."""
    value = 0.0
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def logarithm(x: float) -> float:
    """Return log x from x = m 2^e, sqrt(1/2) <= m < sqrt(2): 2 artanh((m - 1) / (m + 1)) up to power 19."""
    m, e = math.frexp(x)
    if m < math.sqrt(0.5):
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    return e * math.log(2) + 2 * s * polynomial([1 / power for power in range(1, 20, 2)], s * s)


def normal(high: int, low: int) -> float:
    """Return the normal quantile of p = (k + 1/2) / 2^53."""
    doubled = 2 * bits_of(high, low) + 1 - 2**53  # 2^54 (p - 1/2)
    q = doubled * 2.0**-54
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * polynomial(A, r) / polynomial(B, r)
    r = math.sqrt(-logarithm((2**53 - abs(doubled)) * 2.0**-54))
    if r <= 5:
        value = polynomial(C, r - 1.6) / polynomial(D, r - 1.6)
    else:
        value = polynomial(E, r - 5) / polynomial(F, r - 5)
    return math.copysign(value, q)
