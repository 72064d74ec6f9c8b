"""Rows that are unique in the population, estimated from the table and its survey weights.

A row that is unique on its key fields in the table is at risk only if it is unique in the population as well.
Three estimators give the expected share of the table's rows that are unique in the population:

- Benedetti and Franconi: the frequency F of a class in the population, given its frequency f in the table, is
  f plus a negative binomial number of misses with the success probability p = f / (sum of the weights).
- Pitman's sampling formula, fitted by maximum likelihood as Hoshino does, and its prediction rule.
- Zayatz: a class of one row comes from a class of one, if the population's classes have the sizes of the
  table's.

Skinner and Elliot give the probability that a unique match is correct, without a model of the classes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array
from providers.measures.shared.columns import SIDES, Side, kind_of
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.tables.numbers import float_values
from providers.tables.units import unit_codes


def benedetti_franconi(sizes: Int64Array, weights: Float64Array) -> dict[str, float]:
    """Expected numbers of rows that are unique in the population, and that are re-identified.

    Parameters
    ----------
    sizes : ndarray of int64, shape (classes,)
        Rows f of each class.
    weights : ndarray of float64, shape (classes,)
        Sum of the weights of each class, an estimate of its frequency F in the population.

    Returns
    -------
    dict
        ``unique``, the sum of P(F = 1 | f) = p over the classes of one row; ``reidentified``, the sum of
        `row_risks` over the rows.
    """
    share = _seen(sizes, weights)
    risk = row_risks(sizes, weights)
    return {"unique": float(share[sizes == 1].sum()), "reidentified": float((sizes * risk).sum())}


def _seen(sizes: Int64Array, weights: Float64Array) -> Float64Array:
    """Return p = f / (sum of the weights) of each class; one of a mean weight below 1 is seen completely."""
    share: Float64Array = np.minimum(1.0, sizes / weights)
    return share


def row_risks(sizes: Int64Array, weights: Float64Array) -> Float64Array:
    """Risk of a row of each class to be re-identified: E(1 / F | f) = (p^f / f) 2F1(f, f; f + 1; 1 - p).

    Parameters
    ----------
    sizes, weights
        As of `benedetti_franconi`.

    Returns
    -------
    ndarray of float64, shape (classes,)

    References
    ----------
    Benedetti and Franconi 1998, Statistical and technological solutions for controlled data dissemination,
    pre-proceedings of New Techniques and Technologies for Statistics, 1, 225-232.
    """
    from scipy.special import hyp2f1  # slow to import and rarely needed

    share = _seen(sizes, weights)
    # by Euler's transformation 2F1(f, f; f + 1; z) = (1 - z)^(1 - f) 2F1(1, 1; f + 1; z)
    risk = share / sizes
    few = sizes < _FEW
    risk[few] *= hyp2f1(1.0, 1.0, sizes[few] + 1.0, 1.0 - share[few])
    risk[~few] *= _series(sizes[~few], 1.0 - share[~few])
    return risk


def household_risk(risks: Float64Array, households: Int64Array) -> float:
    """Mean over the households of 1 - prod(1 - r_i): the expected share of which a member is re-identified.

    Parameters
    ----------
    risks : ndarray of float64, shape (rows,)
        Risk r_i of each row, from 0 to 1.
    households : ndarray of int64, shape (rows,)
        Household of each row, from 0 on; at least one row.

    References
    ----------
    Templ, Meindl and Kowarik 2015, Statistical disclosure control for micro-data using the R package
    sdcMicro, Journal of Statistical Software 67(4), doi:10.18637/jss.v067.i04: hierarchical risk.
    """
    _, numbers = np.unique(households, return_inverse=True)
    with np.errstate(divide="ignore"):  # a risk of 1 is that of its household
        spared = np.bincount(numbers, np.log1p(-risks))
    return float(np.mean(-np.expm1(spared)))


_LARGEST_POPULATION = 2.0**63
"""Number of persons that 64 bits no longer count; no survey has as many."""

_FEW = 20
"""Rows of a class from which the series takes the place of scipy's function, which fails for many rows."""

