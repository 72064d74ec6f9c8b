"""The risk measures taken of a case: which fields and rows they see, and when they do not apply."""

from collections.abc import Callable

import numpy as np

from providers.measures.case import Case, Finding, NotApplicable
from providers.measures.closeness import dcr, pscr, raw_dcr


def _changed_share(case: Case) -> Finding:
    case.need_pairs()
    unchanged_rows = np.ones(case.rows["destination"], np.bool_)
    shares: dict[str, float] = {}
    for name in case.columns:
        before, after = case.code_pairs(name)
        same = before == after
        unchanged_rows &= same
        shares[name] = float(1 - same.mean()) if len(same) else 0.0
    own = case.released.run_values.get("changed_share", {})
    shares |= {name: share for name, share in own.items() if name not in shares}
    if not shares:
        raise NotApplicable("no field can be compared")
    notes = {"per_row": {"mean": float(np.mean(list(shares.values())))}}
    if len(unchanged_rows):
        notes["per_row"]["none"] = float(unchanged_rows.mean())
    return Finding(shares, notes=notes)


def _points_fields(case: Case) -> list[str]:
    case.need_rows()
    if not case.columns:
        raise NotApplicable("no field can be compared")
    return list(case.columns)


def _pscr(case: Case) -> Finding:
    case.need_pairs()
    fields = _points_fields(case)
    return Finding(pscr(*case.points(fields)), fields, case.drawn.size)


def _dcr(case: Case) -> Finding:
    fields = _points_fields(case)
    value: dict[str, float | None] = {**dcr(*case.points(fields)), "raw_mean": None}
    before, after = case.sampled_matrices
    complete = [table[~np.isnan(table).any(axis=1)] for table in (before, after)]
    count = min(len(table) for table in complete)
    if case.numeric and count:
        value["raw_mean"] = raw_dcr(complete[0][:count], complete[1][:count])
    return Finding(value, fields, case.drawn.size)


RISK: dict[str, Callable[[Case], Finding]] = {
    "changed_share": _changed_share,
    "pscr": _pscr,
    "dcr": _dcr,
}
