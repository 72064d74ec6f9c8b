"""Exchange of rows selected by their risk, and its part of the report: the deciles of risk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, IndexArray, Int64Array
from providers.grouping.groups import BufferPool
from providers.params import SwapParams
from providers.randomness.chacha20 import Key
from providers.results import Events
from providers.swapping.participation import Participation
from providers.swapping.permutation import Permutation
from providers.swapping.risk_selection import Chosen, Selection, choose, exchange_chosen
from providers.swapping.row_risk import combinations
from providers.swapping.search_space import size_counts
from providers.tables.columns import gathered

RISK_UNSWAPPED = "risk_unswapped"
"""Code of the event about a row that had to take part for its risk and could not."""

NO_EPSILON = (
    "No finite epsilon holds: which rows were selected depends on their values in the source. Someone who "
    "knows the key fields of the source knows which rows had to take part."
)
"""Sentence of the report about selection by risk."""

RISK_GUARANTEE = (
    "With `risk`: every row whose key combination occurs fewer than `k` times receives another row's value, "
    "unless no other row of its group can be swapped; events list these rows."
)
"""Sentence for the pages of the services about the rows at risk."""

RISK_LIMIT = (
    "With `risk`: the choice of rows depends on the source, so that no epsilon holds, and anyone who knows "
    "the key fields knows which rows had to be swapped. Rare combinations stay as frequent as before where "
    "no key field is a swap field: they are less trustworthy, not less rare."
)
"""Sentence for the pages of the services about the limits of the selection by risk."""


class RiskFigures:
    """Exchange of the selected rows, field by field, and the figures that it collects.

    Parameters
    ----------
    table : pa.Table
        The source.
    params : SwapParams
        With `risk`.
    selection : Selection
    """

    def __init__(self, table: pa.Table, params: SwapParams, selection: Selection) -> None:
        assert params.risk is not None  # noqa: S101 - the caller has checked
        self._risk = params.risk
        self._selection = selection
        self._source = table.select(list(dict.fromkeys(self._risk.key_fields)))
        rows = table.num_rows
        self._took_part: BoolArray = np.zeros(rows, np.bool_)
        self._changed: BoolArray = np.zeros(rows, np.bool_)
        self._unswapped: dict[str, IndexArray] = {}
        self._known: dict[int, tuple[Participation, Chosen]] = {}
        self._pairing: Permutation | None = None
        self._chosen: Chosen | None = None
        self.counts: list[dict[int, int]] = []
        """For each random order: number of selected rows of a group -> number of groups."""

    def exchange(self, participation: Participation, key: Key, workspace: BufferPool) -> Permutation:
        """Draw the exchange of the selected rows of each group, for a field or for all locked fields."""
        if id(participation) not in self._known:  # fields mostly share one
            self._known[id(participation)] = participation, choose(participation, self._selection)
        self._chosen = self._known[id(participation)][1]
        self.counts.append(size_counts(self._chosen.groups.sizes))
        self._pairing = exchange_chosen(participation, self._chosen, key, workspace)
        return self._pairing

    def permute(self, name: str, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
        """Exchange the values of a field by the last exchange; return it and the number of changed rows."""
        assert self._pairing is not None  # noqa: S101 - an exchange comes first
        assert self._chosen is not None  # noqa: S101
        moved, differs = gathered(column, self._pairing.source)
        self._took_part |= self._chosen.rows
        self._changed |= differs
        self._unswapped[name] = np.flatnonzero(self._selection.required & ~self._chosen.rows)
        return moved, int(np.count_nonzero(differs))

    def add_events(self, events: Events) -> None:
        """Record an event for each field of a row that had to take part and could not."""
        message = (
            "the risk of the row requires a swap, which is impossible: its group has no other row or too "
            "few, or a null takes no part"
        )
        for name, rows in self._unswapped.items():
            if len(rows):
                events.add_rows(RISK_UNSWAPPED, message, rows, name)

    def figures(self, destination: pa.Table, origin: IndexArray | None) -> dict[str, Any]:
        """Return the provider's figures `risk_selection` and `risk_deciles`.

        Parameters
        ----------
        destination : pa.Table
            After suppression.
        origin : ndarray of int or None
            Source row of each row of the destination; None where the numbers are equal.
        """
        selection = self._selection
        required = int(np.count_nonzero(selection.required))
        selected = int(np.count_nonzero(selection.selected))
        impossible = np.unique(np.concatenate([np.zeros(0, np.int64), *self._unswapped.values()]))
        partners = np.count_nonzero(self._took_part & ~selection.selected)
        figures: dict[str, Any] = {
            "required": required,
            "drawn": selected - required,
            "partners": int(partners),
            "required_unswapped": len(impossible),
            "no_epsilon": NO_EPSILON,
        }
        masks = {
            "required": selection.required,
            "selected": selection.selected,
            "took_part": self._took_part,
            "changed": self._changed,
        }
        if self._risk.key_fields:
            masks["unique_before"] = unique_rows(self._source, self._risk.key_fields)
            masks["unique_after"] = np.zeros(len(selection.risk), np.bool_)
            rows = np.flatnonzero(unique_rows(destination, self._risk.key_fields))
            masks["unique_after"][rows if origin is None else origin[rows]] = True
            figures["unique_before"] = int(np.count_nonzero(masks["unique_before"]))
            figures["unique_after"] = int(np.count_nonzero(masks["unique_after"]))
        return {"risk_selection": figures, "risk_deciles": _by_decile(selection.risk, masks)}


def unique_rows(table: pa.Table, names: Sequence[str]) -> BoolArray:
    """Mask of the rows whose combination of values occurs once."""
    cell, bound = combinations(table, names)
    mask: BoolArray = np.bincount(cell, minlength=bound)[cell] == 1
    return mask


def deciles_of(risk: Float64Array) -> Int64Array:
    """Return the decile of each row, 0 to 9, the lowest risks first.

    It is the tenth into which the share of the rows with less risk falls, so that equal risks share one.
    """
    count = len(risk)
    # At least t rows have less risk than one if the t-th lowest risk is below it.
    bounds = [-(-number * count // 10) - 1 for number in range(1, 10)]
    found: Int64Array = np.searchsorted(np.partition(risk, bounds)[bounds], risk, side="left")
    return found


def _by_decile(risk: Float64Array, masks: dict[str, BoolArray]) -> dict[str, dict[str, Any]]:
    """Return range of risk, rows, and rows in each mask of every decile that has rows."""
    if not len(risk):
        return {}
    decile = deciles_of(risk)
    rows = np.bincount(decile, minlength=10)
    counts = {name: np.bincount(decile[mask], minlength=10) for name, mask in masks.items()}
    found = {}
    for number in np.flatnonzero(rows).tolist():
        inside = risk[decile == number]
        found[str(number + 1)] = {
            "from_risk": float(inside.min()),
            "to_risk": float(inside.max()),
            "rows": int(rows[number]),
            **{name: int(each[number]) for name, each in counts.items()},
        }
    return found
