"""Risk of households at each level of the hierarchy, and the level at which each must be swapped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array
from providers.errors import ParameterError, SourceError
from providers.numba import njit
from providers.record_swapping.settings import RecordSwapSettings
from providers.results import Event, Events
from providers.tables.codes import cells, codes, joined
from providers.tables.columns import combined, unwrapped
from providers.tables.households import Households, household_codes


@dataclass(frozen=True, slots=True)
class Areas:
    """Areas of one level: combinations of the hierarchy's fields down to it."""

    of_household: Int64Array
    """Area of each household, shape (households,)."""
    count: int


def areas_by_level(table: pa.Table, households: Households, settings: RecordSwapSettings) -> list[Areas]:
    """Return the areas of each level, coarse to fine.

    Raises
    ------
    SourceError
        A field of the hierarchy differs within a household.
    """
    found: list[Areas] = []
    for level, name in enumerate(settings.hierarchy):
        own, count = household_codes(table, name, households, f"/parameters/hierarchy/{level}")
        if found:
            own, count = joined(found[-1].of_household, own, count)
        found.append(Areas(own, count))
    return found


def check_risk_field(field: pa.Field, pointer: str) -> None:
    """Raise ParameterError unless the field holds integers or floating-point numbers."""
    if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
        message = f"field '{field.name}' of type {field.type} cannot hold a risk: use integers or floats"
        raise ParameterError(message, pointer)


def risk_by_level(
    table: pa.Table,
    households: Households,
    areas: list[Areas],
    settings: RecordSwapSettings,
    events: Events,
) -> list[Float64Array]:
    """Return the risk of each household at each level, the largest of its members', shape (households,).

    The risk of a person is 1 / (number of persons with the same risk fields in its area), unless risks are
    given; without either it is 0.

    Raises
    ------
    SourceError
        A given risk is null, NaN, infinite or negative.
    """
    if settings.risk:
        return _given_risks(table, households, settings, events)
    if not settings.risk_fields:
        return [np.zeros(len(households))] * len(areas)
    key, count = codes(table.column(settings.risk_fields[0]))
    for name in settings.risk_fields[1:]:
        key, count = cells(key, count, *codes(table.column(name)))
    found = []
    for level in areas:
        cell, bound = cells(level.of_household[households.of_row], level.count, key, count)
        persons = np.bincount(cell, minlength=bound)
        found.append(largest_member(households, (1.0 / np.maximum(persons, 1))[cell]))
    return found


def _given_risks(
    table: pa.Table, households: Households, settings: RecordSwapSettings, events: Events
) -> list[Float64Array]:
    found = []
    for index, name in enumerate(settings.risk):
        column = unwrapped(table.column(name))
        values = combined(column.cast(pa.float64(), safe=False)).to_numpy(zero_copy_only=False)
        wrong = int(np.count_nonzero(~(np.isfinite(values) & (values >= 0))))
        if wrong:
            message = (
                f"the risk '{name}' is null, negative or not finite in {wrong} row{'s' if wrong > 1 else ''}"
            )
            raise SourceError(message, f"/parameters/risk/{index}")
        largest = largest_member(households, values)
        differs = np.unique(households.of_row[values != largest[households.of_row]])
        if len(differs):
            message = (
                f"the risk '{name}' differs within {len(differs)} household"
                f"{'s' if len(differs) > 1 else ''}: the largest counts"
            )
            events.add(Event("risk_differs", message, field=name))
        found.append(largest)
    return found * (len(settings.hierarchy) if len(found) == 1 else 1)


def largest_member(households: Households, of_person: Float64Array) -> Float64Array:
    """Return the largest value of each household's members, none of which is negative."""
    if len(households) == len(of_person):
        return of_person
    largest = np.zeros(len(households))
    _largest(households.of_row, np.ascontiguousarray(of_person), largest)
    return largest


@njit(cache=True, nogil=True)
def _largest(household, values, largest):
    """Raise `largest` of each household to the largest of its rows' values.

    Parameters
    ----------
    household : int64, shape (rows,)
    values : float64, shape (rows,)
    largest : float64, shape (households,)
        Written.
    """
    for row in range(len(household)):
        if values[row] > largest[household[row]]:
            largest[household[row]] = values[row]


def required_level(risks: list[Float64Array], obliging: float) -> Int64Array:
    """Return the first level at which each household's risk exceeds `obliging`; -1 where none does."""
    found = np.full(len(risks[0]), -1, np.int64)
    for level in range(len(risks) - 1, -1, -1):
        found[risks[level] > obliging] = level
    return found
