"""Swap of one table of a series in plain Python: known units get their partner's values."""

from types import ModuleType
from typing import Any

from providers.params import RiskSelection, Suppression, SwapParams
from tests.naive import cdswap, ddswap, dswap
from tests.naive.households import households_of, risks
from tests.naive.swapping import Outcome, Table, differing, suppress

SERVICES: dict[str, ModuleType] = {"DSWAP": dswap, "CDSWAP": cdswap, "DDSWAP": ddswap}


def swap_series(
    service: str, table: Table, params: Any, pairs: dict[Any, Any], wave: int, seed: bytes, revision: int
) -> tuple[Outcome, dict[Any, Any], dict[str, Any]]:
    """Return the outcome, the new pairs (unit -> unit whose values it gets) and the figure `series`."""
    name = params.unit_id
    households = households_of(table, name)
    keys: list[Any] = [None] * len(households)
    if service == "CDSWAP":
        households, keys = cdswap.households_and_keys(table, params)
    ids = [table[name][rows[0]] for rows in households]
    number = {identity: at for at, identity in enumerate(ids)}
    origin = list(range(len(ids)))
    parted: dict[str, set[int]] = {
        "partner_missing": set(), "partner_size_differs": set(), "partner_class_differs": set()
    }  # fmt: skip
    known = {at for at, identity in enumerate(ids) if identity in pairs}
    for at in known:
        partner = number.get(pairs[ids[at]])
        if partner is None:
            parted["partner_missing"].add(at)
        elif params.unit_sizes == "equal" and len(households[at]) != len(households[partner]):
            parted["partner_size_differs"].add(at)
        elif keys[at] != keys[partner]:
            parted["partner_class_differs"].add(at)
        else:
            origin[at] = partner
    arrivals = [at for at in range(len(ids)) if at not in known]
    part, inner = arrivals_table(table, params, sorted(row for at in arrivals for row in households[at]))
    inside: Outcome = SERVICES[service].swap(part, inner, seed, revision)
    if inside.unreachable or (inside.failed and params.suppression.policy != "fail"):
        return inside, {}, {}
    found = next(iter(inside.sources.values()), [])
    for at, source in zip(arrivals, found, strict=True):
        origin[at] = arrivals[source]
    alone = unpaired(service, part, inner)
    out = Outcome({field: list(values) for field, values in table.items()})
    out.failed = inside.failed
    out.groups, out.group_size = inside.groups, inside.group_size
    out.provider, out.guarantee, out.risk_selection = inside.provider, inside.guarantee, inside.risk_selection
    out.events.update(
        {code: n for code, n in inside.events.items() if code in ("reversible_groups", "risk_unswapped")}
    )
    out.events["series_started"] = int(wave == 1)
    moved = {at for at, source in enumerate(origin) if at != source}
    reasons: dict[str, set[int]] = {**parted, "alone": set(), "group_too_small": set()}
    for position, size in alone.items():
        reasons["alone" if size == 1 else "group_too_small"].add(arrivals[position])
    without = set[int]().union(*reasons.values())
    reasons["rate"] = set(range(len(ids))) - moved - without
    for field in params.swap_fields:
        for at, source in enumerate(origin):
            given = households[source]
            if params.unit_sizes == "any":
                given = given[:1] * len(households[at])
            for row, giving in zip(households[at], given, strict=True):
                out.table[field][row] = table[field][giving]
        out.changed[field] = len(differing(table[field], out.table[field]))
        out.took_part_by_field[field] = sum(len(households[at]) for at in moved)
        if moved and not out.changed[field]:
            out.events["nothing_changed"] += 1
    out.took_part = sum(len(households[at]) for at in moved)
    out.unswapped_reasons = {
        reason: sum(len(households[at]) for at in units) for reason, units in reasons.items() if units
    }
    out.unswapped = sum(out.unswapped_reasons.values())
    for reason, units in parted.items():
        out.events[reason] += sum(len(households[at]) for at in units)
    rows = {row for at in without for row in households[at]}
    suppress(out, params, {field: set(rows) for field in params.swap_fields})
    new = {ids[at]: ids[origin[at]] for at in arrivals if at not in without}
    figures = {
        "wave": wave,
        "known": len(known),
        "kept_partner": len(known) - sum(len(units) for units in parted.values()),
        **{reason: len(units) for reason, units in parted.items()},
        "arrivals": len(arrivals),
        "new_pairs": len(new),
    }
    return out, new, figures


def arrivals_table(table: Table, params: SwapParams, rows: list[int]) -> tuple[Table, SwapParams]:
    """Return these rows, and the parameters of their swap; risks are those of the whole table."""
    part = {name: [values[row] for row in rows] for name, values in table.items()}
    risk = params.risk
    if risk is not None and risk.key_fields:
        of_row = risks(table, risk)
        limit = 1 / risk.k if risk.k else None
        part["the risk"] = [
            of_row[row][0] if limit is None or of_row[row][1] else min(of_row[row][0], limit) for row in rows
        ]
        risk = RiskSelection(field="the risk", k=risk.k)
    policy = Suppression(policy="keep")
    if params.suppression.policy != "keep":
        policy = Suppression(policy="suppress", fields=params.suppression.fields)
    return part, params.model_copy(update={"series": None, "checks": (), "suppression": policy, "risk": risk})


def unpaired(service: str, part: Table, inner: Any) -> dict[int, int]:
    """Return the units in groups below the smallest size -> size of the group, by their numbers."""
    households = households_of(part, inner.unit_id)
    sizes = [len(rows) if inner.unit_sizes == "equal" else 1 for rows in households]
    if service == "DDSWAP":
        blocks = ddswap.blocks_of_households(part, inner)
        groups = [block.rows for block in blocks[inner.swap_fields[0]]]
    else:
        keys: list[Any] = list(sizes)
        if service == "CDSWAP":
            keys = cdswap.households_and_keys(part, inner)[1]
        by_key: dict[Any, list[int]] = {}
        for at, key in enumerate(keys):
            by_key.setdefault(key, []).append(at)
        groups = list(by_key.values())
    return {at: len(group) for group in groups for at in group if len(group) < max(2, inner.min_group_size)}
