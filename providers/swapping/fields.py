"""Resolve and check swap and control fields against a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa

from providers.errors import ParameterError, did_you_mean
from providers.params import PairingParams, SwapParams
from providers.swapping.check_expressions import check_expressions, names_of, parsed
from providers.swapping.row_risk import check_risk
from providers.swapping.suppression import check_suppression
from providers.tables.columns import check_movable
from providers.tables.households import check_household_field
from providers.tables.schemas import check_names, check_unique_names

P = TypeVar("P", bound=PairingParams)


def resolve_fields(params: P, schema: pa.Schema, control_fields: Sequence[str] = ()) -> P:
    """Return the parameters with every swap field by name, after checking suppression, risk and checks.

    Raises
    ------
    ParameterError
        As `resolve_names`; or the suppression, the risk or a check does not fit the schema.
    SourceError
        As `resolve_names`.
    """
    resolved = resolve_names(params, schema, control_fields)
    check_suppression(resolved, schema)
    if resolved.selection_by_risk is not None:
        check_risk(resolved.selection_by_risk, schema)
    if isinstance(resolved, SwapParams):
        _check_household(resolved, schema, control_fields)
        check_expressions(resolved.checks, schema)
    return resolved


def _check_household(params: SwapParams, schema: pa.Schema, control_fields: Sequence[str]) -> None:
    """Raise ParameterError if the field of households or units is unknown, unfit, or has another role."""
    for parameter in ("household", "household_check", "unit_id"):
        name, pointer = getattr(params, parameter), f"/parameters/{parameter}"
        if name is None:
            continue
        check_names((name,), schema, lambda index, pointer=pointer: pointer)  # type: ignore[misc]
        noun = "unit" if parameter == "unit_id" else "household"
        check_household_field(schema.field(name), pointer, noun)
        role = "swap" if name in params.swap_fields else "control" if name in control_fields else None
        if role is not None:
            raise ParameterError(f"field '{name}' is both {noun} and {role} field", pointer)


def resolve_names(params: P, schema: pa.Schema, control_fields: Sequence[str] = ()) -> P:
    """Return the parameters with every swap field by name.

    Raises
    ------
    ParameterError
        A field is unknown, out of range, named twice, both swap and control field, or of a type
        that cannot be moved.
    SourceError
        Two fields of the source have the same name.
    """
    check_unique_names(schema)
    known = schema.names
    by_index = bool(params.swap_field_indices)
    names = list(params.swap_fields)
    for number, position in enumerate(params.swap_field_indices):
        if position > len(known):
            message = f"there is no field {position}; the source has {len(known)}, the first being 1"
            raise ParameterError(message, f"/parameters/swap_field_indices/{number}")
        names.append(known[position - 1])
    known_names, controls = set(known), set(control_fields)
    named: set[str] = set()
    for number, name in enumerate(names):
        pointer = f"/parameters/{'swap_field_indices' if by_index else 'swap_fields'}/{number}"
        if name not in known_names:
            raise ParameterError(f"unknown field '{name}'{did_you_mean(name, known)}", pointer)
        if name in named:
            raise ParameterError(f"swap field '{name}' is named twice; name it once", pointer)
        named.add(name)
        if name in controls:
            message = f"field '{name}' is both swap and control field; name it as one of the two"
            raise ParameterError(message, pointer)
        check_movable(schema.field(name), pointer)
    return params.model_copy(update={"swap_fields": tuple(names), "swap_field_indices": ()})


def check_control_fields(control_fields: Sequence[str], schema: pa.Schema) -> None:
    """Raise ParameterError if a control field is unknown or named twice."""
    check_names(control_fields, schema, lambda index: control_pointer(control_fields, index), "control field")


def control_pointer(control_fields: Sequence[str], index: int, parameter: str = "control_field") -> str:
    """Return the JSON pointer of a control field, or of its entry in another parameter."""
    return f"/parameters/{parameter}/{index}" if len(control_fields) > 1 else f"/parameters/{parameter}"


def fields_read(params: PairingParams, others: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the swap fields, other fields that are read, and fields of other parameters, once each."""
    more: list[str] = []
    if params.selection_by_risk is not None:
        more += params.selection_by_risk.fields_read
    if isinstance(params, SwapParams):
        more += [
            name for name in (params.household, params.household_check, params.unit_id) if name is not None
        ]
        more += [name for expression in parsed(params.checks) for name in names_of(expression)]
    return tuple(dict.fromkeys([*params.swap_fields, *others, *params.suppression.fields, *more]))
