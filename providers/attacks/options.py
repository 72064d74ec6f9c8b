"""Options of the attacks, and their check against the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.errors import ParameterError, did_you_mean
from providers.measures.shared.columns import comparable, kind_of, not_measurable
from providers.params import StrictModel

MOST_ATTACKS = 100_000

MOST_RELEASES = 100

MOST_KNOWN_ROWS = 100_000


class AttackOptions(StrictModel):
    """Knowledge of the intruder, the fields to protect, and settings of the attacks."""

    known: tuple[str, ...] = Field(default=(), examples=[["age", "sex", "city"]])
    """Fields that an intruder knows of a person. Linkability and inference need them."""
    secret: tuple[str, ...] = Field(default=(), examples=[["income"]])
    """Fields that an intruder wants to learn. Inference attacks each of them."""
    linked: tuple[tuple[str, ...], ...] = Field(default=(), examples=[[["age", "sex"], ["city"]]])
    """Two sets of known fields for linkability: the fields of two other tables about the same persons.
    Default: the known fields in turn, the first to one set, the second to the other."""
    categorical_fields: tuple[str, ...] = Field(default=(), examples=[["occupation"]])
    """Fields of numbers that are codes: attacks take them as categories, like text and booleans."""
    identifiers: tuple[str, ...] = Field(default=(), examples=[["name", "household_id"]])
    """Fields that identify a person, a household or a row. No attack uses them. Others are recognised by
    name and values, unless another option names them."""
    weights: tuple[str, ...] = Field(default=(), examples=[["sampling_weight"]])
    """Fields of survey weights, which no attack uses either. Others are recognised by name."""
    unit_field: str | SkipJsonSchema[None] = Field(default=None, examples=["person_id"])
    """Field that identifies a person who may have several rows. Singling out finds persons in place of rows,
    one row of each person is attacked, and no attack uses the field unless it is known or secret. Default:
    the field of the run's `unit_id` or households."""
    attacks: Annotated[int, Field(ge=1, le=MOST_ATTACKS)] = 1000
    """Number of attacks of each kind, at most one for each row. [1 to 100,000]"""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Probability with which an interval covers the true rate. [over 0, below 1]"""
    neighbours: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of nearest rows of the release that linkability takes for each set of known fields. [1 to
    1000]"""
    predicate_fields: Annotated[int, Field(ge=2, le=100)] = 3
    """Number of fields in a predicate of multivariate singling out. [2 to 100]"""
    releases: Annotated[int, Field(ge=1, le=MOST_RELEASES)] = 1
    """Number of releases of this source with different seeds. With two or more, the suite runs the service as
    many times again, and `composition` attacks all releases together. Therefore the service must be known.
    Without secret fields `composition` attacks all fields that the service changes. [1 to 100]"""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Relative error up to which a guess of a number counts as right. For dates and times: the error as a
    share of the interquartile range of the release. [0 or more, below 1]"""
    known_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the rows whose true values an intruder knows, for the attacks on a swap, LOCALITY or PABIDOT
    that need known rows. [over 0, below 1]"""
    known_rows: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=MOST_KNOWN_ROWS)] = Field(
        default=(), examples=[[0, 17, 42]]
    )
    """Rows of the source, counted from 0, whose true values an intruder knows, such as the rows of a
    household; instead of `known_share`. For a sister release, only the rows that were not withheld count."""


_LISTS = ("known", "secret", "categorical_fields", "identifiers", "weights")


