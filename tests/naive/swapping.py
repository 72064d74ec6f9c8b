"""Common part of the swaps in plain Python, on a table of lists."""

import copy
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from statistics import median
from types import NoneType
from typing import Any

from providers.params import SwapParams
from tests.naive.chacha20 import derive_key
from tests.naive.pairing import Exchanged, Group, exchange_groups, moving_rows
from tests.naive.permutation import epsilon, permutation_bits, permute_groups, smallest_rate
from tests.naive.risk_selection import (
    Selected,
    chosen_rows,
    deciles,
    expected_sizes,
    select,
    unique_rows,
)
from tests.naive.row_checks import Move, checks_report, repair

Table = dict[str, list[Any]]


@dataclass
class Outcome:
    """Destination table and figures of the report."""

    table: Table
    failed: bool = False
    unreachable: bool = False
    """Whether no rate reaches `target_epsilon`."""
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
    risk_selection: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    guarantee: dict[str, Any] = field(default_factory=dict)
    """Rate, epsilon, and epsilon by field of the permutation mechanism."""


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same: floats bit by bit, null equal to null."""
    if isinstance(one, float) and isinstance(two, float):
        return struct.pack("<d", one) == struct.pack("<d", two)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, dict) and isinstance(two, dict):
        return list(one) == list(two) and all(same(one[name], two[name]) for name in one)
    return type(one) is type(two) and bool(one == two)


EXACT = {NoneType, bool, int, str, bytes, date, datetime, time, timedelta, Decimal}
"""Types of which equal values are the same."""


def differing(ones: list[Any], twos: list[Any]) -> list[int]:
    """Rows in which two columns do not hold the same value."""
    kinds = [type(value) for value in ones]
    if EXACT.issuperset(kinds) and kinds == [type(value) for value in twos]:
        return [row for row, (one, two) in enumerate(zip(ones, twos, strict=True)) if one != two]
    return [row for row, (one, two) in enumerate(zip(ones, twos, strict=True)) if not same(one, two)]


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
    if params.mechanism == "permutation":
        params = with_guarantee(out, params, exchanges)
        if out.unreachable:
            return out
    sizes = sorted(len(group.rows) for group in exchanges[0].groups)
    out.groups = len(sizes)
    if sizes:
        out.group_size = (sizes[0], float(median(sizes)), sizes[-1])

    selected = None
    chosen_sizes: list[list[int]] = []
    if params.risk is not None:
        key = derive_key(seed, service, revision, "selection")
        selected = select(table, params.risk, params.rate, key)

    def run(purpose: str, groups: list[Group], absent: set[int]) -> Exchanged:
        taking_part = [Group(g.identity, [row for row in g.rows if row not in absent]) for g in groups]
        if selected is not None:
            key = derive_key(seed, service, revision, purpose)
            done, sizes = exchange_selected(taking_part, rows, key, selected, params.min_group_size)
            chosen_sizes.append(sizes)
            return done
        if params.mechanism == "permutation":
            key = derive_key(seed, service, revision, purpose.replace("exchange", "permutation", 1))
            return permute_groups(taking_part, rows, key, params.rate, params.min_group_size)
        key = derive_key(seed, service, revision, purpose)
        return exchange_groups(taking_part, rows, key, params.rate, params.min_group_size)

    out.provider |= group_figures(exchanges, params, selected)
    if out.provider["reversible"]:
        out.events["reversible_groups"] += 1
        out.failed = params.on_reversible == "fail"
    repaired: dict[str, Move] = {}
    if params.on_broken == "repair":
        repaired = repair_exchanges(out, table, params, exchanges, run, seed, service, revision)
    reasons: dict[str, set[int]] = {
        name: set() for name in ("alone", "group_too_small", "null", "rate", "check")
    }
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
            if repaired:
                move = repaired[name]
                done.source = move.source
                done.took_part = {row for row in range(rows) if move.source[row] != row}
                reasons["check"] |= move.restored
                out.events["check_restored"] += len(move.restored)
            out.sources[name] = done.source
            out.table[name] = [table[name][row] for row in done.source]
            out.took_part_by_field[name] = len(done.took_part)
            out.changed[name] = len(differing(table[name], out.table[name]))
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
    moved = {name: list(values) for name, values in out.table.items()}
    suppress(out, params, unswappable)
    if params.checks:
        dropped = set[int]()
        if params.suppression.policy == "drop":
            dropped = set[int]().union(*unswappable.values())
        origin = [row for row in range(rows) if row not in dropped]
        out.checks |= checks_report(table, out.table, origin, params.checks, out.events)
    if selected is not None:
        report_selection(out, table, moved, params, selected, unswappable, chosen_sizes)
    return out


def repair_exchanges(
    out: Outcome, table: Table, params: SwapParams, exchanges: list[Exchange],
    run: Callable[[str, list[Group], set[int]], Exchanged], seed: bytes, service: str, revision: int,
) -> dict[str, Move]:  # fmt: skip
    """Draw all exchanges and repair them; return the move of each field."""
    moves: list[Move] = []
    for exchange in exchanges:
        for names in [exchange.fields] if exchange.locked else [(name,) for name in exchange.fields]:
            absent = set[int]().union(*(exchange.absent[name] for name in names))
            purpose = "exchange" if exchange.locked else f"exchange/{names[0]}"
            able = [Group(g.identity, [row for row in g.rows if row not in absent]) for g in exchange.groups]
            moves.append(Move(purpose, names, able, run(purpose, exchange.groups, absent).source))
    out.checks = repair(
        table, moves, params.checks, lambda purpose: derive_key(seed, service, revision, purpose)
    )
    return {name: move for move in moves for name in move.fields}


def exchange_selected(
    groups: list[Group], rows: int, key: Any, selected: Selected, min_group_size: int
) -> tuple[Exchanged, list[int]]:
    """Exchange the selected rows of every group; also return how many each group has."""
    able = [group for group in groups if len(group.rows) >= min_group_size]
    chosen = [Group(group.identity, chosen_rows(group, selected)) for group in able]
    done = exchange_groups(chosen, rows, key, 1.0, 2)
    assert not done.alone
    done.alone = {row for group in groups if len(group.rows) == 1 for row in group.rows}
    done.too_small = {row for g in groups if 1 < len(g.rows) < min_group_size for row in g.rows}
    done.not_drawn = {row for group in able for row in group.rows} - done.took_part
    return done, [len(group.rows) for group in chosen if group.rows]


def report_selection(
    out: Outcome, table: Table, moved: Table, params: SwapParams, selected: Selected,
    unswappable: dict[str, set[int]], chosen_sizes: list[list[int]],
) -> None:  # fmt: skip
    """Report the selection by decile of risk, and the required rows that could not be swapped."""
    assert params.risk is not None
    rows = range(row_count(table))
    took_part = {row for source in out.sources.values() for row in rows if source[row] != row}
    changed = {row for name in params.swap_fields for row in differing(table[name], moved[name])}
    marks = {
        "required": selected.required,
        "selected": selected.selected,
        "took_part": took_part,
        "changed": changed,
    }
    impossible: set[int] = set()
    for source in out.sources.values():
        found = {row for row in selected.required if source[row] == row}
        out.events["risk_unswapped"] += len(found)
        impossible |= found
    out.events = +out.events
    figures = {
        "required": len(selected.required),
        "drawn": len(selected.selected - selected.required),
        "partners": len(took_part - selected.selected),
        "required_unswapped": len(impossible),
    }
    if params.risk.key_fields:
        dropped = set[int]()
        if params.suppression.policy == "drop":
            dropped = set[int]().union(*unswappable.values())
        origin = [row for row in rows if row not in dropped]
        marks["unique_before"] = unique_rows(table, params.risk.key_fields)
        marks["unique_after"] = {origin[row] for row in unique_rows(out.table, params.risk.key_fields)}
        figures |= {name: len(marks[name]) for name in ("unique_before", "unique_after")}
    out.risk_selection = figures
    out.provider["risk_deciles"] = deciles(selected.risk, marks)
    bits = [sorted(exchange_bits(size, 1.0) for size in sizes for _ in range(size)) for sizes in chosen_sizes]
    out.provider["group_bits"] |= {
        "smallest": min((each[0] for each in bits if each), default=None),
        "p05": min((each[math.ceil(len(each) / 20) - 1] for each in bits if each), default=None),
    }


def all_sizes(exchanges: list[Exchange]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Fields that move together, and the sizes of all groups of the rows that have a value in them."""
    names = [
        fields
        for exchange in exchanges
        for fields in ([exchange.fields] if exchange.locked else [(name,) for name in exchange.fields])
    ]
    sizes = [[len(group.rows) for group in groups] for groups in all_groups(exchanges)]
    return list(zip(names, sizes, strict=True))


