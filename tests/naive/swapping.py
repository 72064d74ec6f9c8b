"""Common part of the swaps in plain Python, on a table of lists."""

import copy
import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from providers.params import SwapParams
from tests.naive.chacha20 import derive_key
from tests.naive.pairing import Exchanged, Group, exchange_groups, moving_rows

Table = dict[str, list[Any]]


@dataclass
class Outcome:
    """Destination table and figures of the report."""

    table: Table
    failed: bool = False
    groups: int = 0
    group_size: tuple[int, float, int] = (0, 0.0, 0)
    took_part: int = 0
    took_part_by_field: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    suppressed: int = 0
    unswapped: int = 0
    unswapped_reasons: dict[str, int] = field(default_factory=dict)
    unswappable: int = 0
    events: Counter[str] = field(default_factory=Counter)
    sources: dict[str, list[int]] = field(default_factory=dict)
    provider: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same: floats bit by bit, null equal to null."""
    if isinstance(one, float) and isinstance(two, float):
        return struct.pack("<d", one) == struct.pack("<d", two)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, dict) and isinstance(two, dict):
        return list(one) == list(two) and all(same(one[name], two[name]) for name in one)
    return type(one) is type(two) and bool(one == two)


def is_nan(value: Any) -> bool:
    """Whether the value is a float's NaN."""
    return isinstance(value, float) and math.isnan(value)


def row_count(table: Table) -> int:
    """Number of rows of the table."""
    return len(next(iter(table.values()), []))


@dataclass
class Exchange:
    """Fields whose values are exchanged within the same groups."""

    fields: tuple[str, ...]
    groups: list[Group]
    locked: bool
    absent: dict[str, set[int]]
    """Field -> rows whose value takes no part."""


def swap_within(
    table: Table, params: SwapParams, groups: list[Group], seed: bytes, service: str, revision: int
) -> Outcome:
    """Swap the fields within the groups, then apply the suppression policy."""
    keep = params.nulls == "keep"
    nulls = {
        name: {row for row in range(row_count(table)) if keep and table[name][row] is None}
        for name in params.swap_fields
    }
    exchange = Exchange(params.swap_fields, groups, params.locked, nulls)
    return swap_each(table, params, [exchange], seed, service, revision)


def swap_each(
    table: Table, params: SwapParams, exchanges: list[Exchange], seed: bytes, service: str, revision: int
) -> Outcome:
    """Swap each exchange's fields within its groups, then apply the suppression policy."""
    rows = row_count(table)
    out = Outcome({name: list(values) for name, values in table.items()})
    sizes = sorted(len(group.rows) for group in exchanges[0].groups)
    out.groups = len(sizes)
    if sizes:
        out.group_size = (sizes[0], float(median(sizes)), sizes[-1])

    def run(purpose: str, groups: list[Group], absent: set[int]) -> Exchanged:
        taking_part = [Group(g.identity, [row for row in g.rows if row not in absent]) for g in groups]
        key = derive_key(seed, service, revision, purpose)
        return exchange_groups(taking_part, rows, key, params.rate, params.min_group_size)

    out.provider |= group_figures(exchanges, params)
    if out.provider["reversible"]:
        out.events["reversible_groups"] += 1
        out.failed = params.on_reversible == "fail"
    reasons: dict[str, set[int]] = {"alone": set(), "group_too_small": set(), "null": set(), "rate": set()}
    unswappable: dict[str, set[int]] = {}
    took_part: set[int] = set()
    for exchange in exchanges:
        by_field: dict[str, tuple[Exchanged, set[int]]] = {}
        if exchange.locked:
            absent = set[int]().union(*exchange.absent.values())
            by_field = dict.fromkeys(exchange.fields, (run("exchange", exchange.groups, absent), absent))
        else:
            for name in exchange.fields:
                absent = exchange.absent[name]
                by_field[name] = run(f"exchange/{name}", exchange.groups, absent), absent
        for name, (done, absent) in by_field.items():
            out.sources[name] = done.source
            out.table[name] = [table[name][row] for row in done.source]
            out.took_part_by_field[name] = len(done.took_part)
            out.changed[name] = sum(not same(a, b) for a, b in zip(table[name], out.table[name], strict=True))
            if done.took_part and not out.changed[name]:
                out.events["nothing_changed"] += 1
            took_part |= done.took_part
            reasons["alone"] |= done.alone
            reasons["group_too_small"] |= done.too_small
            reasons["null"] |= absent
            reasons["rate"] |= done.not_drawn
            unswappable[name] = done.alone | done.too_small
            if exchange.locked:
                out.events["null_kept"] += len(absent - exchange.absent[name])
    out.took_part = len(took_part)
    out.unswapped = len(set[int]().union(*reasons.values()))
    out.unswapped_reasons = {reason: len(found) for reason, found in reasons.items() if found}
    suppress(out, params, unswappable)
    return out


