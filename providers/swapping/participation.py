"""Participation of rows in an exchange, and the reasons of rows that keep their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray, row_index_type
from providers.grouping.groups import Groups, Pairing
from providers.params import SwapParams
from providers.swapping.exchange import sources
from providers.tables.columns import null_mask

REASONS = {"alone": 1, "group_too_small": 2, "null": 4, "rate": 8, "check": 32}
"""Reason for which a swap field of a row keeps its value -> its bit in the marks of the row."""

TOOK_PART = 16
"""Bit of a row whose value was exchanged."""

UNSWAPPABLE = REASONS["alone"] | REASONS["group_too_small"]
"""Bits of the rows that cannot be swapped."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Fields whose values are exchanged within the same groups."""

    fields: tuple[str, ...]
    groups: Groups
    """Groups of the table's rows; rows that take no part may be in no group."""
    locked: bool
    """Whether the fields of a row move together."""
    absent: Mapping[str, BoolArray] = field(default_factory=dict)
    """Swap field -> mask of the rows whose value takes no part, in addition to the nulls that
    ``nulls: keep`` leaves out; shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Rows that can be swapped, in one field or in all fields if locked."""

    groups: Groups
    """Groups of the rows that have a value."""
    absent: IndexArray
    """Rows left out because their value is null, ascending."""
    singletons: IndexArray
    """Rows that are in a group of one row, ascending."""
    too_small: IndexArray
    """Rows of other groups below the smallest size, ascending."""

    @property
    def unswappable(self) -> IndexArray:
        """Rows that cannot be swapped, ascending."""
        return np.sort(np.concatenate([self.singletons, self.too_small]))


def _participation(groups: Groups, absent: BoolArray | None, min_group_size: int) -> Participation:
    """Leave absent rows out of the groups and find the groups below the smallest size."""
    no_rows: IndexArray = np.zeros(0, row_index_type(groups.rows))
    if absent is not None and absent.any():
        groups = groups_without(groups, absent)
        missing = np.flatnonzero(absent)
    else:
        missing = no_rows
    sizes = groups.sizes
    if not len(sizes) or sizes.min() >= min_group_size:
        return Participation(groups, missing, no_rows, no_rows)
    singletons = np.sort(groups.order[groups.starts[:-1][sizes == 1]])
    small = (sizes > 1) & (sizes < min_group_size)
    too_small = np.sort(groups.order[np.repeat(small, sizes)]) if small.any() else no_rows
    return Participation(groups, missing, singletons, too_small)


def groups_without(groups: Groups, absent: BoolArray) -> Groups:
    """Remove rows from the groups; groups keep their identity, and empty ones are dropped."""
    present = ~absent[groups.order]
    if present.all():  # a service may have left the rows out before it formed the groups
        return groups
    bounds = np.concatenate([[0], np.cumsum(present)])[groups.starts]
    not_empty = np.flatnonzero(np.diff(bounds))
    starts = np.append(bounds[not_empty], bounds[-1]).astype(np.int64)
    return Groups(groups.rows, groups.order[present], starts, groups.identities[not_empty])


def absent_mask(table: pa.Table, params: SwapParams, exchange: Exchange, name: str) -> BoolArray | None:
    """Mask of the rows whose value of a field takes no part; None if every value does."""
    absent = exchange.absent.get(name)
    if params.nulls == "keep":
        nulls = null_mask(table.column(name))
        absent = nulls if absent is None else nulls | absent
    return absent if absent is not None and absent.any() else None


def participation_by_field(
    table: pa.Table, params: SwapParams, exchange: Exchange
) -> dict[str, Participation]:
    """Return the participation of each swap field; fields with the same rows share one object."""
    absent = {name: absent_mask(table, params, exchange, name) for name in exchange.fields}
    if exchange.locked:
        masks = [mask for mask in absent.values() if mask is not None]
        absent = dict.fromkeys(absent, np.logical_or.reduce(masks) if masks else None)
    known: dict[int, Participation] = {}
    for mask in absent.values():
        if id(mask) not in known:
            known[id(mask)] = _participation(exchange.groups, mask, params.min_group_size)
    return {name: known[id(mask)] for name, mask in absent.items()}


def row_marks(participation: Participation, pairing: Pairing) -> npt.NDArray[np.uint8]:
    """Return for each row the bits of `TOOK_PART` and `REASONS`; shape (rows,)."""
    rows = pairing.groups.rows
    if int(pairing.took_part.sum()) == rows:
        return np.full(rows, TOOK_PART, np.uint8)
    marks: npt.NDArray[np.uint8] = np.zeros(rows, np.uint8)
    moved = sources(pairing) != np.arange(rows)  # rows that take part get another row's value
    marks[moved] = TOOK_PART
    marks[participation.absent] |= REASONS["null"]
    marks[participation.singletons] |= REASONS["alone"]
    marks[participation.too_small] |= REASONS["group_too_small"]
    listed_rows = participation.groups.order
    swappable_rows = len(listed_rows) - len(participation.singletons) - len(participation.too_small)
    if int(pairing.took_part.sum()) < swappable_rows:  # below rate 1
        swappable = np.zeros(rows, np.bool_)
        swappable[listed_rows] = True
        swappable[participation.singletons] = swappable[participation.too_small] = False
        marks[swappable & ~moved] |= REASONS["rate"]
    return marks
