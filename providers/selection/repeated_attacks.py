"""Interval of the risk of attacks in one run, or in several, all attacked at the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Float64Array
from providers.attacks.figures import Risk
from providers.measures.shared.repeats import Interval, normal_quantile, student_quantile


@dataclass(frozen=True, slots=True)
class Attempts:
    """One attack on one release."""

    risk: Risk | None
    """Risk before the cut at 0, with its interval; None if every guess of the baseline is right."""
    terms: Float64Array
    """Part of that risk that each attacked row adds, to first order; shape (rows,)."""


def terms_of_risk(attack: BoolArray, baseline: BoolArray) -> Float64Array:
    """Return each attacked row's contribution to the risk (a - b) / (1 - b), to first order; shape (rows,).

    Parameters
    ----------
    attack, baseline : ndarray of bool, shape (rows,)
        Rows for which the attack, and the guess, is right. All terms are 0 if every guess is right.
    """
    a, b = float(attack.mean()), float(baseline.mean())
    if b >= 1:
        return np.zeros(len(attack))
    return np.asarray((attack - a) / (1 - b) - (1 - a) * (baseline - b) / (1 - b) ** 2 + (a - b) / (1 - b))


def interval_of_risk(runs: Sequence[Sequence[Attempts]], value: float) -> Interval:
    """Return the 95 % interval of the mean risk, over one or more runs and the attacks of each.

    Parameters
    ----------
    runs : sequence of sequence of Attempts
        For each run one or more attacks, in the same order, all on the same rows.
    value : float
        Mean of the risks, each cut at 0. It is within the interval.

    Notes
    -----
    The limits are means of those of the single attacks, because all attacks try the same rows. Runs are
    combined before the cut at 0: a mean of cut risks is above 0 without any relation. An attack without a
    risk in one of the runs has no limits.
    """
    attacks = list(zip(*runs, strict=True))
    known = [each for each in attacks if all(attempts.risk for attempts in each)]
    limits = np.mean([_limits(attempts) for attempts in known or attacks], axis=0)
    return {"low": min(value, float(limits[0])), "high": max(value, float(limits[1]))}


def _limits(attempts: Sequence[Attempts]) -> tuple[float, float]:
    """Return the limits of the risk of one attack over the runs; 0 and 1 if a run lacks it."""
    risks = [each.risk for each in attempts if each.risk]
    if len(risks) < len(attempts):
        return 0.0, 1.0
    terms = [each.terms for each in attempts]
    share = share_of_reach(terms) if len({len(each) for each in terms}) == 1 < len(terms) else 1.0
    middle = math.fsum(risk.value for risk in risks) / len(risks)
    below = math.fsum(risk.value - risk.low for risk in risks) / len(risks)
    above = math.fsum(risk.high - risk.value for risk in risks) / len(risks)
    high = mean_above_zero(middle + share * above, above / normal_quantile())
    return min(1.0, max(0.0, middle - share * below)), min(1.0, high)


def mean_above_zero(mean: float, error: float) -> float:
    """Return the mean of max(0, X) for a normal X with this mean and standard error.

    Notes ----- A risk is cut at 0 in each run, so that its mean over seeds is above 0 however often the guess
    is better. The mean of max(0, X) grows with the mean of X. At the upper limit of X it is an upper limit of
    both the risk and the mean of the cut risks.
    """
    from scipy.special import ndtr  # slow to import and rarely needed

    if error <= 0 or not math.isfinite(mean):
        return max(0.0, mean)
    scaled = mean / error
    return float(mean * ndtr(scaled) + error * math.exp(-scaled * scaled / 2) / math.sqrt(2 * math.pi))


def share_of_reach(terms: Sequence[Float64Array]) -> float:
    """Return the reach of the interval of the mean over the runs, as a share of that of a single run.

    Parameters
    ----------
    terms : sequence of ndarray of float, each of shape (rows,)
        For each of two or more runs, terms of the same rows.

    Returns
    -------
    float
        1 if the terms of every run are constant, which says nothing about other rows.

    Notes
    -----
    Rows and runs are crossed. The variance of the rows' means over the runs, divided by the number m of rows,
    has what the runs share, and the rest of each cell divided by the R runs. If the runs' means differ by
    more than independent cells do (F test at .05), the excess of their variance, divided by R, is that of
    draws that all rows of a run share, such as a rotation. It is not added without that test: of two runs it
    has one degree of freedom. The quantile is Student's with Satterthwaite's degrees of freedom.

    References
    ----------
    Searle, Casella and McCulloch 1992, Variance Components, doi:10.1002/9780470316856, section 4.3: crossed
    random effects.
    """
    cells: npt.NDArray[np.float64] = np.stack(terms, axis=1)
    rows, runs = cells.shape
    of_rows, of_runs = cells.mean(axis=1), cells.mean(axis=0)
    single = float(cells.var(axis=0, ddof=1).mean()) / rows if rows > 1 else 0.0
    if single <= 0:
        return 1.0
    rest = cells - of_rows[:, None] - of_runs + cells.mean()
    by_cell = float((rest * rest).sum()) / ((rows - 1) * (runs - 1)) / (rows * runs)
    by_row, by_run = float(of_rows.var(ddof=1)) / rows, float(of_runs.var(ddof=1)) / runs
    differ = by_run > 0 and by_run > by_cell * _f_quantile(runs - 1, (rows - 1) * (runs - 1))
    beyond = by_run - by_cell if differ else 0.0
    variance = by_row + beyond
    error = by_row**2 / (rows - 1) + (by_run**2 / (runs - 1) if beyond else 0.0)
    freedom = max(1, int(variance**2 / error)) if error else rows - 1
    return student_quantile(freedom) / normal_quantile() * math.sqrt(variance / single)


def _f_quantile(runs: int, cells: int) -> float:
    from scipy.special import fdtri  # slow to import and rarely needed

    return float(fdtri(runs, cells, 0.95))