_TERMS = 100
"""Terms of the series; from 20 rows on the next one is below 1e-20."""


def _series(sizes: Int64Array, arguments: Float64Array) -> Float64Array:
    """2F1(1, 1; f + 1; z), f of 20 or more, as the sum over j of j! z^j / ((f + 1) (f + 2) ... (f + j))."""
    term, total = np.ones(len(sizes)), np.ones(len(sizes))
    for j in range(1, _TERMS):
        term *= arguments * j / (sizes + j)
        total += term
    return total


def zayatz(sizes: Int64Array, population: int) -> float:
    """Probability that a row that is unique in the table is unique in the population.

    Parameters
    ----------
    sizes : ndarray of int64, shape (classes,)
        Rows of each class; at least one class has one row.
    population : int
        Persons of the population, as many as rows or more.

    References
    ----------
    Zayatz 1991, Estimation of the percent of unique population elements on a microdata file using the sample,
    Statistical Research Division Report 91/08, U.S. Bureau of the Census.
    """
    rows = int(sizes.sum())
    occurring, counts = np.unique(sizes, return_counts=True)
    # P(1 sampled row | i in the population) = i n / N prod for j = 1 to i - 1 of (N - n - j + 1) / (N - j)
    steps = np.arange(1, int(occurring[-1]))
    with np.errstate(divide="ignore"):
        ratio = np.log(np.maximum(population - rows - steps + 1, 0)) - np.log(population - steps)
    one = occurring * np.exp(np.concatenate(([0.0], np.cumsum(ratio)))[occurring - 1])
    return float(counts[0] / (counts * one).sum())


def log_likelihood(theta: float, alpha: float, sizes: Int64Array, counts: Int64Array) -> float:
    """Logarithm of Pitman's sampling formula, without the number of ways to label the rows.

    Parameters
    ----------
    theta, alpha : float
        Parameters; 0 < alpha < 1, theta > -alpha.
    sizes, counts : ndarray of int64, shape (different sizes,)
        Size of classes, and number of classes of this size.

    Notes
    -----
    sum for i = 1 to u - 1 of ln(theta + i alpha) - sum for i = 1 to n - 1 of ln(theta + i)
    + sum over the classes of the sum for j = 1 to f - 1 of ln(j - alpha), u classes of n rows.
    """
    from scipy.special import gammaln

    classes, rows = int(counts.sum()), int((sizes * counts).sum())
    new = np.log(theta + alpha * np.arange(1, classes)).sum()
    within = (counts * (gammaln(sizes - alpha) - gammaln(1 - alpha))).sum()
    return float(new - (gammaln(theta + rows) - gammaln(theta + 1)) + within)


def fitted(sizes: Int64Array) -> tuple[float, float]:
    """Fit theta and alpha of Pitman's sampling formula by maximum likelihood.

    Parameters
    ----------
    sizes : ndarray of int64, shape (classes,)
        Rows of each class; at least two classes, one of them of two rows or more.

    References
    ----------
    Hoshino 2001, Applying Pitman's sampling formula to microdata disclosure risk assessment, Journal of
    Official Statistics 17, 499-520.
    """
    from scipy.optimize import minimize

    occurring, counts = np.unique(sizes, return_counts=True)

    def loss(point: Float64Array) -> float:
        return -log_likelihood(*_parameters(point), occurring, counts)

    rows, classes = int(sizes.sum()), len(sizes)
    start = np.array([math.log(1.0 + classes / math.log(rows + 1)), 0.0])
    # the likelihood is a sum of about `rows` terms: its rounding is relative
    exact = {"xatol": 1e-6, "fatol": 1e-12 * max(1.0, abs(loss(start))), "maxiter": 500}
    return _parameters(minimize(loss, start, method="Nelder-Mead", options=exact).x)


