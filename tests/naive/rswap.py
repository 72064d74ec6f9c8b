"""RSWAP in plain Python: households exchange their geography with similar ones elsewhere, pair by pair."""

import hashlib
import math
from collections import Counter
from statistics import median
from typing import Any

from providers.services.rswap import RswapParams
from tests.naive.chacha20 import block, derive_key
from tests.naive.draws import logarithm
from tests.naive.swapping import Outcome, Table, differing, row_count

Members = dict[Any, list[int]]


def households_of(table: Table, params: RswapParams) -> Members:
    """Id -> rows of its members; a table without ids has the row numbers."""
    members: Members = {}
    ids = table[params.household] if params.household is not None else list(range(row_count(table)))
    for row, name in enumerate(ids):
        members.setdefault(name, []).append(row)
    return members


def identity(name: Any) -> int:
    """Return 64 bits of a household's id."""
    if isinstance(name, str):
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return int(name) % 2**64


def open_uniform(high: int, low: int) -> float:
    """Return (k + 1/2) / 2^52 for the upper 52 bits of two words."""
    return (((high << 32 | low) >> 12) + 0.5) * 2.0**-52


class Draws:
    """Random numbers of a run."""

    def __init__(self, seed: bytes, revision: int) -> None:
        self._seed, self._revision = seed, revision

    def words(self, purpose: str, identity: int, level: int) -> list[int]:
        key = derive_key(self._seed, "RSWAP", self._revision, purpose)
        return block(key, 0, [identity % 2**32, identity >> 32, level])

    def exponential(self, household: Any, level: int, donor: bool) -> float:
        words = self.words("household", identity(household), level)[2 * donor :]
        return -logarithm(open_uniform(words[0], words[1]))


def exact(value: Any) -> Any:
    """Return a key that is equal only for the same value: floats by their bits."""
    return repr(value) if isinstance(value, float) else (type(value), value)


class Survey:
    """Facts of the source about each household."""

    def __init__(self, table: Table, params: RswapParams) -> None:
        self.table, self.params = table, params
        self.members = households_of(table, params)
        self.levels = len(params.hierarchy)
        self.counts = [
            Counter(
                (self.area(name, level), self.person(row))
                for name, rows in self.members.items()
                for row in rows
            )
            for level in range(self.levels)
        ]

    def value(self, name: Any, field: str) -> Any:
        return exact(self.table[field][self.members[name][0]])

    def area(self, name: Any, level: int) -> tuple[Any, ...]:
        return tuple(self.value(name, field) for field in self.params.hierarchy[: level + 1])

    def person(self, row: int) -> tuple[Any, ...]:
        return tuple(exact(self.table[field][row]) for field in self.params.risk_fields)

    def risk(self, name: Any, level: int) -> float:
        rows = self.members[name]
        if self.params.risk:
            field = self.params.risk[level if len(self.params.risk) > 1 else 0]
            return max(float(self.table[field][row]) for row in rows)
        if not self.params.risk_fields:
            return 0.0
        area = self.area(name, level)
        return max(1 / self.counts[level][area, self.person(row)] for row in rows)

    def required(self, name: Any) -> int | None:
        """Return the first level at which the household must be swapped."""
        for level in range(self.levels):
            risk = self.risk(name, level)
            if self.params.risk:
                assert self.params.risk_threshold is not None
                if risk > self.params.risk_threshold:
                    return level
            elif risk > 0 and round(1 / risk) < self.params.k_anonymity:
                return level
        return None

    def profile(self, number: int, name: Any) -> tuple[Any, ...]:
        return tuple(self.value(name, field) for field in self.params.similar[number])

    def agree(self, one: Any, two: Any, number: int) -> bool:
        return not self.params.similar or self.profile(number, one) == self.profile(number, two)

    def partners(self, name: Any, level: int, number: int) -> list[Any]:
        """Return the households of another area that agree on a profile."""
        area = self.area(name, level)
        return [
            other
            for other in self.members
            if self.area(other, level) != area and self.agree(name, other, number)
        ]


def rank(survey: Survey, draws: Draws, name: Any, level: int, donor: bool) -> tuple[float, float, int]:
    """Return the sort key of a household: the largest risk / exponential, then the least exponential."""
    exponential = draws.exponential(name, level, donor)
    return -(survey.risk(name, level) / exponential), exponential, identity(name)


