"""Membership: the release shows whether a row was in the source.

The intruder claims that a row was in the source if a released row is closer to it than to most rows that were
not in the source. The rule is made on a random half of the control rows, so that one in twenty of them is
claimed wrongly; the other half and the rows of the source are attacked. If the release left some of the
fields nearly unchanged, an intruder who compares only these fields attacks as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, successes
from providers.attacks.intruders import ALL_FIELDS, UNCHANGED_FIELDS, Run, details_of, strongest
from providers.attacks.nearest import closest_distances
from providers.attacks.tables import AttackTables, Rows
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import uniforms
from providers.progress import Progress, sub_progress

CLAIMED = 0.05
"""Share of rows that were not in the source and are claimed all the same."""

_LEAST_CONTROL = 40
"""Control rows without which the limit cannot be chosen."""

NOTE = (
    "A low success does not show that membership is safe: distances to the closest record miss intruders who "
    "train models of the service on tables with and without a person (Yao et al. 2025, arXiv:2505.01524)."
)


class Claim:
    """Rule that claims a share of `CLAIMED` of the rows that were not in the source.

    It claims a row that is closer than a limit, and a row at the limit with a probability, since many rows
    may be equally close. No other rule on distances claims more members (Neyman and Pearson).
    """

    def __init__(self, distances: Float64Array) -> None:
        """``distances``: of rows that were not in the source, shape (rows,)."""
        wanted = CLAIMED * len(distances)
        self.limit = float(np.sort(distances)[int(wanted)])
        below, equal = ((distances < self.limit).sum(), (distances == self.limit).sum())
        self.chance = float((wanted - below) / equal)

    def of(self, distances: Float64Array, numbers: Float64Array) -> BoolArray:
        """Mask of the claimed rows; ``numbers``: one uniform number for each row."""
        return np.asarray((distances < self.limit) | ((distances == self.limit) & (numbers < self.chance)))


@dataclass(frozen=True, slots=True)
class _Claims:
    """Successes of one intruder, and the area under the curve of the distances."""

    run: Run
    area_under_curve: float


def area_under_curve(members: Float64Array, others: Float64Array) -> float:
    """Probability that a random member is closer to the release than a random other row; ties count half."""
    ordered = np.sort(others)
    farther = len(others) - np.searchsorted(ordered, members, "right")
    equal = np.searchsorted(ordered, members, "right") - np.searchsorted(ordered, members, "left")
    return float((farther + equal / 2).sum() / (len(members) * len(others)))


def _claims(
    tables: AttackTables, fields: Sequence[str], used: Sequence[str] | None, report: Progress
) -> _Claims:
    """Claim rows by their distances on these fields."""
    released = tables.encode(fields, "release")
    sides: tuple[tuple[Rows, Int64Array], ...] = (
        ("source", tables.targets),
        ("control", tables.control_targets),
    )
    found = []
    for place, (rows, targets) in enumerate(sides):
        progress = sub_progress(report, place / 2, (place + 1) / 2)
        found.append(closest_distances(tables.encode(fields, rows).take(targets), released, progress))
    members, others = found
    one_half, other_half = tables.control_halves
    claim = Claim(others[one_half])
    confidence = tables.options.confidence
    numbers = uniforms(len(members) + len(others), tables.stream, "claims at the limit")
    claimed = claim.of(members, numbers[: len(members)])
    wrongly = claim.of(others[other_half], numbers[len(members) :][other_half])
    guesses = uniforms(len(members), tables.stream, "claims") < CLAIMED
    run = Run(
        successes(int(claimed.sum()), len(claimed), confidence),
        successes(int(wrongly.sum()), len(wrongly), confidence),
        successes(int(guesses.sum()), len(members), confidence),
        used,
    )
    return _Claims(run, area_under_curve(members, others))


def _run(tables: AttackTables) -> AttackResult:
    if tables.control is None:
        raise NotApplicable("it needs control rows, or a release of a service with known parameters")
    if len(tables.control_targets) < _LEAST_CONTROL:
        unit = tables.method.unit_field if tables.method else None
        each = "" if unit is None else f", each of another unit of '{unit}'"
        raise NotApplicable(f"it needs {_LEAST_CONTROL} control rows or more{each}")
    if not tables.columns:
        raise NotApplicable("no field takes part")
    fields = list(tables.columns)
    unchanged = tables.unchanged_among(fields)
    intruders: dict[str, Sequence[str] | None] = {ALL_FIELDS: None}
    if unchanged:
        intruders[UNCHANGED_FIELDS] = unchanged
    found: dict[str, _Claims] = {}
    for place, (intruder, used) in enumerate(intruders.items()):
        report = sub_progress(tables.progress, place / len(intruders), (place + 1) / len(intruders))
        found[intruder] = _claims(tables, used or fields, used, report)
    runs = {intruder: each.run for intruder, each in found.items()}
    stronger = strongest(runs)
    chosen = runs[stronger]
    details: dict[str, Any] = {"area_under_curve": found[stronger].area_under_curve}
    if unchanged:
        details |= details_of(runs, stronger)
    return AttackResult(chosen.attack, chosen.baseline, chosen.control, chosen.risk, NOTE, details)


ATTACK = Attack(
    name="membership",
    title="Membership",
    meaning="The release shows that a row which the intruder has was in the source.",
    source="Hilprecht, Haerterich and Bernau 2019, PoPETs 2019(4), 232-249, doi:10.2478/popets-2019-0067",
    run=_run,
    cost="O(a n) distances",
)
