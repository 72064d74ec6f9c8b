"""Classifiers of control fields, and the rows of each equivalence class.

Every classifier puts null in a class of its own, and NaN in another.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Discriminator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, Tag

from providers.arrays import UInt64Array
from providers.errors import ParameterError, reference_token
from providers.grouping.groups import Groups
from providers.kernels.radix_sort import counted_runs, radix_runs
from providers.params import StrictModel
from providers.tables.columns import combined, is_words, unwrapped, words_of
from providers.tables.literals import literal
from providers.tables.numbers import is_numeric, unscaled
from providers.tables.sort_keys import distinct, is_text, packed, ranks, sort_keys
from providers.tables.type_names import value_type

Codes = npt.NDArray[np.int64]

# ---------------------------------------------------------------------------------------- the models


class Breaks(StrictModel):
    """Half-open intervals [a, b) of numbers or dates; the first and the last are unbounded."""

    breaks: Annotated[tuple[StrictInt | StrictFloat | StrictStr, ...], Field(min_length=1)] = Field(
        examples=[[18, 30, 45, 65]]
    )
    """Borders between intervals, in increasing order; dates and times in ISO 8601 form."""


class Grouping(StrictModel):
    """Named groups of values."""

    groups: dict[str, tuple[StrictBool | StrictInt | StrictFloat | StrictStr, ...]] = Field(
        examples=[{"north": ["Oslo", "Bergen"]}], min_length=1
    )
    """Group -> the values that form one class; a value may be in one group only."""
    other: Literal["identity", "one_class", "fail"] = "identity"
    """Treatment of values in no group. `identity`: each such value is a class; `one_class`: they form one
    class; `fail`: the job fails."""


class Prefix(StrictModel):
    """First characters of hierarchical codes, such as postcodes, occupations or diagnoses."""

    prefix: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """Number of characters of a text, or of decimal digits of an integer, that determine the class. An
    integer keeps its sign and has no leading zeros. A shorter value is a class by itself."""


class Quantiles(StrictModel):
    """Classes of about equally many rows, by the order of numbers or dates, such as weight classes."""

    quantiles: Annotated[int, Field(ge=2, le=1_000_000)] = Field(examples=[5])
    """Number of classes. A class is determined by the share of the table's values that are smaller, so that
    equal values are in one class. The whole table must fit in memory."""


_CLASSIFIER_FORMS = (
    "a classifier is 'identity', {\"breaks\": [18, 65]}, "
    '{"groups": {"north": ["Oslo", "Bergen"]}}, {"prefix": 3} or {"quantiles": 5}'
)


_MODELS = {"breaks": Breaks, "groups": Grouping, "prefix": Prefix, "quantiles": Quantiles}
"""Name of the member that shows the form of a classifier -> its model."""


def _form(value: Any) -> str | None:
    """Return the tag of a classifier's form; None if it has none of them.

    Locations of errors contain the tags, so they differ from the names of members.
    """
    if value == "identity":
        return "is identity"
    for name, model in _MODELS.items():
        if isinstance(value, model) or (isinstance(value, dict) and name in value):
            return f"is {name}"
    return None


Classifier = Annotated[
    Annotated[Literal["identity"], Tag("is identity")]
    | Annotated[Breaks, Tag("is breaks")]
    | Annotated[Grouping, Tag("is groups")]
    | Annotated[Prefix, Tag("is prefix")]
    | Annotated[Quantiles, Tag("is quantiles")],
    Discriminator(_form, custom_error_type="classifier", custom_error_message=_CLASSIFIER_FORMS),
]
"""Division of the values of one control field into classes; `identity`: equal values form a class."""

# ------------------------------------------------------------------------ against a schema, no data


def keeps_values_apart(classifier: Classifier) -> bool:
    """Whether different values are always in different classes, whatever the table."""
    if isinstance(classifier, Grouping):
        return classifier.other != "one_class" and all(len(group) < 2 for group in classifier.groups.values())
    return classifier == "identity"


def check_classifier(classifier: Classifier, field: pa.Field, pointer: str) -> None:
    """Raise ParameterError if the classifier does not fit the field's type."""
    kind = value_type(field.type)
    if isinstance(classifier, Breaks):
        _bounds(classifier, field, pointer)
    elif isinstance(classifier, Grouping):
        _members(classifier, field, pointer)
    elif isinstance(classifier, Quantiles) and not (is_numeric(kind) or _is_moment(kind)):
        raise ParameterError(
            f"quantiles are of numbers, dates and timestamps; '{field.name}' has type {kind}",
            f"{pointer}/quantiles",
        )
    elif isinstance(classifier, Prefix) and not (pa.types.is_integer(kind) or _is_string(kind)):
        raise ParameterError(
            f"a prefix is of text or of integers; '{field.name}' has type {kind}", f"{pointer}/prefix"
        )


