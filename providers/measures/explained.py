"""The target explained by the other fields, in both tables: made once for three measures."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from providers.measures.case import Case
from providers.measures.columns import Side
from providers.measures.design import Design
from providers.measures.measure import NotApplicable
from providers.measures.regression import Regression, regress


@dataclass(frozen=True)
class Explained:
    """Both regressions."""

    source: Regression
    destination: Regression
    rows: dict[Side, npt.NDArray[np.int64]]
    """The rows that were not left out."""
    fields: list[str]


def target_of(case: Case) -> str:
    """The target. Raises NotApplicable where none is named, or it is not measured."""
    target = case.options.target
    if target is None:
        raise NotApplicable("name the field that the others explain in 'target'")
    if target not in case.columns:
        raise NotApplicable(f"the target '{target}' is not measured: {case.left_out.get(target, 'unknown')}")
    case.need_rows(2)
    return target


def identifiers(case: Case) -> set[str]:
    """Categories with so many values that they name rows: over 20, and over a tenth of the rows."""
    most = max(20, case.rows["source"] // 10)
    return {name for name in case.categorical if case.columns[name].levels > most}


def explained(case: Case) -> Explained:
    """Both regressions. Raises NotApplicable where there is none."""
    if case.explained is None:
        try:
            case.explained = _explained(case)
        except NotApplicable as reason:
            case.explained = reason
    if isinstance(case.explained, NotApplicable):
        raise case.explained
    assert isinstance(case.explained, Explained)  # noqa: S101 - it is one of the two
    return case.explained


def _explained(case: Case) -> Explained:
    target = target_of(case)
    if case.columns[target].kind == "category":
        raise NotApplicable(f"the target '{target}' is a category; a regression explains numbers")
    fields = [name for name in case.columns if name != target and name not in identifiers(case)]
    if not fields:
        raise NotApplicable("there is no field to explain the target by")
    design = Design(case, target, fields)
    found: dict[Side, Regression] = {}
    sides: tuple[Side, Side] = ("source", "destination")
    for side in sides:
        found[side] = regress(partial(design.blocks, side), design.columns)
    rows = {side: design.rows(side) for side in sides}
    return Explained(found["source"], found["destination"], rows, [target, *fields])