def _parameters(point: Float64Array) -> tuple[float, float]:
    """Theta and alpha of a point (ln(theta + alpha), logit alpha), away from the ends of their ranges."""
    alpha = min(max(0.5 + 0.5 * math.tanh(float(point[1]) / 2), 1e-9), 1 - 1e-9)
    return math.exp(min(max(float(point[0]), -20.0), 40.0)) - alpha, alpha


def stays_unique(theta: float, alpha: float, rows: int, population: int) -> float:
    """Probability that a class of one row gets no other one while a sample grows from `rows` to `population`.

    Each further person i + 1 joins the class with the probability (1 - alpha) / (theta + i).

    References
    ----------
    Pitman 1995, Exchangeable and partially exchangeable random partitions, Probability Theory and Related
    Fields 102, 145-158, doi:10.1007/BF01213386: the prediction rule.
    """
    from scipy.special import betaln

    # Gamma(theta + alpha - 1 + N) / Gamma(theta + N) = B(theta + alpha - 1 + N, 1 - alpha) / Gamma(1 - alpha)
    last, first = (betaln(theta + alpha - 1 + persons, 1 - alpha) for persons in (population, rows))
    return math.exp(min(0.0, float(last - first)))


def correct_match(sizes: Int64Array, fraction: float) -> float:
    """Probability that a match of a person with a row that is unique in the table is correct.

    pi n_1 / (pi n_1 + 2 (1 - pi) n_2), n_1 and n_2 the classes of one and of two rows; 0 without any.

    Parameters
    ----------
    sizes : ndarray of int64, shape (classes,)
        Rows of each class.
    fraction : float
        Sampling fraction pi, above 0 and up to 1.

    References
    ----------
    Skinner and Elliot 2002, A measure of disclosure risk for microdata, Journal of the Royal Statistical
    Society B 64, 855-867, doi:10.1111/1467-9868.00365.
    """
    single, double = fraction * np.count_nonzero(sizes == 1), (1 - fraction) * np.count_nonzero(sizes == 2)
    return float(single / (single + 2 * double)) if single + double else 0.0


def population_uniques(sizes: Int64Array, weights: Float64Array) -> dict[str, Any]:
    """Estimates from the classes of one table.

    Parameters
    ----------
    sizes : ndarray of int64, shape (classes,)
        Rows of each class; at least one class.
    weights : ndarray of float64, shape (classes,)
        Sum of the weights of each class, above 0.

    Returns
    -------
    dict
        ``population``, the sum of the weights as a whole number, at least the rows; ``unique``, the share of
        rows that are unique in the table; ``benedetti_franconi``, ``pitman`` and ``zayatz``, expected shares
        of rows that are unique in the population; ``reidentified``, expected share of rows that are linked
        to their person; ``correct_match``, the probability that a unique match is correct. ``pitman`` is
        None if all rows are unique or equal: such a table does not determine the parameters.
    """
    rows = int(sizes.sum())
    population = max(rows, round(float(weights.sum())))
    single = int(np.count_nonzero(sizes == 1))
    expected = benedetti_franconi(sizes, weights)
    pitman = None
    if 1 < len(sizes) < rows:
        theta, alpha = fitted(sizes)
        pitman = single * stays_unique(theta, alpha, rows, population) / rows
    return {
        "population": population,
        "unique": single / rows,
        "benedetti_franconi": expected["unique"] / rows,
        "pitman": pitman,
        "zayatz": single * zayatz(sizes, population) / rows if single else 0.0,
        "reidentified": expected["reidentified"] / rows,
        "correct_match": correct_match(sizes, rows / population),
    }


