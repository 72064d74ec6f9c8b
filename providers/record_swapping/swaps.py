"""Choose the households to swap and their partners: obligations by level, then the quota of the rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.progress import Progress
from providers.randomness.chacha20 import Key, Stream
from providers.record_swapping.donors import Donors, Swaps, can_match
from providers.record_swapping.draws import exponentials, uniform_words
from providers.record_swapping.risk import Areas, areas_by_level, required_level, risk_by_level
from providers.record_swapping.settings import RecordSwapSettings
from providers.results import Events
from providers.tables.codes import joined
from providers.tables.households import Households, household_codes, households_of


@dataclass(frozen=True, slots=True)
class Survey:
    """Source as codes: households, areas, risks and match profiles."""

    households: Households
    areas: list[Areas]
    """Areas of each level, coarse to fine."""
    risks: list[Float64Array]
    """Risk of each household at each level."""
    required: Int64Array
    """Level at which each household must be swapped, -1 where at none."""
    similar: dict[str, Int64Array]
    """Field of a match profile -> code of each household."""
    profiles: list[tuple[Int64Array, int]]
    """For each match profile, the code of each household, and the number of codes."""


def read_survey(table: pa.Table, settings: RecordSwapSettings, events: Events) -> Survey:
    """Encode the fields of the source that a swap depends on.

    Raises
    ------
    SourceError
        A row has no household, a field differs within a household, or a given risk is no risk.
    """
    households = households_of(table, settings.household)
    areas = areas_by_level(table, households, settings)
    risks = risk_by_level(table, households, areas, settings, events)
    similar: dict[str, tuple[Int64Array, int]] = {}
    profiles = []
    for number, profile in enumerate(settings.similar):
        codes, count = np.zeros(len(households), np.int64), min(1, len(households))
        for index, name in enumerate(profile):
            if name not in similar:
                pointer = f"/parameters/similar/{number}/{index}"
                similar[name] = household_codes(table, name, households, pointer)
            codes, count = joined(codes, *similar[name])
        profiles.append((codes, count))
    for index, name in enumerate(settings.carry_along):
        household_codes(table, name, households, f"/parameters/carry_along/{index}")
    return Survey(
        households,
        areas,
        risks,
        required_level(risks, settings.obliging_risk),
        {name: codes for name, (codes, _) in similar.items()},
        profiles,
    )


def without_donor(survey: Survey) -> BoolArray:
    """Mask of the households that must be swapped and have no household to be swapped with at their level."""
    found = np.zeros(len(survey.households), np.bool_)
    for level, areas in enumerate(survey.areas):
        required = survey.required == level
        if required.any():
            found |= required & ~can_match(survey.profiles, areas.of_household, areas.count)
    return found


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """Swaps of a run, all arrays of shape (households,)."""

    partner: Int64Array
    """Partner of each household, -1 where it has none."""
    profile: Int64Array
    """Number of the match profile on which the two agree, -1 where there is no partner."""
    level: Int64Array
    """Level at which each household was swapped, -1 where it was not."""
    unmatched: BoolArray
    """Households that had to be swapped and found no donor."""
    asked: BoolArray
    """Households that had to be swapped and got a donor that they asked for: one of each obliged swap."""
    quota: int
    """Number of swaps that the rate requires."""
    obliged: int
    """Swaps that obligations made."""
    added: int
    """Swaps made to meet the quota."""


def choose_swaps(
    survey: Survey, settings: RecordSwapSettings, stream: Stream, progress: Progress
) -> SwapPlan:
    """Choose the swaps of a run.

    At each level, coarse to fine, every unused household that must be swapped at this level gets a donor.
    Households are taken in the order of falling r / e for their risk r at the level and an exponential number
    e. At the finest level, households are then added in the same order until the quota of each area is met.
    If donors have used up the households of an area, households of any area are added until the sum of the
    quotas is met. Each donor is an unused household of another area of the level with the same values of the
    first profile, or the next: the one with the largest r / e for an exponential number e of its own.
    """
    households = survey.households
    count, levels = len(households), len(survey.areas)
    swaps = Swaps(np.zeros(count, np.bool_), np.full(count, -1, np.int64), np.full(count, -1, np.int64))
    level_of = np.full(count, -1, np.int64)
    unmatched, asked_before = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    finest = survey.areas[-1]
    total = min(math.floor(count * settings.swap_rate / 2 + 0.5), count // 2)
    quota = area_quotas(total, finest, households.identity, stream.key("quota"))
    obliged = added = 0
    key = stream.key("household")
    for level, areas in enumerate(survey.areas):
        progress(0.3 + 0.5 * level / levels, f"swapping between {settings.hierarchy[level]}")
        pending = (survey.required == level) & ~swaps.used
        last = level == levels - 1
        if not (pending.any() or (last and total)):
            continue
        selection, donation = exponentials(key, households.identity, level)
        risk = survey.risks[level]
        free = _ranked(np.flatnonzero(~swaps.used), risk, donation, households.identity)
        donors = Donors(free, survey.profiles, areas.of_household, areas.count, swaps)
        requests = _ranked(np.flatnonzero(pending), risk, selection, households.identity)
        before = swaps.partner >= 0
        donors.match(requests, finest.of_household)
        unmatched |= pending & (swaps.partner < 0)
        level_of[(swaps.partner >= 0) & ~before] = level
        asked = requests[_asked(requests, swaps.partner)]
        obliged += len(asked)
        asked_before[asked] = True
        quota -= np.bincount(finest.of_household[asked], minlength=finest.count)
        if last and (quota > 0).any():
            candidates = _ranked(np.flatnonzero(~swaps.used), risk, selection, households.identity)
            wanted = int(np.maximum(quota, 0).sum())
            donors.match(candidates, finest.of_household, quota)
            added = wanted - int(np.maximum(quota, 0).sum())
            if obliged + added < total:  # in some areas donors took the last households
                rest = np.array([total - obliged - added])
                donors.match(candidates, np.zeros(count, np.int64), rest)
                added = total - obliged - int(rest[0])
            level_of[(swaps.partner >= 0) & (level_of < 0)] = level
    return SwapPlan(
        swaps.partner, swaps.profile, level_of, unmatched, asked_before, total, obliged, added
    )  # fmt: skip


def _asked(requests: Int64Array, partner: Int64Array) -> BoolArray:
    """Mask of the matched requests that came before their partner's, or whose partner made none."""
    place = np.full(len(partner) + 1, len(requests), np.int64)
    place[requests] = np.arange(len(requests))
    own = partner[requests]
    mask: BoolArray = (own >= 0) & (place[requests] < place[own])
    return mask


