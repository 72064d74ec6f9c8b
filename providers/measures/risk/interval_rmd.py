"""Interval disclosure with intervals that widen with a row's robust distance from the other rows."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from providers.arrays import Float64Array
from providers.measures.models.fast_mcd import SUBSET
from providers.measures.models.robust_covariance import RobustFit, independent_fields, robust_covariance
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.repeats import share_interval
from providers.measures.shared.sampling import uniforms
from providers.randomness.chacha20 import Stream

_WIDTH = 0.01 * 0.05
"""sdcMicro's k, times its factor of the distances."""
_FEWEST = 10
"""Least number of complete rows, for tables of one or two fields."""
_GROUPS = 20
"""Random groups of rows that are left out in turn, to find the variance of the shares."""


class _Fitted(NamedTuple):
    """Shares of rows that are disclosed, and the fit that they rest on."""

    shares: dict[str, float]
    """``own`` and ``source``."""
    fields: list[int]
    """Fields of the fit; all other fields are linear combinations of these."""
    fit: RobustFit
    scaled: Float64Array
    """z-scores of the source."""
    reach: Float64Array
    """Half the width of each row's intervals; shape (n,)."""


def interval_rmd(source: Float64Array, destination: Float64Array) -> dict[str, float]:
    """Share of rows of which any value is within the row's own interval, by two scales.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        Numbers, none missing; no field of the source constant.

    Returns
    -------
    dict
        ``own``: each table's z-scores by its own mean and standard deviation, as in dRiskRMD, which hides
        unmodified cells wherever a field's mean or deviation has changed; ``source``: both by the
        source's; ``chance``: ``source`` if each field's released values were dealt to the rows at random,
        independently; ``support``: the share of the rows that the covariance rests on.

    Raises
    ------
    NotApplicable
        A z-score is beyond float64, or there are as many fields as the search has rows in a subset.

    Notes
    -----
    The distance of a row is from the mean, as in dRiskRMD. O(n p^2) about a hundred times, O(p n log n) once.

    References
    ----------
    Templ and Meindl 2008, Robust statistics meets SDC, doi:10.1007/978-3-540-87471-3_10.
    """
    return _value(_fitted(source, destination), source, destination)


def _fitted(source: Float64Array, destination: Float64Array, near: _Fitted | None = None) -> _Fitted:
    """Fit the covariance, and count rows; `near` is the fit of a table that differs by few rows."""
    x = _scaled(source, source)
    is_finite = np.isfinite(x).all() and _has_deviations(source) and _has_deviations(destination)
    kept = independent_fields(x) if is_finite else []
    if not kept:
        raise NotApplicable(BEYOND_FLOAT64)
    if len(kept) >= SUBSET:
        raise NotApplicable(
            f"it takes fewer than {SUBSET} fields of numbers: name those to measure in 'fields'"
        )
    start = near.fit if near is not None and near.fields == kept else None
    fit = robust_covariance(x[:, kept], start)
    squares = np.einsum("ij,ij->i", x[:, kept] @ np.linalg.inv(fit.covariance), x[:, kept])
    reach = _WIDTH * np.sqrt(squares)
    released = {"own": _scaled(destination, destination), "source": _scaled(destination, source)}
    shares = {
        scale: float((np.abs(values - x) < reach[:, np.newaxis]).any(axis=1).mean())
        for scale, values in released.items()
    }
    return _Fitted(shares, kept, fit, x, reach)


def _scaled(table: Float64Array, by: Float64Array) -> Float64Array:
    """z-scores of a table by the means and standard deviations of a table; constant fields are centred."""
    deviation = by.std(axis=0, ddof=1)
    deviation[deviation == 0] = 1.0
    return np.asarray((table - by.mean(axis=0)) / deviation)


def _has_deviations(table: Float64Array) -> bool:
    """Whether no square of a field overflows, and not all of them vanish where its numbers differ."""
    deviation = table.std(axis=0, ddof=1)
    return bool((np.isfinite(deviation) & ((deviation > 0) | (np.ptp(table, axis=0) == 0))).all())


def _value(found: _Fitted, source: Float64Array, destination: Float64Array) -> dict[str, float]:
    chance = _chance(found.scaled, _scaled(destination, source), found.reach)
    return {**found.shares, "chance": chance, "support": found.fit.share}


def _chance(x: Float64Array, released: Float64Array, reach: Float64Array) -> float:
    """Expected share of rows with a value less than `reach` from a random released value of its field.

    Parameters
    ----------
    x, released : ndarray, shape (n, fields)
        z-scores before and after, by the same scale.
    reach : ndarray, shape (n,)
        Half the width of each row's intervals.
    """
    nowhere = np.ones(len(x))
    for before, after in zip(x.T, np.sort(released, axis=0).T, strict=True):
        above, up_to = np.searchsorted(after, before + reach), np.searchsorted(after, before - reach, "right")
        nowhere *= 1 - np.maximum(above - up_to, 0) / len(after)
    return float(1 - nowhere.mean())


