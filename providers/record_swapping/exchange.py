"""Exchange the geography of swapped households, apply the policy for the unmatched, and build the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, IndexArray, Int64Array
from providers.errors import UnswappableError
from providers.record_swapping.settings import RecordSwapSettings
from providers.record_swapping.swaps import Survey, SwapPlan
from providers.results import Event, Events, Summary, SwapResult, group_size
from providers.tables.codes import joined
from providers.tables.columns import gathered, put


def exchange(
    table: pa.Table, survey: Survey, plan: SwapPlan, settings: RecordSwapSettings, events: Events
) -> SwapResult:
    """Give all members of each swapped household the moved fields of its partner's.

    Raises
    ------
    UnswappableError
        The policy is ``fail`` and a household that must be swapped found no donor.
    """
    households = survey.households
    partner = plan.partner[households.of_row]
    took_part = partner >= 0
    unmatched = np.flatnonzero(plan.unmatched[households.of_row])
    if settings.unmatched == "fail" and len(unmatched):
        raise UnswappableError(describe_unmatched(len(unmatched), int(np.count_nonzero(plan.unmatched))))
    source = np.where(took_part, households.first[partner], np.arange(table.num_rows))
    changed: dict[str, int] = {}
    for name in settings.moved:
        index = table.schema.get_field_index(name)
        column, differs = gathered(table.column(index), source)
        changed[name] = int(np.count_nonzero(differs))
        field = table.schema.field(index)
        if settings.unmatched == "suppress" and len(unmatched):
            field = field.with_nullable(True)
            column = put(column, unmatched, pa.nulls(1, field.type))
        table = table.set_column(index, field, column)
    suppressed = len(unmatched) if settings.unmatched == "suppress" else 0
    _add_events(plan, settings, unmatched, events)
    summary = _summary(survey, plan, settings, took_part, changed, suppressed)
    return SwapResult(table, summary, events, report_figures(survey, plan, settings))


def describe_unmatched(rows: int, households: int) -> str:
    """Return the message of a run that fails because households that must be swapped have no donor."""
    return (
        f"{rows} row{'s' if rows != 1 else ''} of {households} household{'s' if households != 1 else ''} "
        "cannot be swapped although their risk requires it: no free household of another area has equal "
        "values of a profile; add a weaker profile to 'similar', or choose another 'unmatched' policy"
    )


def _summary(
    survey: Survey,
    plan: SwapPlan,
    settings: RecordSwapSettings,
    took_part: BoolArray,
    changed: dict[str, int],
    suppressed: int,
) -> Summary:
    rows, swapped = len(took_part), int(np.count_nonzero(took_part))
    unmatched = int(np.count_nonzero(plan.unmatched[survey.households.of_row]))
    reasons = {"unmatched": unmatched, "rate": rows - swapped - unmatched}
    sizes = rows_by_area(survey)
    return Summary(
        rows=rows,
        groups=len(sizes),
        group_size=group_size(sizes),
        took_part=swapped,
        took_part_by_field=dict.fromkeys(settings.moved, swapped),
        changed=changed,
        suppressed=suppressed,
        unswapped=rows - swapped,
        unswapped_reasons={name: count for name, count in reasons.items() if count},
        achieved_rate=swapped / rows if rows else 0.0,
    )


def rows_by_area(survey: Survey) -> Int64Array:
    """Return the number of rows of each finest area."""
    finest = survey.areas[-1]
    sizes = np.bincount(finest.of_household, weights=survey.households.sizes, minlength=finest.count)
    return sizes.astype(np.int64)


def _add_events(plan: SwapPlan, settings: RecordSwapSettings, unmatched: IndexArray, events: Events) -> None:
    code = "suppressed" if settings.unmatched == "suppress" else "kept"
    outcome = "was suppressed" if code == "suppressed" else "stays"
    without = ", ".join(f"'{name}' {number}" for name, number in unmatched_by_profile(plan, settings).items())
    message = (
        f"the row's household must be swapped but has no donor: its geography {outcome} (households that "
        f"found no donor by match profile: {without})"
    )
    if len(unmatched):
        events.add_rows(code, message, unmatched)
    missing = plan.quota - plan.obliged - plan.added
    if missing > 0:
        events.add(
            Event(
                "quota_not_met",
                f"{missing} of {plan.quota} swaps that the rate asks for found no donor: add a weaker "
                "profile to 'similar', or lower 'swap_rate'",
            )
        )


# ------------------------------------------------------------------------------------------- figures


def report_figures(survey: Survey, plan: SwapPlan, settings: RecordSwapSettings) -> dict[str, Any]:
    """Return the provider's figures of the report; none of them names a household."""
    count = len(survey.households)
    swapped = plan.partner >= 0
    swaps = int(np.count_nonzero(swapped)) // 2
    matched = np.bincount(plan.profile[swapped], minlength=len(settings.similar)) // 2
    return {
        "households": count,
        "swapped_households": 2 * swaps,
        "swapped_share": 2 * swaps / count if count else 0.0,
        "wanted_swaps": plan.quota,
        "obliged_swaps": plan.obliged,
        "added_swaps": plan.added,
        "overshoot": max(0, swaps - plan.quota),
        "unmatched_households": int(np.count_nonzero(plan.unmatched)),
        "swaps_by_profile": {
            profile_name(fields): int(number)
            for fields, number in zip(settings.similar, matched, strict=True)
        },
        "unmatched_by_profile": unmatched_by_profile(plan, settings),
        "levels": {
            name: _level_figures(level, survey, plan) for level, name in enumerate(settings.hierarchy)
        },
        "area_populations": {
            name: _populations(level, survey, plan) for level, name in enumerate(settings.hierarchy)
        },
        "similar_by_area": {
            f"{field} by {name}": _table_changes(level, codes, survey, plan)
            for level, name in enumerate(settings.hierarchy)
            for field, codes in survey.similar.items()
        },
        "risk_deciles": _deciles(survey.risks[-1], survey, plan),
    }


