"""DSWAP in plain Python: the group is the whole table."""

from providers.services.dswap import DswapParams
from tests.naive.households import households_of, swap_households
from tests.naive.pairing import Group
from tests.naive.swapping import Outcome, Table, groups_of, row_count, swap_within


def swap(table: Table, params: DswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between random rows of the whole table."""
    if params.moving_unit is not None:
        households = households_of(table, params.moving_unit)
        keys = [len(members) if params.unit_sizes == "equal" else 1 for members in households]
        return swap_households(table, params, households, groups_of(keys), seed, "DSWAP", revision)
    rows = list(range(row_count(table)))
    groups = [Group(0, rows)] if rows else []
    return swap_within(table, params, groups, seed, "DSWAP", revision)
