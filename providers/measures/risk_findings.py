"""The risk measures taken of a case: which fields and rows they see, and when they do not apply."""

from collections.abc import Callable
from typing import Any

import numpy as np

from providers.measures.anonymity import anonymity as mean_k
from providers.measures.anonymity import unique_combinations
from providers.measures.case import Case, Finding
from providers.measures.closeness import IntervalDisclosure, dcr_of, pscr_of, raw_dcr, record_linkage
from providers.measures.enumeration import GRID, enumerate_transforms, recovered
from providers.measures.explained import explained
from providers.measures.measure import NotApplicable
from providers.measures.regression import outlier_exposure
from providers.measures.robust import interval_rmd
from providers.measures.sampling import random_state

_FEWEST = 10
"""Rows below which robust distances, clusters and learners are not asked."""


def _changed_share(case: Case) -> Finding:
    case.need_pairs()
    unchanged_rows = np.ones(case.rows["destination"], np.bool_)
    shares: dict[str, float] = {}
    for name in case.columns:
        before, after = case.code_pairs(name)
        same = before == after
        unchanged_rows &= same
        shares[name] = float(np.mean(~same)) if len(same) else 0.0
    own = case.released.run_values.get("changed_share", {})
    shares |= {name: share for name, share in own.items() if name in case.left_out}
    if not shares:
        raise NotApplicable("no field can be compared")
    per_row = {"mean": float(np.mean(list(shares.values())))}
    if len(unchanged_rows):
        per_row["none"] = float(unchanged_rows.mean())
    return Finding(shares, notes={"per_row": per_row})


def _key_fields(case: Case) -> tuple[str, ...]:
    if not case.options.key_fields:
        raise NotApplicable("name what an intruder may know in 'key_fields'")
    case.need_rows()
    return case.options.key_fields


def _unique_combinations(case: Case) -> Finding:
    fields = _key_fields(case)
    tables = case.released.source, case.released.destination
    return Finding(unique_combinations(*tables, fields, case.options.rounding), fields)


def _mean_k(case: Case) -> Finding:
    fields = _key_fields(case)
    tables = case.released.source, case.released.destination
    return Finding(mean_k(*tables, fields, case.options.rounding), fields)


def _comparable(case: Case) -> list[str]:
    case.need_rows()
    if not case.columns:
        raise NotApplicable("no field can be compared")
    return list(case.columns)


def _pscr(case: Case) -> Finding:
    case.need_pairs()
    fields = _comparable(case)
    return Finding(pscr_of(case.closest), fields, case.drawn.size)


def _dcr(case: Case) -> Finding:
    fields = _comparable(case)
    value: dict[str, float | None] = {**dcr_of(case.closest), "raw_mean": None}
    complete = [table[~np.isnan(table).any(axis=1)] for table in case.sampled_matrices]
    count = min(len(table) for table in complete)
    if case.numeric and count:
        value["raw_mean"] = raw_dcr(complete[0][:count], complete[1][:count])
    return Finding(value, fields, case.drawn.size)


def _interval_sd(case: Case) -> Finding:
    case.need_pairs()
    case.need_rows(2)
    fields = case.need_numeric()
    wide, narrow = (IntervalDisclosure(case.rows["destination"], k) for k in (1.0, 0.05))
    for name in fields:
        before, after = case.pairs(name)
        wide.add(before, after)
        narrow.add(before, after)
    value: dict[str, Any] = _disclosed(wide, fields) | {"narrow": _disclosed(narrow, fields)}
    return Finding(value, fields)


def _disclosed(found: IntervalDisclosure, fields: list[str]) -> dict[str, Any]:
    return {"share": found.share, "by_field": dict(zip(fields, found.by_field, strict=True))}


