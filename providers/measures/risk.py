"""Risk measures that follow from a swap's own figures."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from providers.measures.measure import Measure


def changed_share(changed: Mapping[str, int], rows: int) -> dict[str, float]:
    """For each swap field the share of the rows whose value differs from the source's; 0 of no rows."""
    return {field: count / rows if rows else 0.0 for field, count in changed.items()}


CHANGED_SHARE = Measure(
    key="changed_share",
    title="Changed share",
    concerns="risk",
    goal="high",
    range="0 to 1",
    formula="#{i : x_i != y_i} / n, for each swap field",
    source="Optim data privacy providers 11.3, Data Swapping: equal values exchanged protect nobody",
    cost="O(n)",
    compute=changed_share,
)


def matching_bits(group_sizes: npt.ArrayLike, rate: float) -> float:
    """log2 of the number of ways in which groups can be exchanged.

    Parameters
    ----------
    group_sizes : ints, shape (groups,)
        Rows of each group that is swapped.
    rate : float
        Share of the rows that take part.

    Notes
    -----
    The sum over the groups of log2 of the number of outcomes of a group of m rows:

    - rate 1, m even: m! / (2^(m/2) (m/2)!), the perfect matchings;
    - rate 1, m odd: m! / (2^((m-3)/2) ((m-3)/2)! 3): a cycle of three, which has two directions,
      and a matching of the rest;
    - rate below 1: m! / ((m - 2p)! 2^p p!) ways to choose p pairs, p = floor(rate m / 2), the lesser
      of the two numbers of pairs that can be drawn.
    """
    sizes = np.asarray(group_sizes, np.int64)
    small = np.bincount(sizes[sizes < _FEW])
    large, groups = np.unique(sizes[sizes >= _FEW], return_counts=True)
    counts = [*enumerate(small.tolist()), *zip(large.tolist(), groups.tolist(), strict=True)]
    return matching_bits_of_counts(dict(counts), rate)


def matching_bits_of_counts(counts: Mapping[int, int], rate: float) -> float:
    """The same, of rows of a group -> how many groups have so many; summed by size."""
    return sum((counts[size] * _log2_outcomes(size, rate) for size in sorted(counts) if counts[size]), 0.0)


_FEW = 4096  # sizes below this are counted without sorting


def inversion_bits(bits: float, seed_bits: int) -> float:
    """Bits that an exhaustive search for the swap must cover, the seed being unknown.

    Parameters
    ----------
    bits : float
        `matching_bits`, summed over the fields that move on their own; once for locked fields. Of a
        method that chooses one of a few transforms, log2 of their number.
    seed_bits : int
        Length of the seed: 4 for each hex digit. Whoever tries every seed needs no more.

    Notes
    -----
    An upper bound of the intruder's work: equal values and what is known of some rows lower it.
    """
    return min(float(seed_bits), bits)


def _log2_outcomes(size: int, rate: float) -> float:
    """log2 of the number of ways in which a group of `size` rows can be exchanged."""
    if size < 2:
        return 0.0
    odd = rate == 1 and size % 2 == 1
    pairs = (size - 3) // 2 if odd else size // 2 if rate == 1 else math.floor(rate * size / 2)
    left = 0 if odd else size - 2 * pairs
    natural = math.lgamma(size + 1) - math.lgamma(left + 1) - math.lgamma(pairs + 1)
    return max(0.0, natural / math.log(2) - pairs - (math.log2(3) if odd else 0.0))


INVERSION_BITS = Measure(
    key="inversion_bits",
    title="Swap inversion",
    concerns="risk",
    goal="high",
    range="0 to the seed's bits",
    formula="min(bits of the seed, sum over fields and groups of log2 of the group's possible exchanges); "
    "PABIDOT: log2 of the transforms to try, 172 for each field",
    source="Rowveil",
    cost="O(groups)",
    compute=inversion_bits,
)


def phi(correlation: npt.NDArray[np.float64], matrix: npt.NDArray[np.float64], axis: int) -> float:
    """The least variance, over the fields, of the difference that a reflection and rotation make.

    Parameters
    ----------
    correlation : ndarray of float64, shape (fields, fields)
        C, of the source.
    matrix : ndarray of float64, shape (fields, fields)
        M, the rotation.
    axis : int
        The field that is reflected first, from 0.

    Notes
    -----
    With F = diag(1, ..., -1 at the axis, ..., 1) the least of C_ii + (M F C F M')_ii - 2 (C F M')_ii,
    in units of the fields' variances; translation and noise are left out, as in the source.
    """
    signs = np.ones(len(correlation))
    signs[axis] = -1.0
    turned = matrix * signs
    own = np.diag(correlation)
    return float(np.min(own + np.diag(turned @ correlation @ turned.T) - 2 * np.diag(correlation @ turned.T)))


PHI = Measure(
    key="phi",
    title="Least variance of the difference (naive guessing only)",
    concerns="risk",
    goal="high",
    range="0 to 4",
    formula="min over fields i of Var(z_i - y_i), y = M F z: before translation and noise",
    source="Chamikara et al. 2019, doi:10.1016/j.ins.2019.05.053, Definition 3.1, with the factor of eq. 22",
    cost="O(fields^2), of the correlations",
    compute=phi,
)
