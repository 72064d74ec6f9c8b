"""Groups of rows that exchange values, computed again from a release as an intruder computes them.

A swap publishes the fields that define its groups, or every value of a group within the group. The service
and its parameters are taken as known (Kerckhoffs's principle); the seed is not.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.attacks.household_groups import household_groups, members_of_groups
from providers.binning.swap import BinParams, Bins, other_fields
from providers.binning.values import FieldValues, extent, numbers_of, read_only
from providers.grouping.groups import Groups
from providers.params import Params, SwapParams
from providers.progress import no_progress
from providers.services.cdswap import CdswapParams, equivalence_classes
from providers.services.ddswap import DdswapParams, block_exchanges
from providers.services.dswap import DswapParams, whole_table
from providers.services.meds import MedsParams, make_bins
from providers.services.mews import MewsParams, allocate
from providers.swapping.guarantee import moved_shares
from providers.tables.units import unit_codes

NO_GROUP = -1


def groups_by_field(release: pa.Table, params: Params) -> dict[str, Int64Array]:
    """Return the group of each row for each exchanged field; empty for services that exchange nothing.

    Parameters
    ----------
    release : pa.Table
    params : Params
        Parameters of the service, checked against the source's schema.

    Returns
    -------
    dict
        Field -> number of the group of each row, `NO_GROUP` where a row is in none; arrays of shape (rows,).
    """
    return {
        name: numbers
        for names, groups in _groups(release, params)
        for numbers in [_of_row(groups)]
        for name in names
    }


def rate_of(params: Params, groups: Mapping[str, Int64Array], name: str, release: pa.Table) -> float:
    """Return the share of the rows that a swap exchanges in a field.

    Parameters
    ----------
    params : Params
    groups : mapping
        As `groups_by_field` returns them.
    name : str
        Field.
    release : pa.Table
        Of which units are read, if those of any size have one value each.
    """
    if isinstance(params, BinParams):
        return params.rate
    if not isinstance(params, SwapParams):
        return 1.0
    fields = list(groups)[:1] if params.locked else list(groups)
    movers = unit_codes(release, params.moving_unit) if params.unit_sizes == "any" else None
    sizes = [members_of_groups(groups[field], movers) for field in fields]
    exchanged = [counts[counts >= params.min_group_size].tolist() for counts in sizes]
    shares = dict(zip(fields, moved_shares(params, exchanged), strict=True))
    return shares.get(name, shares[fields[0]])


def _groups(release: pa.Table, params: Params) -> Iterator[tuple[tuple[str, ...], Groups]]:
    if isinstance(params, SwapParams) and params.moving_unit is not None:
        yield from household_groups(release, params)
    elif isinstance(params, DswapParams):
        yield params.swap_fields, whole_table(release.num_rows)
    elif isinstance(params, CdswapParams):
        yield params.swap_fields, equivalence_classes(release, params)
    elif isinstance(params, DdswapParams):
        for exchange in block_exchanges(release, params):
            yield exchange.fields, exchange.groups
    elif isinstance(params, MewsParams | MedsParams):
        form: Callable[..., Bins] = allocate if isinstance(params, MewsParams) else make_bins
        for names in (params.swap_fields, *((name,) for name in other_fields(params, release.schema))):
            yield names, _binned(release, names, partial(form, params))


def _binned(release: pa.Table, names: tuple[str, ...], form: Callable[..., Bins]) -> Groups:
    """Form the bins of the rows whose values are all finite."""
    columns = [numbers_of(release.column(name)) for name in names]
    rows = release.num_rows
    present = np.flatnonzero(np.logical_and.reduce([np.isfinite(values) for values in columns]))
    if not len(present):
        return Groups(rows, np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64))
    fields = []
    for name, values in zip(names, columns, strict=True):
        chosen = values if len(present) == rows else read_only(values[present])
        low, high, _ = extent(chosen)
        fields.append(FieldValues(name, chosen, low, high))
    groups = form(fields, no_progress).groups
    if len(present) == rows:
        return groups
    return Groups(rows, present[groups.order], groups.starts, groups.identities)


def _of_row(groups: Groups) -> Int64Array:
    """Number of the group of each row."""
    numbers = np.full(groups.rows, NO_GROUP, np.int64)
    numbers[np.asarray(groups.order)] = np.repeat(np.arange(len(groups.starts) - 1), np.diff(groups.starts))
    return numbers


def group_members(numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the rows group by group, without those in no group, and the start of each group among them."""
    order = np.argsort(numbers, kind="stable")
    order = order[np.searchsorted(numbers[order], 0) :]
    starts = np.concatenate(([0], np.cumsum(np.bincount(numbers[order], minlength=1)))).astype(np.int64)
    return order, starts
