"""Options of a measurement, and their check against both tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.errors import ParameterError, did_you_mean, reference_token
from providers.measures.shared.columns import comparable, kind_of, not_measurable
from providers.params import MOST_ROWS, StrictModel

_POINTER = "/measures"

ROLES = ("identifier_fields", "weight_fields")
"""Options that name fields to be left out of distances and models."""


class MeasureOptions(StrictModel):
    """Fields to measure, knowledge of an intruder, and settings of the measures."""

    fields: tuple[str, ...] = Field(default=(), examples=[["age", "income", "city"]])
    """Fields to measure. Default: all fields that both tables have and that can be measured."""
    categorical_fields: tuple[str, ...] = Field(default=(), examples=[["occupation"]])
    """Fields of numbers that are codes: all measures take them as categories, like text and booleans."""
    identifier_fields: tuple[str, ...] = Field(default=(), examples=[["name", "household_id"]])
    """Fields that identify a person, a household or a row. They take no part in distances, linkage,
    relations and models; `changed_share` and `marginals` include them. Other identifiers are recognised,
    unless another option names them."""
    weight_fields: tuple[str, ...] = Field(default=(), examples=[["sampling_weight"]])
    """Fields of survey weights. Like identifiers, they take no part in distances, linkage, relations and
    models. Other weights are recognised by their names. `population_uniques` and the weighted measures need
    exactly one."""
    unit_field: str | SkipJsonSchema[None] = Field(default=None, examples=["person_id"])
    """Field that identifies a person who may have several rows. Rows of a person count as one person in
    `record_linkage`, `unique_combinations`, `mean_k`, `k_anonymity`, `l_diversity`, `t_closeness`,
    `prediction` and `suda`, and in every interval; the field takes no part in distances. Default: `unit_id`
    of the run."""
    household_field: str | SkipJsonSchema[None] = Field(default=None, examples=["household_id"])
    """Field that identifies the households of persons, for `population_uniques`: the risk of a household is
    the probability that at least one of its members is re-identified. Default: `household` of the run."""
    domain_fields: tuple[str, ...] = Field(default=(), examples=[["region"]])
    """Fields whose categories are the domains of `domain_totals`, each field by itself."""
    stratum_field: str | SkipJsonSchema[None] = Field(default=None, examples=["stratum"])
    """Field of the strata from which the sample was drawn, for the standard errors of the weighted
    measures. Default: one stratum."""
    cluster_field: str | SkipJsonSchema[None] = Field(default=None, examples=["household_id"])
    """Field of the primary sampling units, such as households that were drawn as a whole, for the standard
    errors of the weighted measures. Default: the persons of `unit_field`, or else each row."""
    key_fields: tuple[str, ...] = Field(default=(), examples=[["age", "sex", "city"]])
    """Fields of a person that an intruder may know (quasi-identifiers), for `unique_combinations`, `mean_k`,
    `k_anonymity`, `l_diversity`, `t_closeness`, `suda` and `population_uniques`."""
    sensitive_fields: tuple[str, ...] = Field(default=(), examples=[["income"]])
    """Fields that an intruder who knows the key fields must not learn, for `l_diversity` and
    `t_closeness`."""
    rounding: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default={}, examples=[{"age": 5}]
    )
    """Numeric key field -> step to which an intruder knows its values. [each over 0]"""
    known_fields: tuple[str, ...] = Field(default=(), examples=[["age", "income"]])
    """Fields that the intruder of `record_linkage` knows of a person. Default: `key_fields`."""
    target: str | SkipJsonSchema[None] = Field(default=None, examples=["income"])
    """Field that the others explain, for `outlier_exposure`, `il3`, `regression`, `r_squared` and
    `prediction`. Without it, these measures are left out."""
    term_fields: tuple[str, ...] = Field(default=(), examples=[["sex"]])
    """Fields whose coefficients `regression` compares; all other fields stay in the model. Default: all."""
    query_fields: tuple[str, ...] = Field(default=(), examples=[["age", "income", "education", "occupation"]])
    """Three fields of numbers and one category, in this order, for `query_error`. Its queries average one of
    the numbers over the rows in which the other two exceed thresholds and the category is in a set.
    [4 names]"""
    only: tuple[str, ...] = Field(default=(), examples=[["dcr", "delta_rho"]])
    """Keys of the measures to take. Default: all."""
    sample: Annotated[int, Field(ge=2, le=MOST_ROWS)] = 10_000
    """Rows of the random sample for measures of quadratic cost. [2 or more]"""
    threshold: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 5
    """Disclosure threshold: counts of fewer rows are not shown, and classes of fewer rows are small in
    `k_anonymity`. [1 or more]"""


def check_options(
    options: MeasureOptions, source_schema: pa.Schema, destination_schema: pa.Schema, keys: Iterable[str]
) -> None:
    """Check the options against both tables.

    Parameters
    ----------
    options : MeasureOptions
    source_schema, destination_schema : pa.Schema
    keys : iterable of str
        Keys of all measures.

    Raises
    ------
    ParameterError
        An option does not fit the tables. The pointer is below /measures.
    """
    destination = {field.name: field for field in destination_schema}
    both = {
        field.name: (field, destination[field.name]) for field in source_schema if field.name in destination
    }
    categorical_fields, key_fields = set(options.categorical_fields), set(options.key_fields)
    for parameter in (
        *ROLES,
        "fields",
        "categorical_fields",
        "key_fields",
        "known_fields",
        "sensitive_fields",
        "domain_fields",
        "term_fields",
        "query_fields",
    ):
        named: set[str] = set()
        for index, name in enumerate(getattr(options, parameter)):
            pointer = f"{_POINTER}/{parameter}/{index}"
            _check_known(name, both, pointer)
            if name in named:
                raise ParameterError(f"field '{name}' is named twice; name it once", pointer)
            named.add(name)
            source, other = both[name]
            reason = (
                not_measurable(source, other, name in categorical_fields) if parameter in _MEASURED else None
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
        if name not in key_fields:
            suggestion = did_you_mean(name, options.key_fields)
            raise ParameterError(f"rounding for '{name}', which is no key field{suggestion}", pointer)
        for field in both[name]:
            if kind_of(field.type) != "number":
                raise ParameterError(
                    f"field '{name}' has type {field.type}; only numbers can be rounded", pointer
                )
    for index, name in enumerate(options.sensitive_fields):
        if name in key_fields:
            raise ParameterError(
                f"field '{name}' is also in 'key_fields': what an intruder knows is not sensitive",
                f"{_POINTER}/sensitive_fields/{index}",
            )
    _check_roles(options)
    _check_queries(options, both)
    _check_design(options, both)
    if options.target is not None:
        pointer = f"{_POINTER}/target"
        _check_known(options.target, both, pointer)
        reason = not_measurable(*both[options.target], options.target in options.categorical_fields)
        if reason is not None:
            raise ParameterError(f"field '{options.target}' cannot be a target: {reason}", pointer)
        if options.fields and options.target not in options.fields:
            raise ParameterError(f"the target '{options.target}' must be one of 'fields'", pointer)
    known = set(keys)
    for index, key in enumerate(options.only):
        if key not in known:
            suggestion = did_you_mean(key, sorted(known))
            raise ParameterError(f"unknown measure '{key}'{suggestion}", f"{_POINTER}/only/{index}")


def _check_roles(options: MeasureOptions) -> None:
    """Raise ParameterError if a field is declared an identifier or a weight and named by another option."""
    naming = {option: set(getattr(options, option)) for option in _NAMING}
    weight_fields = set(options.weight_fields)
    for role in ROLES:
        for index, name in enumerate(getattr(options, role)):
            wanted = [option for option, names in naming.items() if name in names]
            wanted += ["target"] if name == options.target else []
            wanted += ["weight_fields"] if role == ROLES[0] and name in weight_fields else []
            if wanted:
                raise ParameterError(
                    f"field '{name}' is also in '{wanted[0]}': name it in one of the two",
                    f"{_POINTER}/{role}/{index}",
                )


def _check_queries(options: MeasureOptions, both: Mapping[str, tuple[pa.Field, pa.Field]]) -> None:
    """Raise ParameterError unless the fields of queries are none, or three numbers and a category."""
    names = options.query_fields
    pointer = f"{_POINTER}/query_fields"
    if names and len(names) != _QUERY_NUMBERS + 1:
        raise ParameterError(
            f"'query_fields' needs three fields of numbers and one category, in this order: {len(names)} are "
            "given",
            pointer,
        )
    for index, name in enumerate(names):
        is_number = all(kind_of(field.type) == "number" for field in both[name])
        counts_as_number = is_number and name not in options.categorical_fields
        if index < _QUERY_NUMBERS and not counts_as_number:
            raise ParameterError(
                f"field '{name}' is no number; the first three of 'query_fields' are averaged",
                f"{pointer}/{index}",
            )
        if index == _QUERY_NUMBERS and counts_as_number:
            raise ParameterError(
                f"field '{name}' is a number; the last of 'query_fields' is a category: name it in "
                "'categorical_fields' if its numbers are codes",
                f"{pointer}/{index}",
            )


_QUERY_NUMBERS = 3
"""Fields of numbers of the queries, before the category."""

_MEASURED = ("fields", "known_fields", "sensitive_fields", "domain_fields", "term_fields", "query_fields")
"""Options that name fields whose values are measured."""

_NAMING = ("fields", "key_fields", "known_fields", "sensitive_fields")


def _check_design(options: MeasureOptions, both: Mapping[str, tuple[pa.Field, pa.Field]]) -> None:
    """Raise ParameterError if a field of units or of the design is unknown, has no codes, or is a weight."""
    for option in ("unit_field", "household_field", "stratum_field", "cluster_field"):
        name, pointer = getattr(options, option), f"{_POINTER}/{option}"
        if name is None:
            continue
        _check_known(name, both, pointer)
        reason = not_measurable(*both[name], True)
        if reason is not None:
            raise ParameterError(f"field '{name}' cannot be read: {reason}", pointer)
        if name in options.weight_fields:
            raise ParameterError(f"field '{name}' is also in 'weight_fields': it cannot be both", pointer)
    weight_fields = set(options.weight_fields)
    for index, name in enumerate(options.domain_fields):
        if name in weight_fields:
            raise ParameterError(
                f"field '{name}' is also in 'weight_fields': it cannot be both",
                f"{_POINTER}/domain_fields/{index}",
            )


def _check_known(name: str, both: Mapping[str, object], pointer: str) -> None:
    if name not in both:
        raise ParameterError(f"unknown field '{name}'{did_you_mean(name, both)}", pointer)
