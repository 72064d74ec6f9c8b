"""Households that a swap of single rows tears: their members end up with values of different households."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray, Int64Array
from providers.grouping.groups import Pairing
from providers.params import SwapParams
from providers.results import Event, SwapResult
from providers.swapping.exchange import sources
from providers.tables.codes import codes
from providers.tables.households import Households, households_of

HOUSEHOLDS_TORN = "households_torn"
"""Code of the event about households whose members no longer have values of one household."""


class TornHouseholds:
    """Count of the households that a run tears, collected field by field.

    Parameters
    ----------
    table : pa.Table
        The source.
    params : SwapParams
        With `household_check`.

    Raises
    ------
    SourceError
        A row has no household.
    """

    def __init__(self, table: pa.Table, params: SwapParams) -> None:
        assert params.household_check is not None  # noqa: S101 - the caller has checked
        self._table, self._params = table, params
        self._households = households_of(table, params.household_check, "/parameters/household_check")
        self._sources: dict[str, IndexArray] = {}

    def add(self, name: str, pairing: Pairing) -> None:
        """Store the source rows of a field's values, or of all locked fields, to count torn households."""
        found = sources(pairing)
        for field in self._params.swap_fields if self._params.locked else (name,):
            self._sources[field] = found

    def report(self, result: SwapResult) -> None:
        """Add the figure `households_torn` and its event to the result of the run."""
        figures = {
            name: _figures(self._table.column(name), origin, self._households)
            for name, origin in self._sources.items()
        }
        result.provider["households_torn"] = {
            "households": len(self._households),
            "with_several_rows": int(np.count_nonzero(self._households.sizes > 1)),
            "by_field": figures,
        }
        for name, entry in figures.items():
            if entry["mixed"]:
                result.events.add(Event(HOUSEHOLDS_TORN, _message(entry), field=name))


def _figures(column: pa.ChunkedArray, origin: IndexArray, households: Households) -> dict[str, int]:
    values, _ = codes(column)
    return {
        "mixed": int(np.count_nonzero(~_constant(households.of_row[origin], households))),
        "torn": int(np.count_nonzero(_constant(values, households) & ~_constant(values[origin], households))),
    }


def _constant(values: Int64Array, households: Households) -> BoolArray:
    """Mask of the households whose rows all have the same value."""
    different = values != values[households.first][households.of_row]
    found: BoolArray = np.bincount(households.of_row[different], minlength=len(households)) == 0
    return found


def _message(entry: Mapping[str, int]) -> str:
    return (
        f"members of {entry['mixed']} households no longer have values of one household; {entry['torn']} of "
        "the households had one value and have several now: 'household' moves whole households"
    )
