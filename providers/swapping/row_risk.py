"""Risk of each row, and the rows whose risk obliges the run to swap them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.errors import ParameterError, SourceError
from providers.params import RiskSelection
from providers.tables.codes import cells, codes
from providers.tables.numbers import float_values
from providers.tables.schemas import check_names

_POINTER = "/parameters/risk"

_TOLERANCE = 1e-9
"""Relative distance below k within which a sum of weights counts as k, since sums of weights are rounded."""


@dataclass(frozen=True, slots=True)
class RowRisk:
    """Risk of each row of a table."""

    risk: Float64Array
    """0 or more, finite; shape (rows,)."""
    required: BoolArray
    """Rows that must take part; shape (rows,)."""


def check_risk(selection: RiskSelection, schema: pa.Schema) -> None:
    """Raise ParameterError if a field is unknown, named twice, or holds no numbers where it must."""
    pointers = [f"{_POINTER}/key_fields/{index}" for index in range(len(selection.key_fields))]
    check_names(selection.key_fields, schema, lambda index: pointers[index], "key field")
    for name, parameter in ((selection.weight, "weight"), (selection.field, "field")):
        if name is None:
            continue
        pointer = f"{_POINTER}/{parameter}"
        check_names((name,), schema, lambda index, pointer=pointer: pointer)  # type: ignore[misc]
        field = schema.field(name)
        if not _is_number(field.type):
            holds = "weights" if parameter == "weight" else "risks"
            message = f"field '{name}' of type {field.type} holds no {holds}: numbers do"
            raise ParameterError(message, pointer)
    if selection.weight in selection.key_fields:
        raise ParameterError(f"field '{selection.weight}' is both weight and key field", f"{_POINTER}/weight")


def _is_number(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_number(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _is_number(kind.value_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def row_risk(table: pa.Table, selection: RiskSelection) -> RowRisk:
    """Return the risk of each row, and whether it must take part.

    With key fields the risk is 1 / F for the number F of rows with the same values of the key fields, or the
    sum of their weights, and rows with F < k must take part. A row with a given risk over 1 / k must take
    part.

    Raises
    ------
    SourceError
        A weight is null, not finite, or not above 0; or a given risk is null, not finite or negative.

    Notes
    -----
    O(rows) for each key field.
    """
    k = selection.k
    if selection.field is not None:
        risk = _numbers(table, selection.field, "field")
        return RowRisk(risk, risk > 1.0 / k if k else np.zeros(len(risk), np.bool_))
    cell, bound = combinations(table, selection.key_fields)
    if selection.weight is None:
        rows = np.bincount(cell, minlength=bound)[cell]
        return RowRisk(1.0 / rows, rows < k)
    population = np.bincount(cell, _numbers(table, selection.weight, "weight"), bound)[cell]
    return RowRisk(1.0 / population, population < k * (1 - _TOLERANCE))


def combinations(table: pa.Table, names: Sequence[str]) -> tuple[Int64Array, int]:
    """Return the code of each row's combination of values, null included, and a bound of the codes."""
    cell, bound = codes(table.column(names[0]))
    for name in names[1:]:
        cell, bound = cells(cell, bound, *codes(table.column(name)))
    return cell, bound


def _numbers(table: pa.Table, name: str, parameter: str) -> Float64Array:
    """Return weights or risks as float64; raise SourceError if a value is not a weight or risk."""
    values = float_values(table.column(name))  # a null is NaN
    weights = parameter == "weight"
    with np.errstate(over="ignore", divide="ignore"):
        # 1 / F must be finite too
        valid = np.isfinite(values) & (np.isfinite(1.0 / values) & (values > 0) if weights else values >= 0)
    wrong = len(values) - int(np.count_nonzero(valid))
    if wrong:
        what = "the weight" if weights else "the risk"
        fault = "null, not finite or not above 0" if weights else "null, not finite or negative"
        rows = f"{wrong} row{'s' if wrong > 1 else ''}, first in row {int(np.flatnonzero(~valid)[0])}"
        raise SourceError(f"{what} '{name}' is {fault} in {rows}", f"{_POINTER}/{parameter}")
    return values