def unmatched_by_profile(plan: SwapPlan, settings: RecordSwapSettings) -> dict[str, int]:
    """Count for each match profile the households at risk that found no donor by it.

    The next profile, if there is one, may have given them one.
    """
    profile_of_asked, unmatched = plan.profile[plan.asked], int(np.count_nonzero(plan.unmatched))
    return {
        profile_name(fields): unmatched + int(np.count_nonzero(profile_of_asked > number))
        for number, fields in enumerate(settings.similar)
    }


def profile_name(fields: Sequence[str]) -> str:
    """Return the name of a match profile in the report."""
    return ", ".join(fields) or "any household"


def _moves(level: int, survey: Survey, plan: SwapPlan) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the swapped households with their areas of a level before and after."""
    moved = np.flatnonzero(plan.partner >= 0)
    area = survey.areas[level].of_household
    return moved, area[moved], area[plan.partner[moved]]


def _level_figures(level: int, survey: Survey, plan: SwapPlan) -> dict[str, Any]:
    own = survey.required == level
    moved, before, after = _moves(level, survey, plan)
    elsewhere = moved[before != after]
    here = plan.level == level
    swaps, obliged = int(np.count_nonzero(here)) // 2, int(np.count_nonzero(here & plan.asked))
    return {
        "areas": survey.areas[level].count,
        "required_households": int(np.count_nonzero(own)),
        "unmatched_households": int(np.count_nonzero(plan.unmatched & own)),
        "swapped_households": 2 * swaps,
        "obliged_swaps": obliged,
        "added_swaps": swaps - obliged,
        "moved_households": len(elsewhere),
        "moved_persons": int(survey.households.sizes[elsewhere].sum()),
    }


def _populations(level: int, survey: Survey, plan: SwapPlan) -> dict[str, Any]:
    """Compare the households and persons of each area before and after."""
    areas, sizes = survey.areas[level], survey.households.sizes
    moved, before, after = _moves(level, survey, plan)
    persons = np.bincount(areas.of_household, sizes, minlength=areas.count)
    moved_persons = np.abs(
        np.bincount(after, sizes[moved], areas.count) - np.bincount(before, sizes[moved], areas.count)
    )
    households = np.bincount(after, minlength=areas.count) - np.bincount(before, minlength=areas.count)
    return {
        "areas_with_other_households": int(np.count_nonzero(households)),
        "areas_with_other_persons": int(np.count_nonzero(moved_persons)),
        "largest_change_of_persons": int(moved_persons.max()) if areas.count else 0,
        "largest_share_of_persons": float((moved_persons / persons).max()) if areas.count else 0.0,
        "total_change_of_persons": int(moved_persons.sum()),
    }


def _table_changes(level: int, codes: Int64Array, survey: Survey, plan: SwapPlan) -> dict[str, Any]:
    """Compare the households of each area and value of a field before and after."""
    values = int(codes.max()) + 1 if len(codes) else 0
    _, occupied = joined(survey.areas[level].of_household, codes, values)
    moved, before, after = _moves(level, survey, plan)
    both = np.concatenate([before * values + codes[moved], after * values + codes[moved]])
    _, cell = np.unique(both, return_inverse=True)
    change = np.abs(np.bincount(cell, np.repeat([-1, 1], len(moved))))
    return {
        "cells": occupied,
        "changed_cells": int(np.count_nonzero(change)),
        "largest_change": int(change.max()) if len(change) else 0,
        "total_change": int(change.sum()),
    }


def _deciles(risk: Float64Array, survey: Survey, plan: SwapPlan) -> dict[str, dict[str, Any]]:
    """Return the swaps by decile of the households' risk at the finest level, the lowest first.

    A household's decile is the tenth into which the share of households with less risk falls, so that equal
    risks share one; deciles without households are left out.
    """
    count = len(risk)
    if not count:
        return {}
    # At least t households have less risk than one if the t-th lowest risk is below it.
    bounds = [-(-number * count // 10) - 1 for number in range(1, 10)]
    decile = np.searchsorted(np.partition(risk, bounds)[bounds], risk, side="left")
    found = {}
    for number in range(10):
        inside = decile == number
        if inside.any():
            found[str(number + 1)] = {
                "from_risk": float(risk[inside].min()),
                "to_risk": float(risk[inside].max()),
                "households": int(np.count_nonzero(inside)),
                "required": int(np.count_nonzero(inside & (survey.required >= 0))),
                "swapped": int(np.count_nonzero(inside & (plan.partner >= 0))),
            }
    return found
