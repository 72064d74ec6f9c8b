"""Friedman's test: mean ranks of treatments over blocks, and the statistic with its correction for ties.

References
----------
Friedman 1937, doi:10.1080/01621459.1937.10503522. Conover 1999, Practical nonparametric statistics, 5.8.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Friedman:
    """Result of the test."""

    mean_ranks: list[float]
    """Mean rank of each treatment; 1 is the lowest value."""
    chi_squared: float
    p: float
    """Probability of such a statistic or a larger one if the treatments do not differ."""


def ranks(values: Matrix) -> Matrix:
    """Rank the values of a block, equal ones by the mean of their ranks; shape (treatments,)."""
    below = (values[:, np.newaxis] > values).sum(axis=1)
    equal = (values[:, np.newaxis] == values).sum(axis=1)
    found: Matrix = below + (equal + 1) / 2
    return found


def friedman(blocks: Matrix) -> Friedman:
    """Compare treatments over blocks.

    Parameters
    ----------
    blocks : ndarray of float64, shape (blocks, treatments)
    """
    from scipy.stats import chi2  # takes longer to import than the test to run

    count, treatments = blocks.shape
    ranked = np.apply_along_axis(ranks, 1, blocks)
    sums = ranked.sum(axis=0)
    centre = (treatments + 1) / 2
    variance = ((ranked - centre) ** 2).sum() / (treatments - 1)
    statistic = float(((sums - count * centre) ** 2).sum() / variance) if variance else 0.0
    return Friedman((sums / count).tolist(), statistic, float(chi2.sf(statistic, treatments - 1)))
