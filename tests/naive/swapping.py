"""What DSWAP, CDSWAP and DDSWAP share, in plain Python on a table of lists."""

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


def swap_within(
    table: Table, params: SwapParams, groups: list[Group], seed: bytes, service: str, revision: int
) -> Outcome:
    """Swap the fields within the groups, then apply the suppression policy."""
    rows = row_count(table)
    out = Outcome({name: list(values) for name, values in table.items()})
    sizes = sorted(len(group.rows) for group in groups)
    out.groups = len(groups)
    if sizes:
        out.group_size = (sizes[0], float(median(sizes)), sizes[-1])

    def run(purpose: str, absent: set[int]) -> Exchanged:
        taking_part = [Group(g.identity, [row for row in g.rows if row not in absent]) for g in groups]
        key = derive_key(seed, service, revision, purpose)
        return exchange_groups(taking_part, rows, key, params.rate, params.min_group_size)

    nulls = {
        name: {row for row in range(rows) if table[name][row] is None} if params.nulls == "keep" else set()
        for name in params.swap_fields
    }
    if params.locked:
        absent = set[int]().union(*nulls.values())
        together = run("exchange", absent)
        by_field = dict.fromkeys(params.swap_fields, (together, absent))
    else:
        by_field = {name: (run(f"exchange/{name}", nulls[name]), nulls[name]) for name in params.swap_fields}

    reasons: dict[str, set[int]] = {"alone": set(), "group_too_small": set(), "null": set(), "rate": set()}
    unswappable: dict[str, set[int]] = {}
    took_part: set[int] = set()
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
        if params.locked:
            for row in absent:
                if table[name][row] is not None:
                    out.events["null_kept"] += 1
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
