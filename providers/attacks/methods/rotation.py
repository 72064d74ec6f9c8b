"""Numbers of a PABIDOT release and its source as z-scores, and the count of values that a guess recovers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Float64Array, IndexArray, Int64Array
from providers.attacks.figures import AttackResult, Successes, share_of
from providers.attacks.methods.groups import checked_params
from providers.attacks.tables import AttackTables
from providers.attacks.units import known_share_of, of_whole_units, one_of_each
from providers.measures.shared.columns import column_of
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.repeats import variance_of_mean
from providers.measures.shared.sampling import sample_rows

NEAR = 0.25
"""Largest error of a recovered value, in standard deviations of its field."""
LEAST_ROWS = 10
"""Least number of rotated rows that are attacked."""


@dataclass(frozen=True, slots=True)
class RotatedRows:
    """Rotated fields that vary, in rows without missing values."""

    fields: list[str]
    source: Float64Array
    """z-scores of the source by its own means and standard deviations; shape (rows, fields)."""
    release: Float64Array
    """Published values on the same scale, in the order of `source`; shape (rows, fields)."""
    sigma: float
    """Standard deviation of the noise, in standard deviations of a field."""
    rows: IndexArray
    """Row of the source of each row; shape (rows,)."""
    units: Int64Array | None
    """Unit of each row, from 0 on; None: rows stand alone."""

    @property
    def known_noun(self) -> str:
        """Name of the units of which the intruder knows a share."""
        return "rows" if self.units is None else "units"


def rotated_rows(tables: AttackTables) -> RotatedRows:
    """Read the rotated fields.

    Raises
    ------
    NotApplicable
        Fewer than two fields or ten rows were rotated, or it is not known which row became which.
    """
    tables.need_aligned()
    params = checked_params(tables)
    order = slice(None) if tables.origin is None else tables.origin
    pairs = {}
    for name in params.fields:  # all of them: a weight that was rotated with the others is part of each
        column = column_of(name, tables.source.column(name), tables.release.column(name), False)
        before, after = column.numbers("source")[order], column.numbers("destination")
        present = before[np.isfinite(before)]
        if len(present) and present.min() < present.max():
            pairs[name] = before, after
    if len(pairs) < 2:
        raise NotApplicable("fewer than two of the rotated fields vary")
    before, after = (np.column_stack([pair[side] for pair in pairs.values()]) for side in range(2))
    complete = np.isfinite(before).all(axis=1) & np.isfinite(after).all(axis=1)
    before, after = before[complete], after[complete]
    rows = np.arange(tables.source.num_rows)[order][complete]
    units = tables.units("source")
    if units is not None:
        units = np.unique(units[rows], return_inverse=True)[1].astype(np.int64)
    if len(before) < LEAST_ROWS:
        raise NotApplicable(f"it needs {LEAST_ROWS} rows that were rotated")
    mean, deviation = before.mean(axis=0), before.std(axis=0, ddof=1)
    if not (deviation > 0).all():
        raise NotApplicable("a field is constant among the rows that were rotated")
    source, release = (before - mean) / deviation, (after - mean) / deviation
    return RotatedRows(list(pairs), source, release, float(params.sigma), rows, units)


def known_indices(
    tables: AttackTables, rotated: RotatedRows, least: int, share: float | None = None
) -> Int64Array:
    """Return the rows whose true values the intruder knows, ascending: those named, or random ones.

    Parameters
    ----------
    tables : AttackTables
    rotated : RotatedRows
    least : int
        Least number of random rows, or of units all of whose rows are known; one fewer than all at most.
    share : float, optional
        Share of the rows or units.
    """
    rows, units = len(rotated.source), rotated.units
    if tables.named_rows is not None:
        named = np.flatnonzero(of_whole_units(tables.named_rows[rotated.rows], units))
        if not len(named):
            raise NotApplicable("none of the rows that 'known_rows' names was rotated")
        return named
    all_of_them = rows if units is None else int(units.max()) + 1
    if all_of_them < 2:
        raise NotApplicable("all rows that were rotated are of one unit")
    count = min(max(least, round((share or 0.0) * all_of_them)), all_of_them - 1)
    purpose = f"{count} known rows"
    return np.flatnonzero(known_share_of(rows, units, 0.0, count, tables.stream, purpose)).astype(np.int64)


def judge(
    tables: AttackTables,
    rotated: RotatedRows,
    guesses: Float64Array,
    known: Int64Array,
    constant: Float64Array,
    details: dict[str, Any],
) -> AttackResult:
    """Count the values of attacked rows that the guesses recover to within `NEAR`.

    Parameters
    ----------
    tables : AttackTables
    rotated : RotatedRows
    guesses : ndarray of float64, shape (rows, fields)
        Guessed z-scores.
    known : ndarray of int64
        Rows that the intruder knows, which are not attacked.
    constant : ndarray of float64, shape (fields,)
        The baseline's guess, the same for every row: what the intruder knows of each field's distribution.
    details : dict
        Figures of the attack.
    """
    others = np.setdiff1d(np.arange(len(guesses)), known)
    if not len(others):
        raise NotApplicable("the intruder knows all rows")
    attacked = one_of_each(others, rotated.units, tables.stream, "rotated rows")
    targets = attacked[sample_rows(len(attacked), tables.options.attacks, tables.stream, "rotated rows")]
    truth, guess = rotated.source[targets], guesses[targets]
    right = np.abs(guess - truth) <= NEAR
    base = np.abs(constant - truth) <= NEAR
    by_field = r_squared(guesses[others], rotated.source[others])
    confidence = tables.options.confidence
    return AttackResult(
        successes_in_rows(right, confidence),
        successes_in_rows(base, confidence),
        None,
        None,
        note="A row that was not rotated has no image in the release: there is no control.",
        details={
            "rows": len(targets),
            "tolerance_in_deviations": NEAR,
            "r_squared": float(by_field.mean()),
            "r_squared_by_field": dict(zip(rotated.fields, by_field.tolist(), strict=True)),
            **details,
        },
    )


def successes_in_rows(right: BoolArray, confidence: float) -> Successes:
    """Return the share of values that are right, with an interval for dependent values of a row.

    Parameters
    ----------
    right : ndarray of bool, shape (rows, fields)
    confidence : float

    Notes
    -----
    One guess of a rotation recovers all values of a row, or none. The variance between rows gives the number
    of independent values that would be as uncertain; if all values are right, or all wrong, it is that of the
    rows.

    References
    ----------
    Korn and Graubard 1998, Survey Methodology 24, 193-201: intervals of shares by effective sample sizes.
    """
    rows, fields = right.shape
    share = float(right.mean())
    variance, _ = variance_of_mean(right.ravel().astype(np.float64), np.repeat(np.arange(rows), fields))
    effective = min(share * (1 - share) / variance, right.size) if variance > 0 else rows
    return share_of(share, right.size, effective, confidence)


def r_squared(guesses: Float64Array, truth: Float64Array) -> Float64Array:
    """Return the share of each field's variance that guesses explain: 1 if all are right; shape (fields,)."""
    left = ((guesses - truth) ** 2).sum(axis=0)
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    found: Float64Array = 1 - left / np.where(total > 0, total, np.nan)
    return found