def _is_moment(kind: pa.DataType) -> bool:
    """Whether the type is a date or a timestamp."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_string(kind: pa.DataType) -> bool:
    """Whether the type is a text type."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _bounds(classifier: Breaks, field: pa.Field, pointer: str) -> list[Fraction]:
    """Return the breaks as exact numbers in the field's units (decimals scaled, dates since 1970)."""
    kind = value_type(field.type)
    bounds: list[Fraction] = []
    for index, value in enumerate(classifier.breaks):
        location = f"{pointer}/breaks/{index}"
        if _is_moment(kind):
            bound = Fraction(literal(value, field, "a break", location).value)
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            message = f"breaks are for numbers, dates and timestamps; '{field.name}' has type {kind}"
            raise ParameterError(message, f"{pointer}/breaks")
        elif isinstance(value, str) or abs(value) > sys.float_info.max:
            raise ParameterError(f"a break for '{field.name}' ({kind}) must be a number", location)
        elif pa.types.is_decimal(kind):
            bound = Fraction(Decimal(str(value))) * Fraction(10) ** kind.scale
        else:
            bound = Fraction(value)
        if bounds and bound <= bounds[-1]:
            before = classifier.breaks[index - 1]
            raise ParameterError(f"breaks must increase: {value} follows {before}", location)
        bounds.append(bound)
    return bounds


def _members(classifier: Grouping, field: pa.Field, pointer: str) -> dict[Any, tuple[int, pa.Scalar]]:
    """Map each listed value, in comparable form, to the number of its group and its scalar."""
    members: dict[Any, tuple[int, pa.Scalar]] = {}
    names = list(classifier.groups)
    for number, name in enumerate(names):
        for index, value in enumerate(classifier.groups[name]):
            location = f"{pointer}/groups/{reference_token(name)}/{index}"
            scalar = literal(value, field, "a group value", location)
            known = members.setdefault(_comparable(scalar), (number, scalar))
            if known[0] != number:
                message = f"value {value!r} is in two groups, '{names[known[0]]}' and '{name}'"
                raise ParameterError(message, location)
    return members


def _comparable(scalar: pa.Scalar) -> Any:
    """Return a Python value that is equal for equal scalars."""
    in_units = pa.types.is_timestamp(scalar.type) or pa.types.is_duration(scalar.type)
    return scalar.value if in_units else scalar.as_py()  # as_py loses nanoseconds


# ------------------------------------------------------------------------------------------ the rows


def classes(
    table: pa.Table, control_fields: Sequence[str], classifiers: Sequence[Classifier], pointers: Sequence[str]
) -> Groups:
    """Group the rows by class; the identity of a class is its smallest row.

    Parameters
    ----------
    table : pa.Table
    control_fields : sequence of str
        Fields whose combined classes are the groups.
    classifiers : sequence of Classifier
        One for each control field.
    pointers : sequence of str
        JSON pointer of each classifier in the request.

    Notes
    -----
    O(rows) for each control field. Text and dictionaries are hashed once; numbers are hashed only for
    `Grouping` and `Prefix`.
    """
    keys: list[UInt64Array] = []
    for name, classifier, pointer in zip(control_fields, classifiers, pointers, strict=True):
        keys += class_keys(table.column(name), classifier, table.schema.field(name), pointer)
    keys = packed(keys)
    counted = counted_runs(keys[0]) if len(keys) == 1 else None
    if counted is not None:
        places, starts, firsts = counted
        return Groups(table.num_rows, None, starts, firsts.astype(np.uint64), standing=places)
    order, starts = radix_runs(keys)
    # The order is stable, so that the first row of a class is its smallest.
    return Groups(table.num_rows, order, starts, order[starts[:-1]].astype(np.uint64))


