"""Intervals (95 %) of the figures of a comparison, and differences of figures beyond them.

A figure of one run differs from the figure with another seed, and a figure of a sample from the figure of all
rows. An attack, and a figure of a sample, has its own interval. Figures of all rows get an interval from a
jackknife over ten random groups of rows, which holds for rows like these. Further runs add the spread between
seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from providers.arrays import Int64Array
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.repeats import (
    DRAWS,
    Interval,
    share_interval_of_variance,
    student_quantile,
)
from providers.measures.shared.sampling import sample_rows, uniforms
from providers.randomness.chacha20 import Stream
from providers.selection.figures import Figure, Taken, record
from providers.selection.repeated_attacks import interval_of_risk
from providers.tables.columns import take_rows

GROUPS = 10
"""Random groups of rows of the jackknife."""

MOST_ROWS = 10_000
"""Most rows that the jackknife reads; its variance is in inverse proportion to the number of rows."""


_ROWS_OF_PAIR = 2
"""Rows, or units, of a pair that exchanges values; the groups consist of single rows, as if rows were
independent."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Figures of one run without each of the groups of its rows."""

    without: tuple[Taken, ...]
    rows: int
    """Number of the run's rows, or of its units or households."""
    share: float
    """Share of them that was read."""

    def variance(self, figure: Figure, fields: Sequence[str]) -> float | None:
        """Return the variance of a figure over these fields; None if a group lacks the figure."""
        others = [taken.over(fields).values.get(figure.name) for taken in self.without]
        known = [other for other in others if other is not None]
        if len(known) < len(others):
            return None
        # About the mean of the groups: mean absolute changes near 0 are larger without a group.
        middle = math.fsum(known) / GROUPS
        squares = math.fsum((other - middle) * (other - middle) for other in known)
        return (GROUPS - 1) / GROUPS * squares * self.share * _ROWS_OF_PAIR


def take_row_groups(
    figures: Sequence[Figure], release: Release, options: MeasureOptions, stream: Stream
) -> RowGroups | None:
    """Take the figures with a jackknife without each of ten random groups of rows, or of whole units.

    Parameters
    ----------
    figures : sequence of Figure
        Others than those with a jackknife are left out.
    release : Release
    options : MeasureOptions
    stream : Stream
        Shared by the releases that are compared.

    Returns
    -------
    RowGroups or None
        None if there is no such figure, or fewer than two rows for each group.

    Notes
    -----
    Fields are identifiers, weights or attributes as in the whole table. Ten measurements of at most 10,000
    rows.

    References
    ----------
    Kott 2001, The delete-a-group jackknife, Journal of Official Statistics 17(4), 521-526.
    """
    taken = [figure for figure in figures if figure.measure.jackknife]
    rows = release.destination.num_rows
    if not taken or rows < 2 * GROUPS:
        return None
    with threadpool_limits(limits=1), np.errstate(all="ignore"):
        whole = Comparison(release, options, stream)
        units = whole.clusters
        if units is None:
            chosen = sample_rows(rows, MOST_ROWS, stream, "intervals")
            groups = uniforms(len(chosen), stream, "intervals/groups").argsort(kind="stable") % GROUPS
        else:
            chosen, groups = _groups_of_units(units, stream)
            if len(np.unique(groups)) < GROUPS:
                return None

        def take(rows_taken: Int64Array) -> Taken:
            return _take(taken, _with_roles_of(whole, _part(release, rows_taken)))

        without = tuple(take(chosen[groups != group]) for group in range(GROUPS))
        independent = rows if units is None else len(np.unique(units))
        return RowGroups(without, independent, len(chosen) / rows)


def _groups_of_units(units: Int64Array, stream: Stream) -> tuple[Int64Array, Int64Array]:
    """Return rows of whole random units, at most `MOST_ROWS` of them, ascending, and the group of each."""
    found, numbers = np.unique(units, return_inverse=True)
    order = uniforms(len(found), stream, "intervals/units").argsort(kind="stable")
    sizes = np.bincount(numbers)
    group = np.full(len(found), -1)
    fitting = order[np.cumsum(sizes[order]) <= MOST_ROWS]
    group[fitting] = np.arange(len(fitting)) % GROUPS
    chosen = np.flatnonzero(group[numbers] >= 0)
    return chosen.astype(np.int64), group[numbers[chosen]]


def _part(release: Release, rows: Int64Array) -> Release:
    """Return these rows of the destination, each next to its row of the source."""
    origin = rows if release.origin is None else release.origin[rows]
    source, destination = take_rows(release.source, origin), take_rows(release.destination, rows)
    return Release(source, destination, parameters=release.parameters)


def _with_roles_of(whole: Comparison, part: Release) -> Comparison:
    """Return a part of the rows, with the fields that take part in comparisons of the whole table."""
    found = Comparison(part, whole.options, whole.stream)
    found.compared = {name: found.columns[name] for name in whole.compared}
    found.identifying = whole.identifying
    return found


