"""Groups of rows within which a swap of whole households moved values, computed again from a release."""

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.grouping.groups import Groups
from providers.params import SwapParams
from providers.services import cdswap, ddswap, dswap
from providers.swapping.households import alike, moving_members, row_groups
from providers.swapping.participation import Exchange


def household_groups(release: pa.Table, params: SwapParams) -> list[tuple[tuple[str, ...], Groups]]:
    """Return the fields that moved together, and the groups of the release's rows.

    Parameters
    ----------
    release : pa.Table
        With the household ids and the control fields, which stay with their rows.
    params : SwapParams
        Of DSWAP, CDSWAP or DDSWAP, with `household` or `unit_id`, and all fields by name.

    Notes
    -----
    In a series of DDSWAP a unit keeps its partner when it has moved to another block: all units of its size
    may be its partner.
    """
    if isinstance(params, ddswap.DdswapParams):
        if params.series is not None:
            members = moving_members(release, params)
            return row_groups(members, [Exchange(params.swap_fields, alike(members), params.locked)])
        return row_groups(*ddswap.household_exchanges(release, params))
    if isinstance(params, cdswap.CdswapParams):
        return row_groups(*cdswap.household_exchanges(release, params))
    assert isinstance(params, dswap.DswapParams)  # noqa: S101 - no other service has the parameter
    return row_groups(*dswap.household_exchanges(release, params))


def members_of_groups(group: Int64Array, movers: Int64Array | None) -> Int64Array:
    """Return the number of members of each group: its rows, or the movers to which these belong.

    Parameters
    ----------
    group : ndarray of int64, shape (rows,)
        Group of each row, below 0 for a row in none.
    movers : ndarray of int64, shape (rows,), optional
        Unit of each row, if units of any size have one value each; a group has all rows of its units.
    """
    inside = group >= 0
    if movers is None or not inside.any():
        return np.bincount(group[inside]).astype(np.int64)
    pairs = np.unique(np.stack([group[inside], movers[inside]]), axis=1)
    return np.bincount(pairs[0]).astype(np.int64)
