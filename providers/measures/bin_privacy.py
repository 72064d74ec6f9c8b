"""P: the chance with which an intruder guesses a row's partner in the smallest bin, by Li and Shen.

The intruder knows the method, the table that was published and how a bin is made, but not its width
(MEWS) or depth (MEDS). Each minimal depth N* that some admissible width or depth gives is as likely to
him as another; in a bin of N* rows a row's own values are those of one of N* - 1 others. With q
different minimal depths,

    P = (1 / q) sum over them of 1 / (N* - 1).

`p_of_depths` is this sum, and `p_meds` the same for the depths that MEDS can have.
`p_mews_binormal` is the paper's estimate for a standard binormal sample: minimal depths 2, 3, ... up to
the count of rows expected in the corner of the square, and the sum of 1 / (N* - 1) by its logarithm,
ln(q) / q.

References
----------
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
pp. 208-215: eqs. 1 to 3 and Table 1, in the reading above.
"""

import math
from collections.abc import Iterable

import numpy as np

from providers.measures.measure import Measure

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_EXACT = 2**16  # rows up to which the sum is taken term by term
_EULER = 0.57721566490153286061
_CORNER = 2.0  # Table 1: the square ends at two standard deviations


def p_of_depths(minimal_depths: Iterable[int]) -> float | None:
    """P for these minimal depths, each counted once; None of none.

    Parameters
    ----------
    minimal_depths : ints, 2 or more
    """
    depths = set(minimal_depths)
    if not depths:
        return None
    return math.fsum(1.0 / (depth - 1) for depth in depths) / len(depths)


def p_meds(rows: int) -> float | None:
    """P of a table under MEDS: the depth k is one of 2, 3, ..., rows / 2, and every bin holds k rows.

    None where no table of so few rows can be cut in two.
    """
    if rows <= _EXACT:
        return p_of_depths(range(2, rows // 2 + 1))
    count = rows // 2 - 1
    harmonic = math.log(count) + _EULER + 1 / (2 * count) - 1 / (12 * count**2)  # to 1e-19
    return harmonic / count


def p_mews_binormal(rows: int, rho: float, widest: float) -> float | None:
    """P of a standard binormal sample, as in Table 1; None where less than one row is expected.

    Parameters
    ----------
    rows : int
    rho : float
        Correlation, over -1 and below 1.
    widest : float
        The widest cell that the intruder holds possible, in standard deviations.

    Notes
    -----
    ln(q) / q with q = floor(rows * integral of the binormal density over [2 - widest, 2] squared).
    """
    count = math.floor(rows * binormal_square(_CORNER - widest, _CORNER, rho))
    return math.log(count) / count if count else None


def binormal_square(low: float, high: float, rho: float) -> float:
    """Probability that both of two standard normals with correlation `rho` lie in [low, high].

    The inner integral by the error function, the outer by Gauss and Legendre on panels no wider than
    half the inner one's own scale, sqrt(1 - rho^2).
    """
    spread = math.sqrt(1.0 - rho * rho)
    panels = max(1, math.ceil(2.0 * (high - low) / spread))
    edges = np.linspace(low, high, panels + 1)
    half = (high - low) / (2 * panels)
    total = 0.0
    for middle in (edges[1:] + edges[:-1]) / 2:
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = middle + half * node
            inner = _normal_below((high - rho * x) / spread) - _normal_below((low - rho * x) / spread)
            total += weight * half * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * inner
    return float(total)


def _normal_below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2.0)) / 2.0


P_PRIVACY = Measure(
    key="p_privacy",
    title="P",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="(1 / q) sum of 1 / (N* - 1) over the q different minimal depths N* of admissible partitionings",
    source="Li and Shen 2010, PAKDD, LNAI 6118, pp. 208-215, eqs. 1 to 3",
    cost="MEWS: O(n) for each of 16 to 64 partitionings, left out beyond 2^18 values; MEDS: O(1)",
    compute=p_of_depths,
)