def all_groups(exchanges: list[Exchange]) -> list[list[Group]]:
    """Groups of the rows that have a value, for the fields that move together."""
    found = []
    for exchange in exchanges:
        together = set[int]().union(*exchange.absent.values())
        for absent in [together] if exchange.locked else [exchange.absent[name] for name in exchange.fields]:
            taking_part = [[row for row in group.rows if row not in absent] for group in exchange.groups]
            identities = [group.identity for group in exchange.groups]
            found += [[Group(*each) for each in zip(identities, taking_part, strict=True)]]
    return found


def with_guarantee(out: Outcome, params: SwapParams, exchanges: list[Exchange]) -> SwapParams:
    """Report epsilon, and return the parameters with the rate that meets the target."""
    sizes = all_sizes(exchanges)
    largest = [max((n for n in found if n >= params.min_group_size), default=0) for _, found in sizes]
    has_small_groups = any(2 <= n < params.min_group_size for _, found in sizes for n in found)
    policy, named = params.suppression.policy, params.suppression.fields
    kept = [
        name
        for name in params.swap_fields
        if has_small_groups and (policy == "keep" or (named and name not in named))
    ]
    if params.target_epsilon is not None:
        rate = None if kept else smallest_rate([n for n in largest if n], params.target_epsilon)
        out.unreachable = out.failed = rate is None
        if rate is None:
            return params
        params = params.model_copy(update={"rate": rate})
    by_field = {
        ", ".join(names): None if set(names) & set(kept) else epsilon(n, params.rate) if n else 0.0
        for (names, _), n in zip(sizes, largest, strict=True)
    }
    total = None if kept else sum(value or 0.0 for value in by_field.values())
    out.guarantee = {"rate": params.rate, "epsilon": total, "by_field": by_field}
    return params


def group_figures(
    exchanges: list[Exchange], params: SwapParams, selected: Selected | None = None
) -> dict[str, Any]:
    """Count the possible exchanges by listing the sizes of all groups of each field."""
    sizes_by_field = [
        [size for size in sizes if size >= params.min_group_size] for _, sizes in all_sizes(exchanges)
    ]
    if selected is not None:
        sizes_by_field = [
            expected_sizes(
                [group for group in groups if len(group.rows) >= params.min_group_size], selected.required
            )
            for groups in all_groups(exchanges)
        ]
    of_group = permutation_bits if params.mechanism == "permutation" else exchange_bits
    bits = [
        sorted(each for size in sizes for each in [of_group(size, params.rate)] * size)
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
        "reversible": (params.rate > 0.5 or selected is not None) and twos + threes > 0,
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
    return product(range(1, size, 2))


def product(factors: Sequence[int]) -> int:
    """Product of the factors, by halves: two large numbers of equal length multiply fastest."""
    if len(factors) < 100:
        return math.prod(factors)
    half = len(factors) // 2
    return product(factors[:half]) * product(factors[half:])


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
