"""DSWAP in plain Python: the group is the whole table."""

from providers.services.dswap import DswapParams
from tests.naive.pairing import Group
from tests.naive.swapping import Outcome, Table, row_count, swap_within


def swap(table: Table, params: DswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between random rows of the whole table."""
    rows = list(range(row_count(table)))
    groups = [Group(0, rows)] if rows else []
    return swap_within(table, params, groups, seed, "DSWAP", revision)