def _intervals(
    found: _Fitted, source: Float64Array, destination: Float64Array, stream: Stream
) -> dict[str, dict[str, float]]:
    """Confidence interval (95 %) of both shares, with the error of scales and covariance.

    Notes
    -----
    The variance of a share is that of the delete-a-group jackknife with 20 random groups; the covariance
    of the other groups continues from that of all rows. Divided by the variance of a share of independent
    rows it is the design effect d, at least 1; the interval is Wilson's for n / d rows, so that it is
    never empty at 0 and 1.

    References
    ----------
    Kott 2001, Journal of Official Statistics 17, 521-526: the delete-a-group jackknife.
    Korn and Graubard 1998, Survey Methodology 24, 193-201: intervals of shares by effective sample sizes.
    """
    rows = len(source)
    groups = uniforms(rows, stream, "interval_rmd/groups").argsort(kind="stable") % _GROUPS
    draws: list[dict[str, float]] = []
    for group in range(min(_GROUPS, rows)):
        rest = groups != group
        if not (np.ptp(source[rest], axis=0) > 0).all():
            continue
        near = found._replace(fit=found.fit._replace(support=found.fit.support[rest]))
        with suppress(NotApplicable):  # too close to each other without this group
            draws.append(_fitted(source[rest], destination[rest], near).shares)
    intervals = {}
    for scale, share in found.shares.items():
        variance = share * (1 - share) / rows
        jackknife = float(np.var([draw[scale] for draw in draws])) * (len(draws) - 1) if draws else 0.0
        effect = max(1.0, jackknife / variance) if variance else 1.0
        intervals[scale] = share_interval(share, rows / effect)
    return intervals


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    fields = comparison.need_numeric()
    # The whole table decides on the fields: by a sample, a field would be in or out by chance.
    kept = [
        index
        for index, name in enumerate(fields)
        if not _mostly_one_value(comparison.columns[name].numbers("source"))
        and not _mostly_missing(comparison.columns[name].numbers("destination"))
    ]
    if not kept:
        raise NotApplicable("in every field of numbers half of the values or more are equal or missing")
    before, after = (table[:, kept] for table in comparison.sampled_matrices)
    complete = ~np.isnan(before).any(axis=1) & ~np.isnan(after).any(axis=1)
    if complete.sum() < max(_FEWEST, 5 * len(kept)):
        raise NotApplicable("it needs 10 rows without a missing number, and 5 for each field")
    before, after = before[complete], after[complete]
    varying = np.flatnonzero(np.ptp(before, axis=0) > 0)
    if not len(varying):
        raise NotApplicable("every field is constant in the rows without a missing number")
    before, after = before[:, varying], after[:, varying]
    found = _fitted(before, after)
    notes = {"interval": _intervals(found, before, after, comparison.stream)}
    measured = [fields[kept[index]] for index in varying]
    return Finding(_value(found, before, after), measured, comparison.sample.size, notes)


def _mostly_one_value(values: Float64Array) -> bool:
    """Whether half of the values or more are missing, or half of the others or more are equal."""
    present = values[~np.isnan(values)]
    if 2 * len(present) < len(values) or not len(present):
        return True
    return 2 * int(np.unique(present, return_counts=True)[1].max()) >= len(present)


def _mostly_missing(values: Float64Array) -> bool:
    """Whether more than half of the values are missing."""
    return 2 * int(np.count_nonzero(~np.isnan(values))) < len(values)


MEASURE = Measure(
    key="interval_rmd",
    title="Interval disclosure by robust Mahalanobis distances",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |y_if - x_if| < .01 x .05 x RMD_i for any field f, on z-scores: by each "
    "table's own mean and deviation, and by the source's; RMD by the reweighted MCD with its consistency "
    "factors, of half of the rows, or of the larger share `support` where half lie on a hyperplane; 95 % "
    "intervals of both shares (Wilson 1927, the design effect by a jackknife); chance: the share by the "
    "source's scale if each field's released values are dealt to the rows at random",
    source="sdcMicro, dRiskRMD (Templ and Meindl 2008), risk1, with covMcd of robustbase from 0.99-0 on; "
    "FAST-MCD (Rousseeuw and Van Driessen 1999), factors of Croux and Haesbroeck 1999 and Pison et al. 2002",
    cost="O(n p^2), about a hundred times: on the sample",
    find=_find,
    parts=(Part("source"), Part("own")),
    words={
        "own": "each table scaled by itself",
        "source": "both scaled by the source",
        "chance": "by chance alone",
        "support": "share of rows that the covariance rests on",
    },
)
