"""Groups within which a swap exchanged values, computed again from a release as an intruder would.

Control fields stay with their rows, and a bin of MEWS or MEDS keeps its set of values. Hence the groups of
the release equal those of the source, except for ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from providers import PROVIDERS
from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.household_groups import household_groups, members_of_groups
from providers.attacks.methods.moving_chances import (
    OUTSIDE,
    MovingChances,
    selection_chances,
    with_partners,
)
from providers.attacks.tables import AttackTables, Rows
from providers.binning.swap import BinParams, other_fields
from providers.binning.values import FieldValues, extent, numbers_of, read_only
from providers.errors import ProviderError
from providers.grouping.groups import Groups
from providers.measures.shared.finding import NotApplicable
from providers.params import SwapParams
from providers.progress import no_progress
from providers.services import cdswap, ddswap, meds, mews
from providers.swapping.guarantee import moved_shares, selection_rate
from providers.tables.columns import null_mask
from providers.tables.units import unit_codes


@dataclass(frozen=True, slots=True)
class MovedFields:
    """Fields whose values moved together, and the groups within which they moved."""

    fields: tuple[str, ...]
    group: Int64Array
    """Group of each row of the release, `OUTSIDE` for a row that kept its values; shape (rows,)."""
    rate: float
    """Share of the rows in groups that took part; of the permutation mechanism, and with a selection by risk,
    the expected share."""
    mechanism: str = "pairs"
    """Mechanism of the exchange: ``pairs`` or ``permutation``."""
    selection: float | None = None
    """Probability of a row to be selected by the permutation mechanism; None with random pairs."""
    chances: MovingChances | None = None
    """Selection of the rows by risk; None if every row of a group is equally likely to move."""
    units: Int64Array | None = None
    """Unit or household of each row, if all of its rows moved as one; None: each row moved on its own."""
    one_value: bool = False
    """Whether all rows of a unit have one value, which went to all rows of another unit of any size."""
    assumptions: tuple[str, ...] = ()
    """Sentences about the parts of the method's rule that the attack does not use."""

    @property
    def moving(self) -> Float64Array:
        """Probability of each row to have moved; shape (rows,)."""
        if self.chances is None:
            return np.where(self.group == OUTSIDE, 0.0, self.rate)
        return with_partners(self.chances, self.group)

    @property
    def one_of_each_unit(self) -> BoolArray | None:
        """Mask of the first row of each unit, if units of any size have one value each; else None."""
        if self.units is None or not self.one_value:
            return None
        first = np.zeros(len(self.group), np.bool_)
        first[np.unique(self.units, return_index=True)[1]] = True
        return first

    @property
    def name(self) -> str:
        """Name of the fields in reports."""
        return ", ".join(self.fields)


def checked_params(tables: AttackTables) -> Any:
    """Return the parameters of the method that made the release, with all fields by name.

    Raises
    ------
    NotApplicable
        The method is unknown, or its parameters do not fit the source.
    """
    if tables.method is None:
        raise NotApplicable("the service that made the release is not known")
    provider = PROVIDERS[tables.method.service]
    try:
        return provider.check(provider.params.model_validate(tables.method.parameters), tables.source.schema)
    except (ProviderError, ValidationError) as error:
        raise NotApplicable(
            f"the parameters of {tables.method.service} do not fit the source: {error}"
        ) from error


def moved_fields(tables: AttackTables) -> list[MovedFields]:
    """Return the fields that a swap moved, each with its groups.

    Raises
    ------
    NotApplicable
        Rows were dropped, so that groups cannot be cut again.
    """
    params = checked_params(tables)
    if getattr(params.suppression, "policy", None) == "drop" and not tables.aligned:
        raise NotApplicable("rows were dropped, so that the groups cannot be computed again")
    try:
        if isinstance(params, BinParams):
            found = _moved_in_bins(tables.release, params)
        else:
            found = _moved_in_groups(tables.release, params)
        selected = _with_selection(tables.release, params, found)
    except ProviderError as error:
        raise NotApplicable(f"the groups cannot be computed from the release: {error}") from error
    if getattr(params, "series", None) is None:
        return selected
    return [replace(each, assumptions=(*each.assumptions, SERIES_JOINED)) for each in selected]


SERIES_JOINED = (
    "The run is one of a series. The attack takes all units of a group for possible partners. Anyone who "
    "joins the release with an earlier one sees more: which units are new, and so exchanged values among "
    "themselves alone, and which units lost their partners."
)
"""Assumption of attacks on a table of a series."""

REPAIRED = (
    "The repair of checks excluded exchanges that break a check. The attack counts them as possible: "
    "an intruder who knows the checks has fewer exchanges to try."
)
"""Assumption of attacks on a run whose exchanges were repaired."""

RISK_MOVED = (
    "The run selected rows by risk, from fields that it moved, so that the release does not show the risks. "
    "The attack counts every row of a group as equally likely to have moved."
)
"""Assumption of attacks on a run whose selection does not follow from the release."""


def _with_selection(
    release: pa.Table, params: SwapParams | BinParams, found: list[MovedFields]
) -> list[MovedFields]:
    """Add the selection by risk, which follows from the release unless its fields moved, and assumptions."""
    if isinstance(params, SwapParams) and params.on_broken == "repair":
        return [replace(each, assumptions=(REPAIRED,)) for each in found]
    if params.risk is None:
        return found
    if {name for each in found for name in each.fields} & set(params.risk.fields_read):
        return [replace(each, assumptions=(RISK_MOVED,)) for each in found]
    chances = selection_chances(release, params)
    selected = [replace(each, chances=chances) for each in found]
    return [replace(each, rate=_mean_inside(each)) for each in selected]