def _take(figures: Sequence[Figure], comparison: Comparison) -> Taken:
    taken = Taken({}, {}, {}, {})
    values = {}
    for key in {figure.measure.key for figure in figures}:
        find = MEASURES[key].find
        assert find is not None  # noqa: S101 - only the values of runs have none
        try:
            values[key] = find(comparison).value
        except NotApplicable as reason:
            taken.undefined.update(
                {figure.name: str(reason) for figure in figures if figure.measure.key == key}
            )
    for figure in figures:
        if figure.measure.key in values:
            record(taken, figure, values[figure.measure.key])
    return taken


def interval_of(
    figure: Figure, runs: Sequence[Taken], groups: RowGroups | None, fields: Sequence[str]
) -> Interval | None:
    """Return the interval of a figure's mean over the runs; None if a single run has none.

    Parameters
    ----------
    figure : Figure
    runs : sequence of Taken
        One or more, all with the figure.
    groups : RowGroups or None
        Row groups of the first run.
    fields : sequence of str
        Fields over which a figure that is a mean over fields is taken.

    Notes
    -----
    - An own interval for rows is the mean of those of the runs, because all runs read the same rows. That of
      an attack is narrower by the part of its error that the runs do not share (`interval_of_risk`). One for
      draws is combined with the spread between the runs.
    - The variance of the jackknife, with 9 degrees of freedom, is pooled with that between R runs, with
      R - 1. On rows swapped at random it is close to the latter, or larger. A share has Wilson's interval
      with this variance.
    - Otherwise Student's interval of the mean over the runs.

    References
    ----------
    Smyth 2004, Linear models and empirical Bayes methods, Statistical Applications in Genetics and Molecular
    Biology 3(1), 3, doi:10.2202/1544-6115.1027: variances pooled by their degrees of freedom.
    """
    values = [run.over(fields).values[figure.name] for run in runs]
    count, mean = len(values), math.fsum(values) / len(values)
    low, high = _bounds(figure)
    own = [run.intervals[figure.name] for run in runs if figure.name in run.intervals]
    attempts = [run.attempts[figure.name] for run in runs if figure.name in run.attempts]
    if len(attempts) == count:
        return interval_of_risk(attempts, mean)
    of_rows = groups.variance(figure, fields) if groups else None
    squares = math.fsum((value - mean) * (value - mean) for value in values)  # inf, no OverflowError
    if len(own) == count:
        below = mean - math.fsum(each["low"] for each in own) / count
        above = math.fsum(each["high"] for each in own) / count - mean
        if figure.measure.interval_of_draws and count > 1:
            reach = student_quantile(count - 1) * math.sqrt(squares / (count - 1) / count)
            below, above = math.hypot(below, reach), math.hypot(above, reach)
    elif groups and of_rows is not None:
        freedom = GROUPS - 1 + count - 1
        variance = ((GROUPS - 1) * of_rows + squares) / freedom / count
        if figure.measure.jackknife == "share":
            rows = groups.rows / _ROWS_OF_PAIR * count
            return share_interval_of_variance(mean, variance, freedom, rows)
        below = above = student_quantile(freedom) * math.sqrt(variance)
    elif count > 1:
        below = above = student_quantile(count - 1) * math.sqrt(squares / (count - 1) / count)
    else:
        return None
    if not math.isfinite(below + above):
        return None
    return {"low": max(low, mean - below), "high": min(high, mean + above)}


def freedom_of(
    figure: Figure, runs: Sequence[Taken], groups: RowGroups | None, fields: Sequence[str]
) -> float:
    """Return the degrees of freedom of the error of `interval_of`; inf for those of normal errors.

    An error that has two parts has the fewer degrees of both.
    """
    of_runs = len(runs) - 1
    own = all(figure.name in run.intervals or figure.name in run.attempts for run in runs)
    if own and not figure.measure.interval_of_draws:
        return math.inf
    if own:
        return min(DRAWS - 1, of_runs or DRAWS - 1)
    if groups and groups.variance(figure, fields) is not None:
        return GROUPS - 1 + of_runs
    return of_runs or math.inf


def covered(figure: Figure, runs: int, has_own: bool, has_groups: bool, sampled: bool) -> str:
    """Return the causes of error that the intervals of a figure cover, such as ``rows and seeds``."""
    causes = []
    if has_own:
        draws = figure.measure.interval_of_draws
        causes += ["rows"] if not draws or (sampled and figure.measure.interval_of_samples) else []
        causes += ["draws"] if draws else []
    elif has_groups and figure.measure.jackknife:
        causes.append("rows")
    causes += ["seeds"] if runs > 1 else []
    return " and ".join([", ".join(causes[:-1]), causes[-1]]) if len(causes) > 1 else "".join(causes)


def _bounds(figure: Figure) -> tuple[float, float]:
    """Return the least and the greatest possible value of the figure, as far as its range is one of both."""
    low, _, high = figure.measure.range.partition(" to ")
    if figure.measure.range.startswith("0 or more"):
        return 0.0, math.inf
    return (float(low), float(high)) if low.isdigit() and high.isdigit() else (-math.inf, math.inf)
