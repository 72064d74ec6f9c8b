"""Check the fields and domains that LOCALITY is given against a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from providers.errors import ParameterError, did_you_mean, reference_token
from providers.tables.literals import literal, units_of
from providers.tables.numbers import is_numeric
from providers.tables.schemas import check_unique_names
from providers.tables.type_names import below_encodings


def check_fields(fields: Sequence[str], domain: Mapping[str, Sequence[Any]], schema: pa.Schema) -> None:
    """Raise ParameterError unless every field exists and is numeric, and every domain fits its field.

    Raises
    ------
    SourceError
        The schema has two fields of the same name.
    """
    check_unique_names(schema)
    known = set(schema.names)
    redrawn: set[str] = set()
    for index, name in enumerate(fields):
        pointer = f"/parameters/fields/{index}"
        if name not in known:
            raise ParameterError(f"unknown field '{name}'{did_you_mean(name, schema.names)}", pointer)
        if name in redrawn:
            raise ParameterError(f"field '{name}' is named twice; name it once", pointer)
        redrawn.add(name)
        field = schema.field(name)
        if not _is_number(below_encodings(field.type)):
            raise ParameterError(
                f"field '{name}' has type {field.type}; LOCALITY computes with numbers: "
                "integers, floats, decimals or dates",
                pointer,
            )
    for name in domain:
        pointer = f"/parameters/domain/{reference_token(name)}"
        if name not in redrawn:
            raise ParameterError(
                f"domain for '{name}', which is not redrawn{did_you_mean(name, fields)}", pointer
            )
        ends = domain_of(domain, schema.field(name))
        if ends is not None and not ends[0] <= ends[1]:
            raise ParameterError(f"domain of '{name}' must be [least, greatest], in this order", pointer)


def _is_number(kind: pa.DataType) -> bool:
    return is_numeric(kind) or bool(pa.types.is_date(kind))


def domain_of(domain: Mapping[str, Sequence[Any]], field: pa.Field) -> tuple[Any, Any] | None:
    """Return the least and greatest publishable value of the field; None if none is given.

    Dates are in days since 1970, decimals in whole units of their scale.
    """
    if field.name not in domain:
        return None
    kind = below_encodings(field.type)
    pointer = f"/parameters/domain/{reference_token(field.name)}"
    ends = []
    for index, value in enumerate(domain[field.name]):
        scalar = literal(value, pa.field(field.name, kind), "domain", f"{pointer}/{index}")
        if pa.types.is_date(kind):
            ends.append(scalar.cast(pa.date32()).cast(pa.int32()).as_py())
        elif pa.types.is_decimal(kind):
            ends.append(int(units_of(scalar.as_py(), kind.scale)))
        else:
            ends.append(scalar.as_py())
    return ends[0], ends[1]