def _find(comparison: Comparison) -> Finding:
    fields = comparison.need_key_fields()
    named = comparison.options.weight_fields
    if len(named) != 1:
        raise NotApplicable("name one survey weight in 'weight_fields'")
    if any(np.any(sizes.rows != sizes.persons) for sizes in comparison.class_sizes.values()):
        raise NotApplicable(
            f"rows of one unit of '{comparison.unit_field}' share their key fields and would count as "
            "several persons: measure a table with one row for each"
        )
    values: dict[str, Any] = {}
    tables = (comparison.release.source, comparison.release.destination)
    for when, side, table in zip(("before", "after"), SIDES, tables, strict=True):
        if kind_of(table.schema.field(named[0]).type) != "number":
            raise NotApplicable(f"the survey weight '{named[0]}' is no number")
        weights = float_values(table.column(named[0]))
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise NotApplicable(f"the survey weight '{named[0]}' has values that are missing, or not above 0")
        classes = comparison.key_classes[side]
        sums = np.bincount(classes, weights=weights).astype(np.float64)
        if sums.sum() >= _LARGEST_POPULATION:
            raise NotApplicable(f"the weights '{named[0]}' sum to {sums.sum():.3g} persons, 2^63 or more")
        sizes = np.bincount(classes)
        values[when] = population_uniques(sizes, sums)
        if (households := _households(comparison, side, table)) is not None:
            risks = row_risks(sizes, sums)[classes]
            values[when]["household_risk"] = household_risk(risks, households)
    return Finding(values, fields)


def _households(comparison: Comparison, side: Side, table: pa.Table) -> Int64Array | None:
    """Return the household of each row of a table, from 0 on; None if nothing names their field."""
    params = comparison.release.parameters
    of_run = getattr(params, "household", None) or getattr(params, "household_check", None)
    name = comparison.options.household_field or of_run
    found = unit_codes(table, name)
    if found is None and side == "destination" and comparison.aligned:
        source = unit_codes(comparison.release.source, name)
        return None if source is None else comparison.by_destination_row(source)
    return found


_WORDS = {
    "population": "persons of the population",
    "unique": "share of rows unique in the table",
    "benedetti_franconi": "unique in the population, by Benedetti and Franconi",
    "pitman": "unique in the population, by Pitman's formula",
    "zayatz": "unique in the population, by Zayatz",
    "reidentified": "expected share re-identified",
    "correct_match": "probability that a unique match is correct",
    "household_risk": "expected share of households with a member re-identified",
}

MEASURE = Measure(
    key="population_uniques",
    title="Uniques in the population",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="expected share of the rows that are unique in the population, over the classes of f rows and "
    "the sum w of their weights: sum of 1 / w over f = 1, divided by n (Benedetti and Franconi); n_1 / n "
    "prod for i = n to N - 1 of (theta + alpha + i - 1) / (theta + i), theta and alpha fitted by maximum "
    "likelihood (Pitman, Hoshino); n_1 / n P(1 | 1) C_1 / sum of P(1 | i) C_i, P hypergeometric, C_i "
    "classes of i rows (Zayatz). reidentified: sum of f E(1 / F | f) / n, F - f negative binomial with p = f "
    "/ w. household_risk: mean over the households of 1 - prod(1 - r_i), r_i = E(1 / F | f). correct_match: "
    "pi n_1 / (pi n_1 + 2 (1 - pi) n_2), pi = n / N",
    source="Benedetti and Franconi 1998; Hoshino 2001, J. Off. Stat. 17, 499-520; Zayatz 1991; Skinner and "
    "Elliot 2002, doi:10.1111/1467-9868.00365",
    cost="O(n log n)",
    find=_find,
    parts=tuple(
        Part(f"after.{key}")
        for key in (
            "benedetti_franconi",
            "pitman",
            "zayatz",
            "reidentified",
            "correct_match",
            "household_risk",
        )
    ),
    needs=("key_fields",),
    needs_each=("weight_fields",),
    uses=("rounding", "household_field"),
    words={f"{within}{key}": words for within in ("", "before.", "after.") for key, words in _WORDS.items()},
)