def _interval_rmd(case: Case) -> Finding:
    case.need_pairs()
    case.need_numeric()
    before, after = case.sampled_matrices
    there = zip(before.T, after.T, strict=True)
    kept = [at for at, (x, y) in enumerate(there) if not _mostly_one_value(x) and not _lost(y)]
    if not kept:
        raise NotApplicable("in every field of numbers half of the values or more are equal or missing")
    before, after = before[:, kept], after[:, kept]
    complete = ~np.isnan(before).any(axis=1) & ~np.isnan(after).any(axis=1)
    if complete.sum() < max(_FEWEST, 5 * len(kept)):
        raise NotApplicable("it needs 10 rows without a missing number, and 5 for each field")
    state = random_state(case.stream, "interval_rmd")
    found = interval_rmd(before[complete], after[complete], state)
    return Finding(found, [case.numeric[at] for at in kept], case.drawn.size)


def _mostly_one_value(values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    there = values[~np.isnan(values)]
    if 2 * len(there) < len(values) or not len(there):
        return True
    return 2 * int(np.unique(there, return_counts=True)[1].max()) >= len(there)


def _lost(values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    return 2 * int(np.count_nonzero(~np.isnan(values))) < len(values)


def _record_linkage(case: Case) -> Finding:
    fields = case.options.known_fields or case.options.key_fields
    if not fields:
        raise NotApplicable("name what an intruder may know in 'known_fields' or 'key_fields'")
    case.need_pairs()
    case.need_rows()
    known = [name for name in fields if name in case.columns]
    if not known:
        raise NotApplicable("none of the known fields can be compared")
    return Finding(record_linkage(*case.points(known)), known, case.drawn.size)


def _outlier_exposure(case: Case) -> Finding:
    of = explained(case)
    found = outlier_exposure(of.source, of.destination)
    found["same_row"] = None
    if case.aligned:
        first = of.rows["source"][int(np.nanargmax(of.source.cooks_distances))]
        leader = of.rows["destination"][int(np.nanargmax(of.destination.cooks_distances))]
        origin = case.released.origin
        found["same_row"] = bool(first == (leader if origin is None else origin[leader]))
    return Finding(found, of.fields)


def _enumeration_attack(case: Case) -> Finding:
    parameters = case.released.parameters
    if case.released.service != "PABIDOT" or parameters is None:
        raise NotApplicable("it is an attack on PABIDOT")
    fields = [name for name in getattr(parameters, "fields", ()) if name in case.numeric]
    both = [case.sampled_numbers(name) for name in fields]
    varying = [at for at, (x, _) in enumerate(both) if len(np.unique(x[~np.isnan(x)])) > 1]
    if len(varying) < 2:
        raise NotApplicable("fewer than two of the measured fields were rotated")
    before, after = (np.column_stack([both[at][side] for at in varying]) for side in range(2))
    complete = ~np.isnan(before).any(axis=1) & ~np.isnan(after).any(axis=1)
    before, after = before[complete], after[complete]
    if len(before) < _FEWEST:
        raise NotApplicable("it needs 10 rows that were rotated")
    mean, deviation = before.mean(axis=0), before.std(axis=0, ddof=1)
    if not (deviation > 0).all():
        raise NotApplicable("a field is constant among the rows that were rotated")
    truth = (before - mean) / deviation
    quantiles = np.quantile(truth, GRID, axis=0)
    sigma = float(getattr(parameters, "sigma", 0.0))
    guess = enumerate_transforms((after - mean) / deviation, quantiles, sigma, case.progress)
    return Finding(recovered(guess.values, truth), [fields[at] for at in varying], case.drawn.size)


RISK: dict[str, Callable[[Case], Finding]] = {
    "changed_share": _changed_share,
    "unique_combinations": _unique_combinations,
    "mean_k": _mean_k,
    "pscr": _pscr,
    "dcr": _dcr,
    "interval_sd": _interval_sd,
    "interval_rmd": _interval_rmd,
    "record_linkage": _record_linkage,
    "outlier_exposure": _outlier_exposure,
    "enumeration_attack": _enumeration_attack,
}
