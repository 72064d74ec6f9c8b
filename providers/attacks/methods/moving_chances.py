"""Chance of each row to have moved in a swap that selects rows by risk, as an intruder computes it.

The selection belongs to the rows and not to the seed: an intruder who sees the key fields, which the swap did
not move, computes the same risks as the run. Rows at risk moved for certain, and others with the known
probabilities of the sample. A row that is selected alone in its group drew a partner (decision 39).
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.binning.swap import BinParams
from providers.params import SwapParams
from providers.swapping.households import members_of
from providers.swapping.risk_selection import inclusion_probabilities
from providers.swapping.row_risk import row_risk

OUTSIDE = -1
"""Number of the group of a row whose values were not exchanged."""


class MovingChances(NamedTuple):
    """Selection of each row by its risk; arrays of shape (rows,)."""

    selected: Float64Array
    """Probability that the row was selected, without the partners of rows that were selected alone."""
    risk: Float64Array
    """Risk of the row, 0 or more: the weight with which it is drawn as a partner."""

    def of(self, rows: Int64Array) -> "MovingChances":
        """Return the chances of some rows."""
        return MovingChances(self.selected[rows], self.risk[rows])


def selection_chances(release: pa.Table, params: SwapParams | BinParams) -> MovingChances:
    """Return the probability of each row to be selected, from the fields that a release shows.

    Parameters
    ----------
    release : pa.Table
        With the fields from which risks are computed, as the source has them.
    params : SwapParams or BinParams
        With `risk`. If households or units move, chance and risk of a row are those of its household or unit.

    Raises
    ------
    SourceError
        As `row_risk`.
    """
    assert params.risk is not None  # noqa: S101 - the caller has checked
    found = row_risk(release, params.risk)
    household = params.moving_unit if isinstance(params, SwapParams) else None
    if household is None:
        return MovingChances(_selected(found.risk, found.required, params.rate), found.risk)
    members = members_of(release, household)
    number = np.empty(release.num_rows, np.int64)
    number[members.rows] = np.repeat(np.arange(len(members)), members.sizes)
    risk = members.largest(found.risk)
    return MovingChances(_selected(risk, members.any_of(found.required), params.rate)[number], risk[number])


def _selected(risk: Float64Array, required: BoolArray, rate: float) -> Float64Array:
    chances = np.ones(len(risk))
    wanted = rate * len(risk) - np.count_nonzero(required)
    chances[~required] = inclusion_probabilities(risk[~required], wanted)
    return chances


def with_partners(chances: MovingChances, group: Int64Array) -> Float64Array:
    """Return the probability of each row to have moved, as a selected row or as the partner of one.

    Parameters
    ----------
    chances : MovingChances
    group : ndarray of int64, shape (rows,)
        Group of each row, `OUTSIDE` for a row that kept its values; groups have two rows or more.

    Notes
    -----
    Rows of one group count as selected independently, which systematic sampling in random order is close to
    where the group is a small part of the table. A row is a partner if another one alone is selected, with
    its share of the risks of the rows that are not. O(rows log rows).
    """
    inside = np.flatnonzero(group != OUTSIDE)
    moving = np.zeros(len(group))
    if not len(inside):
        return moving
    _, number = np.unique(group[inside], return_inverse=True)
    number = number.reshape(-1)
    chance, risk = chances.selected[inside], chances.risk[inside]
    certain = chance >= 1.0
    certain_rows = np.bincount(number, certain)
    other = np.where(certain, 0.0, chance)
    # Probability that none of the rows without certainty is selected, and the odds of each one.
    with np.errstate(divide="ignore"):
        none = np.exp(np.bincount(number, np.log1p(-other)))
    odds = other / (1.0 - other)
    total = np.bincount(number, risk)
    left = total[number] - risk  # risks of all rows of the group but this one
    even = left <= 1e-12 * total[number]  # no other row has a risk: each counts as 1
    count = np.bincount(number)[number]
    alone = np.where(certain_rows[number] == 0, odds, certain * (certain_rows[number] == 1.0)) * none[number]
    per_risk = np.where(even, 0.0, alone / np.where(even, 1.0, left))
    per_row = np.where(even, alone / (count - 1), 0.0)
    # A row is a partner of each other row that can be selected alone.
    partner = risk * (np.bincount(number, per_risk)[number] - per_risk)
    partner += np.bincount(number, per_row)[number] - per_row
    moving[inside] = np.where(certain, 1.0, np.clip(chance + partner, 0.0, 1.0))
    return moving


def chance_of_sets(chances: MovingChances, moving: BoolArray) -> Float64Array:
    """Return the probability that exactly these rows of one group moved, for several sets of rows.

    Parameters
    ----------
    chances : MovingChances
        Of the rows of the group.
    moving : ndarray of bool, shape (sets, rows)
        Sets of no row or of two rows or more.
    """
    selected, risk = chances
    found: Float64Array = np.where(moving, selected, 1.0 - selected).prod(axis=1)
    count = moving.sum(axis=1)
    pairs = np.flatnonzero(count == 2)
    for index in pairs.tolist():
        one, two = np.flatnonzero(moving[index]).tolist()
        for alone, partner in ((one, two), (two, one)):
            others = np.arange(len(risk)) != alone
            left = risk[others].sum()
            share = risk[partner] / left if left > 0 else 1.0 / others.sum()
            found[index] += selected[alone] * (1.0 - selected[others]).prod() * share
    return found