def class_keys(
    column: pa.ChunkedArray, classifier: Classifier, field: pa.Field, pointer: str = ""
) -> list[UInt64Array]:
    """Return keys that are equal for two rows exactly if the rows are in the same class."""
    column = unwrapped(column)
    if classifier == "identity":
        if is_text(column.type):
            return [distinct(column)[0].astype(np.uint64)]
        return sort_keys(column, field.name)
    if isinstance(classifier, Breaks) and is_words(column.type):
        return [_intervals(combined(column), _bounds(classifier, field, pointer)).astype(np.uint64)]
    codes, values = distinct(column)
    if isinstance(classifier, Breaks):
        value_codes = _intervals(values, _bounds(classifier, field, pointer))
    elif isinstance(classifier, Grouping):
        value_codes = _groups(values, classifier, field, pointer)
    elif isinstance(classifier, Quantiles):
        value_codes = _quantiles(codes, values, classifier.quantiles)
    else:
        value_codes = _prefixes(values, classifier.prefix)
    null = value_codes.max(initial=-1) + 1
    return [np.append(value_codes, null)[codes].astype(np.uint64)]


def class_labels(
    column: pa.ChunkedArray, classifier: Classifier, field: pa.Field, pointer: str = ""
) -> list[pa.ChunkedArray]:
    """Return columns in which two rows have equal values exactly if they are in the same class.

    Null equals null, and NaN equals NaN. Unlike `class_keys`, the values of a row do not depend on the
    piece of the field that is passed. There are no labels of `Quantiles`, which depend on all rows.
    """
    assert not isinstance(classifier, Quantiles)  # noqa: S101 - such a run is never cut
    if classifier == "identity":
        return [column]
    column = unwrapped(column)
    if isinstance(classifier, Breaks) and is_words(column.type):
        return [_label(_intervals(combined(column), _bounds(classifier, field, pointer)))]
    codes, values = distinct(column)
    missing = codes == len(values)
    if isinstance(classifier, Breaks):
        bounds = _bounds(classifier, field, pointer)
        return [_label(np.append(_intervals(values, bounds), len(bounds) + 2)[codes])]
    if isinstance(classifier, Prefix):
        return [
            pa.chunked_array(
                [_first_characters(values, classifier.prefix).take(pa.array(codes, mask=missing))]
            )
        ]
    count = len(classifier.groups)
    value_codes = _groups(values, classifier, field, pointer)
    if classifier.other != "identity":
        return [_label(np.append(value_codes, count + 2)[codes])]
    row_codes = np.append(np.minimum(value_codes, count), count + 2)[codes]
    own = values.take(pa.array(codes, mask=missing | (row_codes < count)))
    return [_label(row_codes), pa.chunked_array([own])]


def _label(codes: Codes) -> pa.ChunkedArray:
    """Return codes as an int64 column."""
    return pa.chunked_array([pa.array(codes, pa.int64())])


def _intervals(values: pa.Array, bounds: list[Fraction]) -> Codes:
    """Return the number of bounds at or below each value; the next code is NaN, and the one after it null."""
    kind = values.type
    if pa.types.is_floating(kind):
        floats = words_of(values).view(f"f{kind.bit_width // 8}").astype(np.float64)
        codes = np.searchsorted([_float_at_least(bound) for bound in bounds], floats, side="right")
        codes[np.isnan(floats)] = len(bounds) + 1
    elif is_words(kind):
        dtype = np.dtype(f"{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}")
        codes = _whole_intervals(words_of(values).view(dtype), bounds)
    else:  # wide decimals
        units, long = unscaled(values)
        codes = _long_intervals(values, bounds) if long else _whole_intervals(units, bounds)
    codes = codes.astype(np.int64)
    if values.null_count:
        codes[values.is_null().to_numpy(zero_copy_only=False)] = len(bounds) + 2
    return codes


def _whole_intervals(numbers: npt.NDArray[Any], bounds: list[Fraction]) -> npt.NDArray[Any]:
    """Return the number of bounds at or below each integer."""
    limits = np.iinfo(numbers.dtype)
    # x < b exactly if x < ceil(b); a bound above every value of the type is never reached.
    whole = [max(math.ceil(bound), int(limits.min)) for bound in bounds if bound <= int(limits.max)]
    return np.searchsorted(np.array(whole, numbers.dtype), numbers, side="right")