def check_attack_options(
    options: AttackOptions,
    source: pa.Schema,
    release: pa.Schema,
    control: pa.Schema | None = None,
    pointer: str = "",
) -> None:
    """Check the options against the tables.

    Parameters
    ----------
    options : AttackOptions
    source, release : pa.Schema
    control : pa.Schema, optional
        Schema of the control rows; it needs every field that both other tables have.
    pointer : str
        JSON pointer of the options in the request; empty where they are at its root.

    Raises
    ------
    ParameterError
        An option does not fit the tables.
    """
    released = set(release.names)
    both = [name for name in source.names if name in released]
    for option in _LISTS:
        _check_names(getattr(options, option), both, f"{pointer}/{option}")
    if options.unit_field is not None:
        _check_unit(options.unit_field, source, both, f"{pointer}/unit_field")
    categorical_fields = set(options.categorical_fields)
    for option in ("known", "secret"):
        for index, name in enumerate(getattr(options, option)):
            reason = not_measurable(source.field(name), release.field(name), name in categorical_fields)
            if reason is not None:
                raise ParameterError(
                    f"field '{name}' cannot be attacked: {reason}", f"{pointer}/{option}/{index}"
                )
    for index, name in enumerate(options.categorical_fields):
        if not comparable(source.field(name).type, release.field(name).type, True):
            raise ParameterError(
                f"field '{name}' has type {source.field(name).type}, which holds no categories",
                f"{pointer}/categorical_fields/{index}",
            )
    _check_apart(options, "secret", ("known",), pointer)
    _check_apart(options, "identifiers", ("known", "secret", "weights"), pointer)
    _check_apart(options, "weights", ("known", "secret"), pointer)
    _check_linked(options, pointer)
    if control is not None:
        _check_control(source, control, both, pointer)


def check_known_rows(options: AttackOptions, rows: int) -> None:
    """Raise ParameterError if `known_rows` names a row twice, or none of the source's ``rows`` rows."""
    found: set[int] = set()
    for index, row in enumerate(options.known_rows):
        if row >= rows:
            raise ParameterError(
                f"the source has {rows} rows: their numbers are 0 to {rows - 1}"
                if rows
                else "the source has no rows",
                f"/known_rows/{index}",
            )
        if row in found:
            raise ParameterError(f"row {row} is named twice; name it once", f"/known_rows/{index}")
        found.add(row)


def _check_names(names: Iterable[str], known: list[str], pointer: str) -> None:
    known_names = set(known)
    found: set[str] = set()
    for index, name in enumerate(names):
        if name not in known_names:
            raise ParameterError(f"unknown field '{name}'{did_you_mean(name, known)}", f"{pointer}/{index}")
        if name in found:
            raise ParameterError(f"field '{name}' is named twice; name it once", f"{pointer}/{index}")
        found.add(name)


def _check_unit(name: str, source: pa.Schema, known: list[str], pointer: str) -> None:
    if name not in known:
        raise ParameterError(f"unknown field '{name}'{did_you_mean(name, known)}", pointer)
    kind = source.field(name).type
    if not comparable(kind, kind, True):
        raise ParameterError(f"field '{name}' has type {kind}, which identifies nobody", pointer)


def _check_apart(options: AttackOptions, option: str, others: tuple[str, ...], pointer: str) -> None:
    named = {other: set(getattr(options, other)) for other in others}
    for index, name in enumerate(getattr(options, option)):
        for other in others:
            if name in named[other]:
                raise ParameterError(
                    f"field '{name}' is also in '{other}': name it in one of the two",
                    f"{pointer}/{option}/{index}",
                )


def _check_linked(options: AttackOptions, pointer: str) -> None:
    if not options.linked:
        return
    if len(options.linked) != 2 or not all(options.linked):
        raise ParameterError(
            "give two lists of known fields, each with one field or more", f"{pointer}/linked"
        )
    for index, names in enumerate(options.linked):
        _check_names(names, list(options.known), f"{pointer}/linked/{index}")
    first = set(options.linked[0])
    for index, name in enumerate(options.linked[1]):
        if name in first:
            raise ParameterError(
                f"field '{name}' is in both lists: two tables that both have it can be linked without a "
                "release",
                f"{pointer}/linked/1/{index}",
            )


def _check_control(source: pa.Schema, control: pa.Schema, both: list[str], pointer: str) -> None:
    control_names = set(control.names)
    for name in both:
        if kind_of(source.field(name).type) is None:
            continue  # no attack reads it
        if name not in control_names:
            raise ParameterError(f"the control rows have no field '{name}'", f"{pointer}/control")
        mine, other = source.field(name).type, control.field(name).type
        if kind_of(mine) != kind_of(other) or not comparable(mine, other):
            raise ParameterError(
                f"field '{name}' has type {mine} in the source and {other} in the control rows, "
                "which do not compare",
                f"{pointer}/control",
            )