def group_figures(exchanges: list[Exchange], params: SwapParams) -> dict[str, Any]:
    """Count the possible exchanges by listing the sizes of all groups of each field."""
    sizes_by_field = []
    for exchange in exchanges:
        together = set[int]().union(*exchange.absent.values())
        for name in exchange.fields[:1] if exchange.locked else exchange.fields:
            absent = together if exchange.locked else exchange.absent[name]
            sizes = [sum(row not in absent for row in group.rows) for group in exchange.groups]
            sizes_by_field.append([size for size in sizes if size >= params.min_group_size])
    bits = [
        sorted(exchange_bits(size, params.rate) for size in sizes for _ in range(size))
        for sizes in sizes_by_field
    ]
    twos, threes = (max((size * sizes.count(size) for sizes in sizes_by_field), default=0) for size in (2, 3))
    return {
        "group_bits": {
            "smallest": min((rows[0] for rows in bits if rows), default=None),
            "p05": min((rows[math.ceil(len(rows) / 20) - 1] for rows in bits if rows), default=None),
            "rows_in_groups_of_two": twos,
            "rows_in_groups_of_three": threes,
        },
        "reversible": params.rate > 0.5 and twos + threes > 0,
    }


@cache
def exchange_bits(size: int, rate: float) -> float:
    """log2 of the number of exchanges of a group: the fewest over all possible numbers of moving rows."""
    counts = []
    for moving in {moving_rows(size, rate, step / 1024) for step in range(1024)}:
        if moving % 2:  # a cycle of three in two directions, and a perfect matching of the others
            ways = math.comb(size, 3) * 2 * perfect_matchings(size - 3)
        else:
            ways = math.comb(size, moving) * perfect_matchings(moving)
        counts.append(ways)
    return math.log2(min(counts))


def perfect_matchings(size: int) -> int:
    """Number of ways to pair an even number of rows, (size - 1)!!."""
    return math.prod(range(1, size, 2))


def suppress(out: Outcome, params: SwapParams, unswappable: dict[str, set[int]]) -> None:
    """Apply the policy to the rows that cannot be swapped."""
    policy = params.suppression.policy
    rows = set[int]().union(*unswappable.values())
    out.unswappable = len(rows)
    if policy == "fail":
        out.failed |= bool(rows)
    elif policy == "drop":
        out.table = {
            name: [value for row, value in enumerate(values) if row not in rows]
            for name, values in out.table.items()
        }
        out.suppressed = len(rows)
        out.events["dropped"] += len(rows)
    elif policy == "keep":
        out.events["kept"] += sum(map(len, unswappable.values()))
    else:
        named = params.suppression.fields
        targets = dict.fromkeys(named, rows) if named else unswappable
        for name, cells in targets.items():
            for row in cells:
                out.table[name][row] = (
                    None if policy == "suppress" else copy.copy(params.suppression.replacement[name])
                )
            out.events["suppressed" if policy == "suppress" else "replaced"] += len(cells)
        out.suppressed = len(set[int]().union(*targets.values()))
        for name, cells in unswappable.items():
            if name not in targets:
                out.events["kept"] += len(cells)
    out.events = +out.events  # drop codes with count zero


def groups_of(classes: Iterable[Any]) -> list[Group]:
    """Group the rows by class; the identity of a group is its smallest row."""
    members: dict[Any, list[int]] = {}
    for row, key in enumerate(classes):
        members.setdefault(key, []).append(row)
    return [Group(rows[0], rows) for rows in members.values()]
