"""Groups of rows within which a swap of whole households moved values, computed again from a release."""

import pyarrow as pa

from providers.grouping.groups import Groups
from providers.params import SwapParams
from providers.services import cdswap, ddswap, dswap
from providers.swapping.households import row_groups


def household_groups(
    release: pa.Table, params: SwapParams, household: str
) -> list[tuple[tuple[str, ...], Groups]]:
    """Return the fields that moved together, and the groups of the release's rows.

    Parameters
    ----------
    release : pa.Table
        With the household ids and the control fields, which stay with their rows.
    params : SwapParams
        Of DSWAP, CDSWAP or DDSWAP, with all fields by name.
    household : str
        Field of the household ids.
    """
    if isinstance(params, ddswap.DdswapParams):
        return row_groups(*ddswap.household_exchanges(release, params, household))
    if isinstance(params, cdswap.CdswapParams):
        return row_groups(*cdswap.household_exchanges(release, params, household))
    assert isinstance(params, dswap.DswapParams)  # noqa: S101 - no other service has the parameter
    return row_groups(*dswap.household_exchanges(release, params, household))