def _mean_inside(moved: MovedFields) -> float:
    """Return the expected share of the rows in groups that moved."""
    inside = moved.group != OUTSIDE
    return float(moved.moving[inside].mean()) if inside.any() else moved.rate


def _moved_in_groups(release: pa.Table, params: SwapParams) -> list[MovedFields]:
    """Return the moved fields of DSWAP, CDSWAP and DDSWAP."""
    together = [params.swap_fields] if params.locked else [(name,) for name in params.swap_fields]
    if params.moving_unit is not None:
        found = [
            (fields, _numbers_of(groups, release.num_rows))
            for fields, groups in household_groups(release, params)
        ]
    elif isinstance(params, ddswap.DdswapParams):
        by_field = {
            name: exchange.groups
            for exchange in ddswap.block_exchanges(release, params)
            for name in exchange.fields
        }
        found = [(fields, _numbers_of(by_field[fields[0]], release.num_rows)) for fields in together]
    else:
        if isinstance(params, cdswap.CdswapParams):
            group = _numbers_of(cdswap.equivalence_classes(release, params), release.num_rows)
        else:
            group = np.zeros(release.num_rows, np.int64)
        found = [(fields, group) for fields in together]
    units, one_value = unit_codes(release, params.moving_unit), params.unit_sizes == "any"
    movers = units if one_value else None
    members = []
    for fields, group in found:
        if params.nulls == "keep":
            absent = np.logical_or.reduce([null_mask(release.column(name)) for name in fields])
            group = np.where(absent, OUTSIDE, group)
        members.append(_without_small(group, params.min_group_size, movers))
    sizes = [members_of_groups(group, movers) for group in members]
    exchanged = [counts[counts > 0].tolist() for counts in sizes]
    shares, selection = moved_shares(params, exchanged), selection_rate(params, exchanged)
    return [
        MovedFields(fields, group, share, params.mechanism, selection, units=units, one_value=one_value)
        for (fields, _), group, share in zip(found, members, shares, strict=True)
    ]


def _moved_in_bins(release: pa.Table, params: BinParams) -> list[MovedFields]:
    """Return the moved fields of MEWS and MEDS."""
    moved = []
    for fields in (params.swap_fields, *((name,) for name in other_fields(params, release.schema))):
        group = np.full(release.num_rows, OUTSIDE, np.int64)
        columns = [numbers_of(release.column(name)) for name in fields]
        present = np.flatnonzero(np.logical_and.reduce([np.isfinite(values) for values in columns]))
        if len(present):
            entries = [
                _field_values(name, values[present]) for name, values in zip(fields, columns, strict=True)
            ]
            group[present] = _numbers_of(_bins(params, entries), len(present))
        moved.append(MovedFields(fields, _without_small(group, 2), params.rate))
    return moved


def _bins(params: BinParams, fields: list[FieldValues]) -> Groups:
    if isinstance(params, mews.MewsParams):
        return mews.allocate(params, fields, no_progress).groups
    assert isinstance(params, meds.MedsParams)  # noqa: S101 - no other service has bins
    return meds.make_bins(params, fields, no_progress).groups


def _field_values(name: str, values: Any) -> FieldValues:
    values = read_only(np.ascontiguousarray(values))
    low, high, _ = extent(values)
    return FieldValues(name, values, low, high)


def _numbers_of(groups: Groups, rows: int) -> Int64Array:
    """Return the number of each row's group; shape (rows,)."""
    found = np.full(rows, OUTSIDE, np.int64)
    found[groups.order] = np.repeat(np.arange(len(groups.starts) - 1), groups.sizes)
    return found


def _without_small(group: Int64Array, least: int, movers: Int64Array | None = None) -> Int64Array:
    """Take the rows of groups below the least size, in rows or movers, out of their groups."""
    inside = group != OUTSIDE
    counts = members_of_groups(group, movers)
    small = np.zeros(len(group), np.bool_)
    small[inside] = counts[group[inside]] < max(least, 2)
    return np.where(small, OUTSIDE, group)


def joint_codes(tables: AttackTables, fields: Sequence[str], rows: Sequence[Rows]) -> list[Int64Array]:
    """Return a code of each row's values of some fields, equal in all tables where the values are.

    Parameters
    ----------
    tables : AttackTables
    fields : sequence of str
        Fields that take part, one or more.
    rows : sequence of {"source", "release", "control"}
        Tables whose codes are wanted.
    """
    lengths = [len(tables.codes(fields[0], side)) for side in rows]
    stacked = np.stack(
        [np.concatenate([tables.codes(name, side) for side in rows]) for name in fields], axis=1
    )
    if len(fields) == 1:
        codes = stacked[:, 0].astype(np.int64)
    else:
        codes = np.unique(stacked, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return [part.copy() for part in np.split(codes, np.cumsum(lengths)[:-1])]


def in_release_order(tables: AttackTables, values: Int64Array) -> Int64Array:
    """Reorder values of the source's rows by the rows of the release."""
    return values if tables.origin is None else values[tables.origin]