def quotas(survey: Survey, draws: Draws) -> dict[Any, int]:
    """Share the swaps of the rate among the finest areas, in the order of their smallest identity."""
    count = len(survey.members)
    total = min(math.floor(count * survey.params.swap_rate / 2 + 0.5), count // 2)
    words = draws.words("quota", 0, 0)
    uniform = open_uniform(words[0], words[1])
    areas: dict[Any, list[int]] = {}
    for name in survey.members:
        areas.setdefault(survey.area(name, survey.levels - 1), []).append(identity(name))
    shares: dict[Any, int] = {}
    before = households = 0
    for area in sorted(areas, key=lambda area: min(areas[area])):
        households += len(areas[area])
        reached = math.floor(total * households / count + uniform)
        shares[area], before = reached - before, reached
    return shares


def swap(table: Table, params: RswapParams, seed: bytes, revision: int) -> Outcome:
    """Swap households level by level, then to the quota of each area."""
    survey, draws = Survey(table, params), Draws(seed, revision)
    finest = survey.levels - 1
    quota = quotas(survey, draws)
    total = sum(quota.values())
    partner: dict[Any, Any] = {}
    profile_of: Counter[int] = Counter()
    without: Counter[int] = Counter()
    made: dict[Any, int] = {}
    obliged_at: Counter[int] = Counter()
    unmatched: set[Any] = set()
    obliged = added = 0

    def find(name: Any, level: int) -> bool:
        for number in range(max(1, len(params.similar))):
            free = [
                other
                for other in survey.partners(name, level, number)
                if other not in partner and other not in unmatched
            ]
            if free:
                donor = min(free, key=lambda other: rank(survey, draws, other, level, True))
                partner[name], partner[donor] = donor, name
                made[name] = made[donor] = level
                profile_of[number] += 1
                return True
            without[number] += name in requests
        return False

    requests: list[Any] = []
    for level in range(survey.levels):
        requests = [name for name in survey.members if survey.required(name) == level and name not in partner]
        for name in sorted(requests, key=lambda name: rank(survey, draws, name, level, False)):
            if name in partner:
                continue  # it was the donor of an earlier one
            if find(name, level):
                obliged += 1
                obliged_at[level] += 1
                quota[survey.area(name, finest)] -= 1
            else:
                unmatched.add(name)
    requests = []
    rest = [name for name in survey.members if name not in partner and name not in unmatched]
    for name in sorted(rest, key=lambda name: rank(survey, draws, name, finest, False)):
        area = survey.area(name, finest)
        if name not in partner and quota[area] > 0 and find(name, finest):
            quota[area] -= 1
            added += 1
    for name in sorted(rest, key=lambda name: rank(survey, draws, name, finest, False)):
        if name not in partner and obliged + added < total and find(name, finest):
            added += 1
    out = destination(survey, partner, unmatched)
    if obliged + added < total:
        out.events["quota_not_met"] += 1
    out.provider = {
        "households": len(survey.members),
        "swapped_households": len(partner),
        "wanted_swaps": total,
        "obliged_swaps": obliged,
        "added_swaps": added,
        "overshoot": max(0, obliged + added - total),
        "unmatched_households": len(unmatched),
        "swaps_by_profile": {
            ", ".join(fields) or "any household": profile_of[number]
            for number, fields in enumerate(params.similar or ((),))
        },
        "unmatched_by_profile": {
            ", ".join(fields) or "any household": without[number]
            for number, fields in enumerate(params.similar or ((),))
        },
        "risk_deciles": deciles(survey, partner),
        "levels": {},
        "area_populations": {},
        "similar_by_area": {},
    }
    for level, name in enumerate(params.hierarchy):
        add_level(out.provider, name, survey, level, partner, unmatched)
        here = sum(made[household] == level for household in made)
        out.provider["levels"][name] |= {
            "swapped_households": here,
            "obliged_swaps": obliged_at[level],
            "added_swaps": here // 2 - obliged_at[level],
        }
    return out


def deciles(survey: Survey, partner: dict[Any, Any]) -> dict[str, dict[str, Any]]:
    """Count the swaps by the tenth into which the share of households with less risk falls."""
    risks = {name: survey.risk(name, survey.levels - 1) for name in survey.members}
    inside: dict[int, list[Any]] = {}
    for name, risk in risks.items():
        less = sum(other < risk for other in risks.values())
        inside.setdefault(10 * less // len(risks), []).append(name)
    return {
        str(number + 1): {
            "from_risk": min(risks[name] for name in names),
            "to_risk": max(risks[name] for name in names),
            "households": len(names),
            "required": sum(survey.required(name) is not None for name in names),
            "swapped": sum(name in partner for name in names),
        }
        for number, names in sorted(inside.items())
    }


def add_level(
    figures: dict[str, Any],
    field: str,
    survey: Survey,
    level: int,
    partner: dict[Any, Any],
    unmatched: set[Any],
) -> None:
    """Compare the tables of a level before and after."""
    before = {name: survey.area(name, level) for name in survey.members}
    after = {name: before[partner.get(name, name)] for name in before}
    moved = [name for name in before if before[name] != after[name]]
    size = {name: len(rows) for name, rows in survey.members.items()}
    figures["levels"][field] = {
        "areas": len(set(before.values())),
        "required_households": sum(survey.required(name) == level for name in before),
        "unmatched_households": sum(survey.required(name) == level for name in unmatched),
        "moved_households": len(moved),
        "moved_persons": sum(size[name] for name in moved),
    }
    households, _ = differences(before, after, dict.fromkeys(before, 1))
    persons, sums = differences(before, after, size)
    figures["area_populations"][field] = {
        "areas_with_other_households": sum(change > 0 for change in households.values()),
        "areas_with_other_persons": sum(change > 0 for change in persons.values()),
        "largest_change_of_persons": max(persons.values(), default=0),
        "largest_share_of_persons": max((persons[area] / sums[area] for area in sums), default=0.0),
        "total_change_of_persons": sum(persons.values()),
    }
    for similar in dict.fromkeys(name for profile in survey.params.similar for name in profile):
        values = {name: survey.value(name, similar) for name in before}
        change, cells = differences(
            {name: (area, values[name]) for name, area in before.items()},
            {name: (area, values[name]) for name, area in after.items()},
            dict.fromkeys(before, 1),
        )
        figures["similar_by_area"][f"{similar} by {field}"] = {
            "cells": len(cells),
            "changed_cells": sum(value > 0 for value in change.values()),
            "largest_change": max(change.values(), default=0),
            "total_change": sum(change.values()),
        }


def differences(
    before: dict[Any, Any], after: dict[Any, Any], weight: dict[Any, int]
) -> tuple[dict[Any, int], Counter[Any]]:
    """Return how much the weight of each cell changes, and what it was."""
    old, new = Counter[Any](), Counter[Any]()
    for name in before:
        old[before[name]] += weight[name]
        new[after[name]] += weight[name]
    return {cell: abs(new[cell] - old[cell]) for cell in {*old, *new}}, old


def destination(survey: Survey, partner: dict[Any, Any], unmatched: set[Any]) -> Outcome:
    """Exchange the moved fields, and build the figures."""
    table, params = survey.table, survey.params
    out = Outcome({name: list(values) for name, values in table.items()})
    moved = [*params.hierarchy, *params.carry_along]
    rows = row_count(table)
    for field in moved:
        for name, other in partner.items():
            for row in survey.members[name]:
                out.table[field][row] = table[field][survey.members[other][0]]
        out.changed[field] = len(differing(table[field], out.table[field]))
        if params.unmatched == "suppress":
            for name in unmatched:
                for row in survey.members[name]:
                    out.table[field][row] = None
    swapped = sum(len(survey.members[name]) for name in partner)
    without = sum(len(survey.members[name]) for name in unmatched)
    out.took_part = swapped
    out.took_part_by_field = dict.fromkeys(moved, swapped)
    out.unswapped = rows - swapped
    reasons = {"unmatched": without, "rate": rows - swapped - without}
    out.unswapped_reasons = {reason: count for reason, count in reasons.items() if count}
    out.suppressed = without if params.unmatched == "suppress" else 0
    if without:
        out.events["suppressed" if params.unmatched == "suppress" else "kept"] += without
    sizes: Counter[Any] = Counter()
    for name, members in survey.members.items():
        sizes[survey.area(name, survey.levels - 1)] += len(members)
    out.groups = len(sizes)
    if sizes:
        out.group_size = (min(sizes.values()), float(median(sizes.values())), max(sizes.values()))
    profiles = range(max(1, len(params.similar)))
    for name, members in survey.members.items():
        level = survey.required(name)
        if level is not None and not any(survey.partners(name, level, number) for number in profiles):
            out.unswappable += len(members)
    if params.risk:
        for field in params.risk:
            torn = [len({table[field][row] for row in rows}) > 1 for rows in survey.members.values()]
            out.events["risk_differs"] += any(torn)
    out.events = +out.events
    return out
