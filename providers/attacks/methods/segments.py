"""Values of a LOCALITY release and its source, segment by segment, and the success of an intruder."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.figures import AttackResult, successes
from providers.attacks.methods.groups import checked_params
from providers.attacks.tables import AttackTables
from providers.attacks.units import known_share_of, of_whole_units, one_of_each
from providers.localities.segments import segment_starts
from providers.measures.shared.columns import plain_type
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.services.locality import LocalityParams

_WHOLE = 2.0**53
"""Number from which every float64 is whole, so that nothing is left to round."""


@dataclass(frozen=True, slots=True)
class RedrawnValues:
    """One redrawn field."""

    name: str
    source: Float64Array
    """True values, NaN if missing; shape (rows,)."""
    release: Float64Array
    """Published values; shape (rows,)."""
    unit: float
    """Distance between neighbouring values that the field's type can hold; 0 for floating-point numbers."""
    offset: float
    """Number that was subtracted from both."""
    is_time: bool
    """Whether the values are dates, so that a relative error means nothing."""

    def near(self, guesses: Float64Array | float, tolerance: float) -> BoolArray:
        """Whether guesses of all rows are as near to the true values as the option `tolerance` says."""
        if self.is_time:
            low, high = np.nanquantile(self.release, [0.25, 0.75])
            limit = np.full(len(self.source), tolerance * (high - low))
        else:
            limit = tolerance * np.abs(self.source + self.offset)
        found: BoolArray = np.abs(guesses - self.source) <= limit
        return found

    def rounded(self, guesses: Float64Array) -> Float64Array:
        """Return the nearest numbers that the field's type can hold, as the field's own values are read."""
        if self.unit == 0:
            return guesses
        if self.unit >= 1:
            return np.asarray(np.rint(guesses / self.unit) * self.unit)
        # 0.1 is no float64, but 10 is: the quotient of two whole numbers is the float64 of the decimal.
        count = float(round(1 / self.unit))
        units = guesses * count
        return np.where(np.abs(units) < _WHOLE, np.rint(units) / count, guesses)


def redrawn_values(tables: AttackTables) -> tuple[LocalityParams, list[RedrawnValues]]:
    """Return the parameters and the redrawn fields that take part in attacks.

    Raises
    ------
    NotApplicable
        There is no such field, or rows cannot be compared.
    """
    tables.need_aligned()
    params: LocalityParams = checked_params(tables)
    found = []
    for name in params.fields:
        if name in tables.columns and tables.is_number(name):
            column = tables.columns[name]
            kind = plain_type(tables.source.schema.field(name).type)
            before, after = tables.numbers(name, "source"), tables.numbers(name, "release")
            is_time = bool(pa.types.is_temporal(kind))
            found.append(RedrawnValues(name, before, after, unit_of(kind), column.offset, is_time))
    if not found:
        raise NotApplicable("no redrawn field takes part in attacks")
    return params, found


def unit_of(kind: pa.DataType) -> float:
    """Return the distance between neighbouring values of a type, as attacks read numbers; 0 if none."""
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return 1.0
    return float(10.0**-kind.scale) if pa.types.is_decimal(kind) else 0.0


def segments_of(rows: int, size: int) -> Iterator[slice]:
    """Yield the segments of consecutive rows, as LOCALITY cuts them."""
    starts = segment_starts(rows, size).tolist()
    for start, stop in pairwise(starts):
        yield slice(start, stop)


def known_rows(tables: AttackTables) -> BoolArray:
    """Return the mask of the rows whose true values the intruder knows: whole units; shape (rows,)."""
    units, share = tables.units("source"), tables.options.known_share
    if tables.named_rows is not None:
        return of_whole_units(tables.named_rows, units)
    return known_share_of(tables.source.num_rows, units, share, 1, tables.stream, "known rows")


def attacked_rows(tables: AttackTables, known: BoolArray, values: RedrawnValues) -> Int64Array:
    """Return random rows that have a value and are not known, one of each unit.

    Raises
    ------
    NotApplicable
        There is no such row.
    """
    candidates = np.flatnonzero(~known & np.isfinite(values.source) & np.isfinite(values.release))
    candidates = one_of_each(candidates, tables.units("source"), tables.stream, "redrawn rows")
    picked = sample_rows(len(candidates), tables.options.attacks, tables.stream, "redrawn rows")
    if not len(picked):
        raise NotApplicable(f"no row of '{values.name}' has a value that the intruder does not know")
    return candidates[picked].astype(np.int64)


def judge(
    tables: AttackTables,
    values: RedrawnValues,
    guesses: Float64Array,
    targets: Int64Array,
    known: BoolArray,
    details: dict[str, Any],
) -> AttackResult:
    """Count the right guesses: exact for whole numbers, decimals and dates, and near for other values.

    The baseline guesses one value for all rows: the commonest exact value or the median, of the known rows
    or, if there are none, of the release.

    Parameters
    ----------
    tables : AttackTables
    values : RedrawnValues
    guesses : ndarray of float64, shape (targets,)
        Guessed values of the attacked rows.
    targets : ndarray of int64, shape (targets,)
    known : ndarray of bool, shape (rows,)
        Rows whose true values the intruder knows.
    details : dict
        Figures of the attack.
    """
    true = values.source[targets]
    seen = values.source[known] if known.any() else values.release
    seen = values.rounded(seen[np.isfinite(seen)])
    codes, counts = np.unique(seen, return_counts=True)
    guessed = 0.0 if not len(seen) else float(codes[counts.argmax()] if values.unit else np.median(seen))
    every_guess = np.full(len(values.source), np.nan)
    every_guess[targets] = guesses
    tolerance = tables.options.tolerance
    near = values.near(every_guess, tolerance)[targets]
    right = guesses == true if values.unit else near
    base = np.equal(guessed, true) if values.unit else values.near(guessed, tolerance)[targets]
    spread = float(np.std(values.source[np.isfinite(values.source)]))
    confidence = tables.options.confidence
    return AttackResult(
        successes(int(right.sum()), len(targets), confidence),
        successes(int(base.sum()), len(targets), confidence),
        None,
        None,
        note="A value that was not in the source is not redrawn: there is no control.",
        details={
            "exact": values.unit > 0,
            "within_tolerance": int(near.sum()),
            "tolerance": tolerance,
            "mean_error": float(np.abs(guesses - true).mean()),
            "mean_error_in_deviations": float(np.abs(guesses - true).mean() / spread) if spread > 0 else None,
            **details,
        },
    )
