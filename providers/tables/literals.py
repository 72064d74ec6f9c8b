"""Convert JSON values to scalars of an Arrow type."""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa

from providers.errors import ParameterError
from providers.tables.type_names import value_type

_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_UNROUNDED = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Decimal arithmetic that keeps every digit; the default context rounds to 28."""

_TOO_FINE = re.compile(r"[.,][0-9]{7}")
"""Fraction of a second beyond microseconds, which Python would truncate."""


class _Unfit(Exception):
    """The value does not fit the type; the message describes the values that do."""


def literal(value: Any, field: pa.Field, role: str, pointer: str) -> pa.Scalar:
    """Convert a JSON value to a scalar of the field's value type.

    Parameters
    ----------
    value : JSON value
        Value to convert.
    field : pa.Field
        Field whose type the scalar has.
    role : str
        Role of the value in the error message, such as ``"replacement"``.
    pointer : str
        JSON pointer to the value in the request.

    Raises
    ------
    ParameterError
        The value does not fit the type; the message describes the values that do.
    """
    kind = value_type(field.type)
    for matches, convert in _converters():
        if matches(kind):
            try:
                return pa.scalar(convert(value, kind), type=kind)
            except (_Unfit, pa.ArrowInvalid, ArithmeticError) as error:
                wanted = str(error) if isinstance(error, _Unfit) else f"a value that fits {kind}"
                message = f"{role} for '{field.name}' ({kind}) must be {wanted}"
                raise ParameterError(message, pointer) from error
    raise ParameterError(f"'{field.name}' has type {kind}, for which no {role} can be given", pointer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _integer(value: Any, kind: pa.DataType) -> int:
    if not _is_number(value) or value != int(value):
        raise _Unfit("an integer")
    bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if not low <= value <= high:
        raise _Unfit(f"an integer from {low} to {high}")
    return int(value)


def _floating(value: Any, kind: pa.DataType) -> float:
    if not _is_number(value):
        raise _Unfit("a number")
    number = float(value)
    with np.errstate(over="ignore"):
        narrow = np.dtype(f"f{kind.bit_width // 8}").type(number)
    if math.isinf(narrow):
        raise _Unfit("a number that the type can hold")
    return number


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    try:
        if not (_is_number(value) or isinstance(value, str)):
            raise InvalidOperation
        number = Decimal(str(value))
        if not number.is_finite():
            raise InvalidOperation
    except InvalidOperation as error:
        raise _Unfit('a number, or one in quotes such as "12.50"') from error
    scaled = units_of(number, kind.scale)
    # the exponent is checked first: "1e999999" as an integer would take a million digits
    if (
        (scaled and scaled.adjusted() >= kind.precision)
        or scaled != scaled.to_integral_value()
        or len(str(abs(int(scaled)))) > kind.precision
    ):
        raise _Unfit(f"a number of at most {kind.precision} digits, {kind.scale} after the point")
    return number


def units_of(number: Decimal, scale: int) -> Decimal:
    """Return number * 10**scale without rounding, for a number of any length."""
    return number.scaleb(scale, _UNROUNDED)


def _boolean(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, bool):
        raise _Unfit("true or false")
    return value


def _text(value: Any, kind: pa.DataType) -> str:
    if not isinstance(value, str):
        raise _Unfit("a text")
    return value


def _bytes(value: Any, kind: pa.DataType) -> bytes:
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None:
        raise _Unfit("bytes as base64 text")
    if pa.types.is_fixed_size_binary(kind) and len(data) != kind.byte_width:
        raise _Unfit(f"{kind.byte_width} bytes as base64 text")
    return data


def _date(value: Any, kind: pa.DataType) -> datetime.date:
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _Unfit("an ISO date such as '2024-02-29'") from error


def _time(value: Any, kind: pa.DataType) -> datetime.time:
    try:
        if _TOO_FINE.search(value):
            raise ValueError
        moment = datetime.time.fromisoformat(value)
        parts_of_unit = 10**6 // min(10**6, _UNITS_PER_SECOND[kind.unit])
        if moment.tzinfo is not None or moment.microsecond % parts_of_unit:
            raise ValueError
        return moment
    except (TypeError, ValueError) as error:
        raise _Unfit(f"an ISO time in whole units of {kind.unit}, such as '08:30:00'") from error


def _timestamp(value: Any, kind: pa.DataType) -> int:
    """Return the units since 1970; a moment without an offset is in the field's zone."""
    try:
        if _TOO_FINE.search(value):
            raise ValueError
        moment = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _Unfit(
            "an ISO date, or date and time to the microsecond, such as '2024-02-29T08:30:00.000001'"
        ) from error
    if kind.tz is None and moment.tzinfo is not None:
        raise _Unfit("an ISO date and time without an offset, as the field has no time zone")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(kind.tz))
    since = moment - _EPOCH
    microseconds = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    units, rest = divmod(microseconds * _UNITS_PER_SECOND[kind.unit], 10**6)
    if rest:
        raise _Unfit(f"a moment in whole units of {kind.unit}")
    return units


def _zone(name: str | None) -> datetime.tzinfo:
    if name is None:
        return datetime.UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass  # an offset such as +02:00, or the name of a folder of zones such as America
    try:
        return datetime.datetime.strptime(name, "%z").tzinfo or datetime.UTC
    except ValueError as error:
        raise _Unfit("a moment with an offset, as the field's time zone is not known") from error


def _duration(value: Any, kind: pa.DataType) -> int:
    units = Decimal(str(value)) * _UNITS_PER_SECOND[kind.unit] if _is_number(value) else None
    if units is None or units != units.to_integral_value():
        raise _Unfit(f"a number of seconds, in whole units of {kind.unit}")
    return int(units)


@cache
def _converters() -> tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...]:
    """Return pairs of a test of a type and the converter to it; the first test that is true counts."""
    return (
        (pa.types.is_integer, _integer),
        (pa.types.is_floating, _floating),
        (pa.types.is_decimal, _decimal),
        (pa.types.is_boolean, _boolean),
        (lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view()), _text),
        (lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view()), _bytes),
        (pa.types.is_fixed_size_binary, _bytes),
        (pa.types.is_date, _date),
        (pa.types.is_time, _time),
        (pa.types.is_timestamp, _timestamp),
        (pa.types.is_duration, _duration),
    )
