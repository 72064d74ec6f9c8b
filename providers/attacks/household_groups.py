"""Groups of rows within which a swap of whole households moved values, computed again from a release."""

import pyarrow as pa

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
