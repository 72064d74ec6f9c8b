"""Record linkage: share of rows that an intruder who knows some fields links to their own."""

from __future__ import annotations

import numpy as np

from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.record_distance import COST, share_linked
from providers.measures.shared.repeats import share_interval
from providers.neighbours.closest_record import Units, closest, units_of
from providers.neighbours.points import Points
from providers.params import SwapParams
from providers.tables.codes import codes

_MOST_CHANGED = (0.5, 0.05, 0.0)
"""Shares of changed rows up to which intruders use a known field: each costs a search."""


def record_linkage(source: Points, destination: Points, units: Units | None = None) -> dict[str, float]:
    """Share of rows that an intruder links to their own, and the share by linking at random.

    The intruder uses the fields of the points and takes the closest released row, or any of several rows at
    the least distance. With units, any row of the same unit is the person's own.
    """
    rows = len(source.numbers)
    chance = 1.0 / rows if units is None else float((np.diff(units.starts) ** 2).sum()) / rows**2
    return {"rate": share_linked(closest(source, destination, units=units)), "chance": chance}


def _find(comparison: Comparison) -> Finding:
    fields = comparison.options.known_fields or comparison.options.key_fields
    if not fields:
        raise NotApplicable("name what an intruder may know in 'known_fields' or 'key_fields'")
    comparison.need_aligned()
    comparison.need_rows()
    known = [name for name in fields if name in comparison.compared]
    if not known:
        raise NotApplicable("none of the known fields can be compared")
    unit, units = _units(comparison)
    found = [
        (record_linkage(*comparison.points(used), units), used) for used in _used_fields(comparison, known)
    ]
    value, used = max(found, key=lambda each: each[0]["rate"])  # of equal rates that with more fields
    notes: dict[str, object] = {} if unit is None else {"unit": unit}
    if used != known:
        notes["all_known"] = {"fields": known, "rate": found[0][0]["rate"]}
    rows = comparison.sample.size
    if rows is not None:
        independent = rows if units is None else len(units.starts) - 1
        notes["interval"] = {"rate": share_interval(value["rate"], independent)}
    return Finding(value, used, rows, notes)


def _used_fields(comparison: Comparison, known: list[str]) -> list[list[str]]:
    """Return the fields that intruders use who leave out what the release changed most, all known ones first.

    A changed field is noise in the distance, so that an intruder with more knowledge would find fewer rows.
    """
    shares = {name: comparison.changed_share(name) for name in known}
    found = [known]
    for most in _MOST_CHANGED:
        used = [name for name in known if shares[name] <= most]
        if used and used != found[-1]:
            found.append(used)
    return found


def _units(comparison: Comparison) -> tuple[str | None, Units | None]:
    """Return the field of the units of the run, and the units of the sample's rows; None without units."""
    parameters = comparison.release.parameters
    unit = parameters.unit_id if isinstance(parameters, SwapParams) else None
    if unit is None:
        return None, None
    of_row, _ = codes(comparison.release.source.column(unit))
    _, of_sampled_row = np.unique(of_row[comparison.sample.source], return_inverse=True)
    return unit, units_of(of_sampled_row.astype(np.int64))


MEASURE = Measure(
    key="record_linkage",
    title="Record linkage",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="PSCR on known fields alone: mean over i of [d(x_i, y_i) = m_i] / t_i, on all known fields or on "
    "those that differ in at most 50 %, 5 % or 0 % of the rows, whichever is most; with units, each row of "
    "i's unit is its own; chance: 1 / n, with units the sum of their squared sizes / n^2",
    source="Perry, Matloff and Tendick 2024, 9.1.3",
    cost=COST,
    find=_find,
    parts=(Part("rate", guessing=True, share_of_rows=True),),
    needs=("known_fields", "key_fields"),
    words={"rate": "re-identified", "chance": "by chance alone"},
)
