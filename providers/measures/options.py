"""What is asked of the measures: which fields, which of them an intruder may know, which figures."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.errors import ParameterError, did_you_mean, reference_token
from providers.measures.kinds import comparable, kind_of, why_not
from providers.params import MOST_ROWS, StrictModel

_POINTER = "/measures"


class MeasureOptions(StrictModel):
    """What is measured, and how."""

    fields: tuple[str, ...] = Field(default=(), examples=[["age", "income", "city"]])
    """The fields that are measured. Default: every field that both tables have and that can be."""
    categorical_fields: tuple[str, ...] = Field(default=(), examples=[["occupation"]])
    """Fields of numbers that are codes: categories for every measure. Text and booleans always are."""
    key_fields: tuple[str, ...] = Field(default=(), examples=[["age", "sex", "city"]])
    """What an intruder may know of a person: for `unique_combinations` and `mean_k`."""
    rounding: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default={}, examples=[{"age": 5}]
    )
    """Key field of numbers -> the step to which an intruder knows it. [each over 0]"""
    known_fields: tuple[str, ...] = Field(default=(), examples=[["age", "income"]])
    """What the intruder of `record_linkage` knows of a person. Default: `key_fields`."""
    target: str | SkipJsonSchema[None] = Field(default=None, examples=["income"])
    """The field that is explained by the others: for `outlier_exposure`, `il3`, `r_squared` and
    `prediction`, which are left out without it."""
    only: tuple[str, ...] = Field(default=(), examples=[["dcr", "delta_rho"]])
    """The measures to compute, by their keys. Default: all."""
    sample: Annotated[int, Field(ge=2, le=MOST_ROWS)] = 10_000
    """Rows of the random sample on which a measure is taken whose cost is quadratic. [2 or more]"""
    threshold: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 5
    """Cells that count fewer rows than this are not shown. [1 or more]"""


def check_options(
    options: MeasureOptions, source_schema: pa.Schema, destination_schema: pa.Schema, keys: Iterable[str]
) -> None:
    """Raise ParameterError where an option does not fit the tables; ``keys`` are those of all measures."""
    destination = {field.name: field for field in destination_schema}
    both = {
        field.name: (field, destination[field.name]) for field in source_schema if field.name in destination
    }
    for parameter in ("fields", "categorical_fields", "key_fields", "known_fields"):
        named: set[str] = set()
        for at, name in enumerate(getattr(options, parameter)):
            pointer = f"{_POINTER}/{parameter}/{at}"
            _check_known(name, both, pointer)
            if name in named:
                raise ParameterError(f"field '{name}' is named twice", pointer)
            named.add(name)
            source, other = both[name]
            reason = (
                why_not(source, other, name in options.categorical_fields)
                if parameter in ("fields", "known_fields")
                else None
            )
            if reason is not None:
                raise ParameterError(f"field '{name}' cannot be measured: {reason}", pointer)
            if parameter == "categorical_fields" and not comparable(source.type, other.type, True):
                raise ParameterError(
                    f"field '{name}' has type {source.type}, which holds no categories", pointer
                )
    for name in options.rounding:
        pointer = f"{_POINTER}/rounding/{reference_token(name)}"
        _check_known(name, both, pointer)
        if name not in options.key_fields:
            suggestion = did_you_mean(name, options.key_fields)
            raise ParameterError(f"rounding for '{name}', which is no key field{suggestion}", pointer)
        for field in both[name]:
            if kind_of(field.type) != "number":
                raise ParameterError(
                    f"field '{name}' has type {field.type}; only numbers can be rounded", pointer
                )
    if options.target is not None:
        pointer = f"{_POINTER}/target"
        _check_known(options.target, both, pointer)
        reason = why_not(*both[options.target], options.target in options.categorical_fields)
        if reason is not None:
            raise ParameterError(f"field '{options.target}' cannot be a target: {reason}", pointer)
        if options.fields and options.target not in options.fields:
            raise ParameterError(f"the target '{options.target}' must be one of 'fields'", pointer)
    known = set(keys)
    for at, key in enumerate(options.only):
        if key not in known:
            suggestion = did_you_mean(key, sorted(known))
            raise ParameterError(f"unknown measure '{key}'{suggestion}", f"{_POINTER}/only/{at}")


def _check_known(name: str, both: Mapping[str, object], pointer: str) -> None:
    if name not in both:
        raise ParameterError(f"unknown field '{name}'{did_you_mean(name, both)}", pointer)
