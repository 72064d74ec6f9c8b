"""What the swaps share, in plain Python on a table of lists."""

import copy
import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from providers.params import SwapParams
from tests.naive.chacha20 import derive_key
from tests.naive.pairing import Exchanged, Group, exchange_groups

Table = dict[str, list[Any]]


@dataclass
class Outcome:
    """The destination table and the figures of the report."""

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
    provider: dict[str, float] = field(default_factory=dict)


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
    """Rows of the table."""
    return len(next(iter(table.values()), []))


@dataclass
class Exchange:
    """Fields that are exchanged within the same groups."""

    fields: tuple[str, ...]
    groups: list[Group]
    locked: bool
    absent: dict[str, set[int]]
    """Field -> the rows whose value takes no part."""


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


def suppress(out: Outcome, params: SwapParams, unswappable: dict[str, set[int]]) -> None:
    """Do with the rows that cannot be swapped as the policy says."""
    policy = params.suppression.policy
    rows = set[int]().union(*unswappable.values())
    out.unswappable = len(rows)
    if policy == "fail":
        out.failed = bool(rows)
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
    out.events = +out.events  # without the codes that did not happen


def groups_of(classes: Iterable[Any]) -> list[Group]:
    """The rows of each class; a group is named by its smallest row."""
    members: dict[Any, list[int]] = {}
    for row, key in enumerate(classes):
        members.setdefault(key, []).append(row)
    return [Group(rows[0], rows) for rows in members.values()]
