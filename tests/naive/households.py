"""Exchange of whole households in plain Python: households are exchanged as rows are, then their members."""

import hashlib
from typing import Any

from providers.params import RiskSelection, SwapParams
from tests.naive.pairing import Group
from tests.naive.risk_selection import combinations, deciles, unique_rows
from tests.naive.swapping import Exchange, Outcome, Table, differing, row_count, same, suppress, swap_each


def identity(value: Any) -> int:
    """Return the 64-bit number of an id: two's complement, or the first 8 bytes of a text's hash."""
    if isinstance(value, int):
        return value % 2**64
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "little")


def households_of(table: Table, household: str | None) -> list[list[int]]:
    """Return the rows of each household, the households in the order of their ids' numbers."""
    assert household is not None
    members: dict[Any, list[int]] = {}
    for row, value in enumerate(table[household]):
        members.setdefault(value, []).append(row)
    return [members[value] for value in sorted(members, key=lambda value: (identity(value), members[value]))]


def absent_households(table: Table, params: SwapParams, households: list[list[int]]) -> dict[str, set[int]]:
    """Return field -> households that a null of a member leaves out."""
    return {
        name: {
            number
            for number, rows in enumerate(households)
            if params.nulls == "keep" and any(table[name][row] is None for row in rows)
        }
        for name in params.swap_fields
    }


def risks(table: Table, risk: RiskSelection) -> list[tuple[float, bool]]:
    """Return the risk of each row, and whether it obliges."""
    if risk.field is not None:
        return [(float(value), bool(risk.k) and value > 1 / risk.k) for value in table[risk.field]]
    keys = combinations(table, risk.key_fields)
    population: dict[Any, float] = {}
    for row, key in enumerate(keys):
        population[key] = population.get(key, 0) + (
            1 if risk.weight is None else float(table[risk.weight][row])
        )
    least = risk.k if risk.weight is None else risk.k * (1 - 1e-9)
    return [(1 / population[key], population[key] < least) for key in keys]


def swap_households(
    table: Table, params: SwapParams, households: list[list[int]],
    groups: list[Group] | dict[str, list[Group]], seed: bytes, service: str, revision: int,
) -> Outcome:  # fmt: skip
    """Exchange households within the groups, member by member; groups may differ by field."""
    absent = absent_households(table, params, households)
    numbers: Table = {name: list(range(len(households))) for name in table}
    inside = params
    if params.risk is not None:
        of_row = risks(table, params.risk)
        numbers["the risk"] = []
        for rows in households:
            largest = max(of_row[row][0] for row in rows)
            obliged = any(of_row[row][1] for row in rows)
            limited = min(largest, 1 / params.risk.k) if params.risk.k and not obliged else largest
            numbers["the risk"].append(limited)
        risk = RiskSelection(field="the risk", k=params.risk.k)
        inside = params.model_copy(update={"risk": risk})
    if isinstance(groups, list):
        exchanges = [Exchange(params.swap_fields, groups, params.locked, absent)]
    elif params.locked:
        exchanges = [Exchange(params.swap_fields, groups[params.swap_fields[0]], True, absent)]
    else:
        exchanges = [Exchange((name,), groups[name], False, {name: absent[name]}) for name in absent]
    out = swap_each(numbers, inside, exchanges, seed, service, revision)
    if out.unreachable:
        return out
    reversible = out.events["reversible_groups"]
    out.failed = bool(reversible) and params.on_reversible == "fail"
    out.events.clear()
    out.events["reversible_groups"] = reversible
    found = {name: list(values) for name, values in table.items()}
    kept_by: dict[str, set[int]] = {"alone": set(), "group_too_small": set(), "null": set(), "rate": set()}
    unswappable: dict[str, set[int]] = {}
    moved: set[int] = set()
    for exchange in exchanges:
        together = set[int]().union(*exchange.absent.values())
        for name in exchange.fields:
            left_out = together if exchange.locked else absent[name]
            size_of: dict[int, int] = {}
            for group in exchange.groups:
                present = [number for number in group.rows if number not in left_out]
                size_of |= dict.fromkeys(present, len(present))
            unswappable[name] = set()
            took_part: set[int] = set()
            for number, origin in enumerate(out.sources[name]):
                of_any_size = params.unit_sizes == "any"  # then a household has one value
                given = (
                    households[origin][:1] * len(households[number]) if of_any_size else households[origin]
                )
                for row, source in zip(households[number], given, strict=True):
                    found[name][row] = table[name][source]
                members = set(households[number])
                if number in left_out:
                    kept_by["null"] |= members
                    out.events["null_kept"] += sum(table[name][row] is not None for row in members)
                elif size_of[number] < params.min_group_size:
                    kept_by["alone" if size_of[number] == 1 else "group_too_small"] |= members
                    unswappable[name] |= members
                elif origin == number:
                    kept_by["rate"] |= members
                else:
                    took_part |= members
            out.took_part_by_field[name] = len(took_part)
            moved |= took_part
            out.changed[name] = len(differing(table[name], found[name]))
            if took_part and not out.changed[name]:
                out.events["nothing_changed"] += 1
    out.took_part = len(moved)
    out.unswapped = len(set[int]().union(*kept_by.values()))
    out.unswapped_reasons = {reason: len(rows) for reason, rows in kept_by.items() if rows}
    if params.risk is not None:
        report_risk(out, table, found, params, households)
    out.table = found
    suppress(out, params, unswappable)
    if params.risk is not None and params.risk.key_fields:
        out.risk_selection["unique_before"] = len(unique_rows(table, params.risk.key_fields))
        out.risk_selection["unique_after"] = len(unique_rows(out.table, params.risk.key_fields))
    return out


def report_risk(
    out: Outcome, table: Table, found: Table, params: SwapParams, households: list[list[int]]
) -> None:
    """Count the really changed households by decile, and the rows whose household should have moved."""
    assert params.risk is not None
    of_row = risks(table, params.risk)
    largest = [max(of_row[row][0] for row in rows) for rows in households]
    obliged = {number for number, rows in enumerate(households) if any(of_row[row][1] for row in rows)}
    limit = 1 / params.risk.k if params.risk.k else None
    compared = [
        risk if limit is None or number in obliged else min(risk, limit)
        for number, risk in enumerate(largest)
    ]
    for name in params.swap_fields:
        for number in obliged:
            if out.sources[name][number] == number:
                out.events["risk_unswapped"] += len(households[number])
    changed = {
        number
        for number, rows in enumerate(households)
        if any(not same(table[name][row], found[name][row]) for name in params.swap_fields for row in rows)
    }
    counted = deciles(compared, {"changed": changed}) if row_count(table) else {}
    for decile, entry in counted.items():
        out.provider["risk_deciles"][decile]["changed"] = entry["changed"]