def _ranked(
    chosen: Int64Array, risk: Float64Array, exponential: Float64Array, identity: npt.NDArray[np.uint64]
) -> Int64Array:
    """Return households by falling risk / exponential; those without risk come last, by the exponential."""
    risk, exponential = risk[chosen], exponential[chosen]
    weight = risk / exponential
    order = np.argsort(-weight)
    ordered = weight[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.lexsort((identity[chosen], exponential, -weight))
    return chosen[order]


def area_quotas(total: int, areas: Areas, identity: npt.NDArray[np.uint64], key: Key) -> Int64Array:
    """Share `total` swaps among areas in proportion to their households, rounded at random.

    Areas are taken in the order of their smallest identity; with one uniform number u, the areas up to each
    get floor(t + u) swaps together for their exact share t. Every area gets its exact share, rounded up or
    down, and all of them `total`.
    """
    count = len(identity)
    if not count:
        return np.zeros(areas.count, np.int64)
    smallest = np.full(areas.count, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, areas.of_household, identity)
    order = np.argsort(smallest, kind="stable")
    sizes = np.bincount(areas.of_household, minlength=areas.count)[order]
    shares = np.floor(total * np.cumsum(sizes) / count + uniform_words(key)).astype(np.int64)
    quotas = np.empty(areas.count, np.int64)
    quotas[order] = np.diff(shares, prepend=0)
    return quotas
