"""Record linkage: share of rows that an intruder who knows some fields links to their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from providers.arrays import Float64Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.entropy import range_is_stretched
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.record_distance import COST, chances_of_link
from providers.measures.shared.repeats import Interval, interval_of_rows, share_interval
from providers.neighbours.closest_record import Units, closest, units_of

_MOST_CHANGED = (0.5, 0.05, 0.0)
"""Shares of changed rows up to which intruders use a known field: each costs a search."""


@dataclass(frozen=True, slots=True)
class _Search:
    """Search of an intruder by some of the known fields."""

    used: list[str]
    by_ranks: bool
    """Whether numbers are compared by their ranks in the source, in place of by their share of its range."""
    chances: Float64Array
    """Chance of each row of the sample to be found; shape (rows,)."""

    @property
    def rate(self) -> float:
        """Share of the rows that are found."""
        return float(self.chances.mean())


def by_chance(rows: int, units: Units | None = None) -> float:
    """Share of rows that are found by linking at random; with units, any row of the same unit is found."""
    return 1.0 / rows if units is None else float((np.diff(units.starts) ** 2).sum()) / rows**2


def _find(comparison: Comparison) -> Finding:
    fields = comparison.options.known_fields or comparison.options.key_fields
    if not fields:
        raise NotApplicable("name what an intruder may know in 'known_fields' or 'key_fields'")
    comparison.need_aligned()
    comparison.need_rows()
    known = [name for name in fields if name in comparison.compared]
    if not known:
        raise NotApplicable("none of the known fields can be compared")
    units = _units(comparison)
    found = [
        _Search(used, by_ranks, chances_of_link(closest(*comparison.points(used, by_ranks), units=units)))
        for used in _used_fields(comparison, known)
        for by_ranks in ([False, True] if _any_stretched(comparison, used) else [False])
    ]
    best = max(found, key=lambda each: each.rate)  # of equal rates that with more fields
    notes = comparison.unit_note
    if best.by_ranks:
        notes["by_ranks"] = True
    if best.used != known:
        notes["all_known"] = {"fields": known, "rate": max(each.rate for each in found if each.used == known)}
    rows = comparison.sample.size
    if rows is not None:
        notes["interval"] = {"rate": _interval(best, units, comparison)}
    chance = by_chance(len(comparison.sample.source), units)
    return Finding({"rate": best.rate, "chance": chance}, best.used, rows, notes)


def _interval(search: _Search, units: Units | None, comparison: Comparison) -> Interval:
    """Return the interval of the rate: of as many independent rows as there are units, if there are some."""
    if units is not None:
        return share_interval(search.rate, len(units.starts) - 1)
    return interval_of_rows(search.chances, comparison.sampled_clusters)


def _used_fields(comparison: Comparison, known: list[str]) -> list[list[str]]:
    """Return the fields of intruders who ignore the most changed fields: first all known fields, then fewer.

    A changed field is noise in the distance, so that an intruder with more knowledge would find fewer rows.
    """
    shares = {name: comparison.changed_share(name) for name in known}
    found = [known]
    for most in _MOST_CHANGED:
        used = [name for name in known if shares[name] <= most]
        if used and used != found[-1]:
            found.append(used)
    return found


def _any_stretched(comparison: Comparison, used: list[str]) -> bool:
    """Whether an extreme value hides the differences between the other numbers of a used field."""
    columns = (comparison.columns[name] for name in used)
    return any(each.kind != "category" and range_is_stretched(each.numbers("source")) for each in columns)


def _units(comparison: Comparison) -> Units | None:
    """Return the units of the sample's rows; None without units."""
    of_row = comparison.units["source"]
    if of_row is None:
        return None
    _, of_sampled_row = np.unique(of_row[comparison.sample.source], return_inverse=True)
    return units_of(of_sampled_row.astype(np.int64))


MEASURE = Measure(
    key="record_linkage",
    title="Record linkage",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="PSCR on known fields alone: mean over i of [d(x_i, y_i) = m_i] / t_i, on all known fields or on "
    "those that differ in at most 50 %, 5 % or 0 % of the rows, whichever is most; if extreme values "
    "stretch the range of a field, also with ranks in place of numbers; with units, each row of i's unit is "
    "its own; chance: 1 / n, with units the sum of their squared sizes / n^2",
    source="Perry, Matloff and Tendick 2024, 9.1.3",
    cost=COST,
    find=_find,
    parts=(Part("rate", guessing=True, share_of_rows=True),),
    needs=("known_fields", "key_fields"),
    words={"rate": "re-identified", "chance": "by chance alone"},
)
