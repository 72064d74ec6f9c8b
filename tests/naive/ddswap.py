"""DDSWAP in plain Python: the group is a block of rows next to each other on the control fields."""

import datetime
import math
from decimal import Decimal
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


def number(value: Any) -> float | int | None:
    """The value as a number: dates in days, moments and spans in seconds."""
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) / datetime.timedelta(seconds=1)
    if isinstance(value, datetime.date):
        return value.toordinal()
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 10**6
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def distances(table: Table, params: DdswapParams, outcome: Outcome) -> tuple[list[float], list[float]]:
    """How far each value moved, in ranks and (with one control field) in its units."""
    rank_of = {row: rank for rank, row in enumerate(ranked(table, params))}
    numbers = [number(value) for value in table[params.control_field[0]]]
    ranks: list[float] = []
    units: list[float] = []
    sources = list(outcome.sources.values())
    for source in sources[:1] if params.locked else sources:
        for row, origin in enumerate(source):
            if row != origin:
                ranks.append(float(abs(rank_of[row] - rank_of[origin])))
                here, there = numbers[row], numbers[origin]
                if here is not None and there is not None and math.isfinite(here - there):
                    units.append(float(abs(here - there)))
    return ranks, units


def swap(table: Table, params: DdswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between rows of one block."""
    groups = blocks(ranked(table, params), params.block_size)
    return swap_within(table, params, groups, seed, "DDSWAP", revision)