def _long_intervals(values: pa.Array, bounds: list[Fraction]) -> Codes:
    """Return the number of bounds at or below each decimal, some of more than 64 bits; any for null."""
    width = values.type.bit_width // 8
    data = memoryview(values.buffers()[1])[values.offset * width :]
    whole = [math.ceil(bound) for bound in bounds]
    units = (
        int.from_bytes(data[row * width : (row + 1) * width], "little", signed=True)
        for row in range(len(values))
    )
    return np.fromiter((bisect_right(whole, unit) for unit in units), np.int64, len(values))


def _float_at_least(bound: Fraction) -> float:
    """Return the smallest float that is not below the bound."""
    try:
        nearest = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf
    return nearest if Fraction(nearest) >= bound else math.nextafter(nearest, math.inf)


def _groups(values: pa.Array, classifier: Grouping, field: pa.Field, pointer: str) -> Codes:
    """Return the group of each distinct value, or the code that `other` specifies."""
    members = _members(classifier, field, pointer)
    count = len(classifier.groups)
    floating = pa.types.is_floating(values.type)
    if floating:  # by value: -0.0 is 0.0
        found = [members[value][0] if value in members else -1 for value in values.to_pylist()]
        codes = np.array(found, np.int64)
    else:
        number_of = np.array([number for number, _ in members.values()] + [-1], np.int64)
        listed = [scalar.cast(values.type) for _, scalar in members.values()]
        index = pc.index_in(values, value_set=pa.array(listed, type=values.type))
        codes = number_of[index.fill_null(len(members)).to_numpy(zero_copy_only=False)]
    outside = codes < 0
    nan = np.zeros(len(values), np.bool_)
    if floating:
        nan = np.isnan(values.to_numpy(zero_copy_only=False))
    ungrouped = int(np.count_nonzero(outside & ~nan))
    if classifier.other == "fail" and ungrouped:
        raise ParameterError(
            f"{ungrouped} distinct values of '{field.name}' are in no group; "
            'name them, or let "other" be "identity" or "one_class"',
            f"{pointer}/groups",
        )
    if classifier.other == "identity":
        own = ranks(values) if floating else np.arange(len(values))
        codes[outside] = count + own[outside].astype(np.int64)
    else:
        codes[outside] = count
        codes[nan] = count + 1
    return codes


def _quantiles(codes: npt.NDArray[Any], values: pa.Array, count: int) -> Codes:
    """Return the class of each distinct value: floor(q b / m), b of the m values smaller; NaN is the next.

    Parameters
    ----------
    codes : ndarray of int, shape (rows,)
        Index of each row's value; that of null is the number of values.
    values : pa.Array, shape (values,)
        Distinct values.
    count : int
        Number of classes q.
    """
    found = np.full(len(values), count, np.int64)
    floating = pa.types.is_floating(values.type)
    ordered = ~np.isnan(values.to_numpy(zero_copy_only=False)) if floating else np.ones(len(values), np.bool_)
    rank = ranks(values).astype(np.int64)  # equal for 0.0 and -0.0, which are two of the distinct values
    rows = np.bincount(codes, minlength=len(values) + 1)[: len(values)]
    by_rank = np.bincount(rank[ordered], weights=rows[ordered]).astype(np.int64)
    smaller = np.cumsum(by_rank) - by_rank
    found[ordered] = smaller[rank[ordered]] * count // max(1, int(by_rank.sum()))
    return found


def _prefixes(values: pa.Array, length: int) -> Codes:
    """Return one code for each distinct prefix."""
    text = _first_characters(values, length)
    return np.asarray(text.dictionary_encode().indices.to_numpy(zero_copy_only=False), np.int64)


def _first_characters(values: pa.Array, length: int) -> pa.Array:
    """Return the first characters of texts, or the first digits of integers."""
    if pa.types.is_integer(values.type):
        text = values.cast(pa.string())
        signed = pc.utf8_slice_codeunits(text, 0, length + 1)
        return pc.if_else(pc.starts_with(text, "-"), signed, pc.utf8_slice_codeunits(text, 0, length))
    return pc.utf8_slice_codeunits(values, 0, length)
