"""Share of the values that differ from the source's, per field and per row."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from providers.arrays import Int32Array
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part

_KEY = "changed_share"


def changed_share(changed: Mapping[str, int], rows: int) -> dict[str, float]:
    """Share of the rows whose value differs from the source's, per swap field; 0 for a table without rows."""
    return {field: count / rows if rows else 0.0 for field, count in changed.items()}


def share_different(codes: Int32Array) -> float:
    """Share of all pairs of rows (i, j) whose values differ: the expected change of a random permutation."""
    shares = np.bincount(codes) / len(codes)
    return float(1 - (shares**2).sum())


def _find(comparison: Comparison) -> Finding:
    comparison.need_aligned()
    unchanged_rows = np.ones(comparison.rows["destination"], np.bool_)
    shares: dict[str, float] = {}
    for name in comparison.columns:
        before, after = comparison.code_pairs(name)
        same = before == after
        unchanged_rows &= same
        shares[name] = float(np.mean(~same)) if len(same) else 0.0
    # fields that cannot be compared here are known from the run
    of_run = comparison.release.run_values.get(_KEY, {})
    shares |= {name: share for name, share in of_run.items() if name not in comparison.columns}
    if not shares:
        raise NotApplicable("no field can be compared")
    swapped = _swapped_fields(comparison, shares)
    per_row: dict[str, Any] = {"fields": swapped, "mean": float(np.mean([shares[name] for name in swapped]))}
    if len(unchanged_rows) and all(name in comparison.columns for name in swapped):
        per_row["none"] = float(unchanged_rows.mean())
    return Finding(shares, notes={"per_row": per_row})


def _swapped_fields(comparison: Comparison, shares: Mapping[str, float]) -> list[str]:
    """List the measured fields that the run was asked to change.

    If the run is unknown, they are the fields that the option `fields` names, or else those that differ.
    """
    of_run = comparison.release.run_values.get(_KEY, {})
    named = comparison.options.fields or tuple(shares)
    swapped = [name for name in shares if name in of_run and name in named]
    if not of_run and not comparison.options.fields:
        swapped = [name for name, share in shares.items() if share > 0]
    return swapped or list(shares)


MEASURE = Measure(
    key=_KEY,
    title="Changed share",
    concerns="risk",
    goal="high",
    range="0 to 1",
    formula="#{i : x_i != y_i} / n, for each field; per row: the mean share of the swap fields that differ, "
    "and the share of rows in which no field does",
    source="Optim data privacy providers 11.3, Data Swapping: equal values exchanged protect nobody",
    cost="O(n)",
    find=_find,
    jackknife="share",
    parts=(Part(chance=lambda column: share_different(column.codes("source"))),),
)
