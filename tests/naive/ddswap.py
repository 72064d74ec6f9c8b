"""DDSWAP in plain Python: the group is a block of consecutive rows in the order of the control fields."""

import datetime
import math
from decimal import Decimal
from typing import Any

from providers.services.ddswap import DdswapParams
from tests.naive.households import absent_households, households_of, swap_households
from tests.naive.pairing import Group
from tests.naive.swapping import Exchange, Outcome, Table, is_nan, row_count, swap_each


def sort_key(value: Any) -> Any:
    """Sort key of a value: numbers before NaN, NaN before null; text by code point."""
    if value is None:
        return 2, 0
    return (1, 0) if is_nan(value) else (0, value)


def ranked(table: Table, params: DdswapParams) -> list[int]:
    """Sort the rows by their control fields, ties by row number."""
    columns = [table[name] for name in params.control_field]
    keys = [tuple(map(sort_key, row)) for row in zip(*columns, strict=True)]
    return sorted(range(row_count(table)), key=lambda row: (keys[row], row))


def blocks(order: list[int], size: int) -> list[Group]:
    """Cut blocks of `size` rows; a single remaining row joins the block before it."""
    cut = [order[start : start + size] for start in range(0, len(order), size)]
    if len(cut) > 1 and len(cut[-1]) == 1:
        cut[-2:] = [cut[-2] + cut[-1]]
    return [Group(number, rows) for number, rows in enumerate(cut)]


def number(value: Any) -> float | int | None:
    """Convert a value to a number: dates in days, times and durations in seconds."""
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
    """Distance that each value moved, in ranks and in the units of the first control field."""
    numbers = [number(value) for value in table[params.control_field[0]]]
    ranks: list[float] = []
    units: list[float] = []
    absent = absent_rows(table, params)
    sources = list(outcome.sources.items())
    for name, source in sources[:1] if params.locked else sources:
        taking_part = [row for row in ranked(table, params) if row not in absent[name]]
        rank_of = {row: rank for rank, row in enumerate(taking_part)}
        for row, origin in enumerate(source):
            if row != origin:
                ranks.append(float(abs(rank_of[row] - rank_of[origin])))
                target, start = numbers[row], numbers[origin]
                if target is not None and start is not None and math.isfinite(target - start):
                    units.append(float(abs(target - start)))
    return ranks, units


def swap(table: Table, params: DdswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between rows of one block; only rows that take part are cut into blocks."""
    if params.moving_unit is not None:
        return swap_blocks_of_households(table, params, seed, revision)
    order, absent = ranked(table, params), absent_rows(table, params)
    nulls = {name: null_rows(table, params, name) for name in params.swap_fields}
    exchanges = []
    for names in [params.swap_fields] if params.locked else [(name,) for name in params.swap_fields]:
        taking_part = [row for row in order if row not in absent[names[0]]]
        groups = blocks(taking_part, params.block_size)
        absent_by_field = {name: nulls[name] for name in names}
        exchanges.append(Exchange(names, groups, params.locked, absent_by_field))
    outcome = swap_each(table, params, exchanges, seed, "DDSWAP", revision)
    outcome.blocks = {exchange.fields[0]: len(exchange.groups) for exchange in exchanges}
    return outcome


def null_rows(table: Table, params: DdswapParams, name: str) -> set[int]:
    """Rows whose value of the field is null and does not move."""
    return {row for row, value in enumerate(table[name]) if value is None and params.nulls == "keep"}


def absent_rows(table: Table, params: DdswapParams) -> dict[str, set[int]]:
    """Rows that take no part in the exchange, for each field."""
    nulls = {name: null_rows(table, params, name) for name in params.swap_fields}
    return dict.fromkeys(nulls, set().union(*nulls.values())) if params.locked else nulls


def swap_blocks_of_households(table: Table, params: DdswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between households of one block."""
    households = households_of(table, params.moving_unit)
    groups = blocks_of_households(table, params)
    return swap_households(table, params, households, groups, seed, "DDSWAP", revision)


def blocks_of_households(table: Table, params: DdswapParams) -> dict[str, list[Group]]:
    """Cut blocks of households of one size, close in their first rows, for each field."""
    households = households_of(table, params.moving_unit)
    sizes = [len(rows) if params.unit_sizes == "equal" else 1 for rows in households]
    place = {row: rank for rank, row in enumerate(ranked(table, params))}
    columns = [table[name] for name in params.control_field]
    keys = {rows[0]: tuple(sort_key(column[rows[0]]) for column in columns) for rows in households}
    assert sorted(keys, key=place.__getitem__) == sorted(keys, key=lambda row: (keys[row], row))
    order = sorted(range(len(households)), key=lambda number: (keys[households[number][0]], number))
    absent = absent_households(table, params, households)
    groups: dict[str, list[Group]] = {}
    for name in params.swap_fields:
        out = set[int]().union(*absent.values()) if params.locked else absent[name]
        cut: list[list[int]] = []
        for size in sorted(set(sizes)):
            present = [number for number in order if sizes[number] == size and number not in out]
            cut += [block.rows for block in blocks(present, params.block_size)]
        groups[name] = [Group(number, rows) for number, rows in enumerate(cut)]
    return groups
