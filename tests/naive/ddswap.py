"""DDSWAP in plain Python: the group is a block of rows next to each other on the control fields."""

from typing import Any

from providers.ddswap import DdswapParams
from tests.naive.pairing import Group
from tests.naive.swapping import Outcome, Table, is_nan, row_count, swap_within


def sort_key(value: Any) -> Any:
    """Numbers before NaN, NaN before null; text by code point."""
    if value is None:
        return 2, 0
    return (1, 0) if is_nan(value) else (0, value)


def ranked(table: Table, params: DdswapParams) -> list[int]:
    """The rows by their control fields, ties by row number."""
    columns = [table[name] for name in params.control_field]
    keys = [tuple(map(sort_key, row)) for row in zip(*columns, strict=True)]
    return sorted(range(row_count(table)), key=lambda row: (keys[row], row))


def blocks(order: list[int], size: int) -> list[Group]:
    """Blocks of `size` rows; one row over joins the block before it, more are a block of their own."""
    cut = [order[at : at + size] for at in range(0, len(order), size)]
    if len(cut) > 1 and len(cut[-1]) == 1:
        cut[-2:] = [cut[-2] + cut[-1]]
    return [Group(number, rows) for number, rows in enumerate(cut)]


def swap(table: Table, params: DdswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between rows of one block."""
    groups = blocks(ranked(table, params), params.block_size)
    return swap_within(table, params, groups, seed, "DDSWAP", revision)
