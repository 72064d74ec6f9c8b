"""Size of the search space: log2 of the number of possible exchanges."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from providers.swapping.permutation_law import outcome_bits


def matching_bits(group_sizes: npt.ArrayLike, rate: float) -> float:
    """Return log2 of the number of ways in which groups can be exchanged.

    Parameters
    ----------
    group_sizes : ints, shape (groups,)
        Rows of each group that is swapped.
    rate : float
        Share of the rows that take part.

    Notes
    -----
    The sum over the groups of log2 of the number of outcomes of a group of m rows:

    - all rows move, m even: m! / (2^(m/2) (m/2)!), the perfect matchings;
    - all rows move, m odd: m! / (2^((m-3)/2) ((m-3)/2)! 3): a cycle of three, which has two directions,
      and a matching of the rest;
    - p pairs move, which do not cover the group: m! / ((m - 2p)! 2^p p!) ways to choose them.

    At rate 1 all rows move. At lower rates two numbers of moving rows are possible. The one with fewer
    outcomes counts, so that the figure holds even for someone who knows how many rows of a group moved.
    """
    return matching_bits_of_counts(size_counts(group_sizes), rate)


def size_counts(group_sizes: npt.ArrayLike) -> dict[int, int]:
    """Return group size -> number of groups, in ascending order of the sizes."""
    sizes = np.asarray(group_sizes, np.int64)
    if len(sizes) == 1:
        return {int(sizes[0]): 1}
    is_large = sizes >= _FEW
    small = np.bincount(sizes[~is_large])
    counts = {int(size): int(small[size]) for size in np.flatnonzero(small)}
    if is_large.any():
        large, groups = np.unique(sizes[is_large], return_counts=True)
        counts |= zip(large.tolist(), groups.tolist(), strict=True)
    return counts


def bits_of_counts(counts: Mapping[int, int], rate: float, mechanism: str) -> float:
    """Return log2 of the number of exchanges of groups given as size -> number of groups; see `bits_of`."""
    of_group = bits_of(mechanism)
    return sum((counts[size] * of_group(size, rate) for size in sorted(counts) if counts[size]), 0.0)


def bits_of(mechanism: str) -> Callable[[int, float], float]:
    """Return the function (size, rate) -> log2 of the number of exchanges of a group, by a mechanism.

    For pairs it is `log2_outcomes`, for the permutation mechanism `permutation_law.outcome_bits`.
    """
    return outcome_bits if mechanism == "permutation" else log2_outcomes


def matching_bits_of_counts(counts: Mapping[int, int], rate: float) -> float:
    """Return `matching_bits` for groups given as size -> number of groups."""
    return bits_of_counts(counts, rate, "pairs")


_FEW = 4096  # smaller sizes are counted without sorting


@lru_cache(maxsize=2**14)
def log2_outcomes(size: int, rate: float) -> float:
    """Return log2 of the number of ways in which a group of `size` rows can be exchanged.

    Remembered, because every field of a run has groups of the same sizes.
    """
    if size < 2:
        return 0.0
    return min(_log2_outcomes_of_moving(size, moving) for moving in _possible_moving(size, rate))


def _possible_moving(size: int, rate: float) -> tuple[int, ...]:
    """Return the possible numbers of moving rows, as `grouping.shuffle` draws them."""
    if rate == 1:
        return (size,)
    wanted = rate * size
    in_pairs = size - size % 2
    if wanted > in_pairs:
        return in_pairs, size
    pairs = math.floor(wanted / 2)
    return (2 * pairs,) if pairs == wanted / 2 else (2 * pairs, min(2 * pairs + 2, in_pairs))


def _log2_outcomes_of_moving(size: int, moving: int) -> float:
    """Return log2 of the number of exchanges of `moving` rows; an odd number is the whole group."""
    cycle = moving % 2 == 1
    pairs = moving // 2 - cycle
    left = 0 if cycle else size - moving
    natural = math.lgamma(size + 1) - math.lgamma(left + 1) - math.lgamma(pairs + 1)
    return max(0.0, natural / math.log(2) - pairs - (math.log2(3) if cycle else 0.0))
