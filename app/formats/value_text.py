"""Text forms of values, the same in JSON and in CSV, converted one column at a time.

    bool                true, false
    int, uint           decimal digits, ``-`` in front
    float               shortest digits that read back to the same number; NaN, Infinity, -Infinity;
                        read as the nearest one, unless digits before the point, the first four after it, or
                        an integer would be lost
    decimal             digits, or with an exponent
    date                2024-02-29
    time                12:30:00, with as many digits after the point as the unit has
    timestamp           2024-02-29T12:30:00.000000; with Z or +01:00 where the type has a zone
    duration            whole number of its unit
    binary              base64 (RFC 4648 section 4, with padding)

A timestamp with a zone is written in that zone's local time and offset; as UTC with ``Z`` where the
zone is UTC, is not known here, or its offset is not of whole minutes (local mean times before about
1900). Years outside 0000 to 9999 take ISO 8601's expanded form, a sign and at least four digits.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.formats.errors import CellFault
from providers.tables.type_names import type_name

_DAY = r"([0-9]{4}|[+-][0-9]{4,})-[0-9]{2}-[0-9]{2}"

_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"

_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

_NUMBER = r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?"

_INTEGER = re.compile("-?[0-9]+")

_EXACT = {16: 2**11, 32: 2**24, 64: 2**53}
"""Bits of a float -> least number from which on it does not hold all integers."""

LEAST_LOSSY = 2.0**39
"""Number from which float64 does not hold all numbers of `_MONEY_DIGITS` digits after the point."""

_MONEY_DIGITS = 4

_KEPT_DIGITS = 15
"""Digits that float64 keeps of any number; a text of no more characters loses none."""

_KEEP_DIGITS = "use decimal(p,s) or string, or write the number with an exponent"

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

_UTC = ("UTC", "Etc/UTC", "Z", "Zulu", "Etc/Zulu", "+00:00")

_OTHER_ORDER = re.compile(
    r"\s*[0-9]{1,4}\s*[-./ ]\s*([0-9]{1,2}|[A-Za-z]{3,9})\s*[-./, ]\s*[0-9]{1,4}\b|[0-9]{8}$"
)
"""Dates with day or month first, or without hyphens."""

_DECIMAL_COMMA = re.compile(r"\s*-?[0-9]*,[0-9]+\s*")

_FAR_PARTS = re.compile(
    r"([+-]?[0-9]+)-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)

_EPOCH = date(1970, 1, 1)

_ERA_YEARS, _ERA_DAYS = 400, 146_097  # the Gregorian calendar repeats after this number of years

_NEAR_SECONDS = (-62_135_596_800, 253_370_764_799)  # years 0001 to 9998, whatever the offset

# --------------------------------------------------------------------------------------- from text


def from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Parse a string array to a canonical, flat type; nulls stay null.

    Raises CellFault for the first text that does not have the form above, or is out of the type's range.
    """
    if pa.types.is_string(data_type):
        return texts.cast(data_type)
    pattern, form, convert = _reading(data_type)
    matches = pc.match_substring_regex(texts, pattern)
    if (wrong := pc.index(matches, False).as_py()) >= 0:
        what = f"{type_name(data_type)} is written as {form}"
        if pa.types.is_temporal(data_type) and _OTHER_ORDER.match(texts[wrong].as_py()):
            what += "; this one has another order or other separators: rewrite it, or state the type 'string'"
        elif not pa.types.is_temporal(data_type) and _DECIMAL_COMMA.fullmatch(texts[wrong].as_py()):
            what += "; if its comma is a decimal mark, upload the CSV with the 'decimal_mark' 'comma'"
        raise CellFault(wrong, what)
    return first_fault(
        texts, lambda some: convert(some, data_type), f"{type_name(data_type)} is written as {form}, in range"
    )


def first_fault(values: Any, convert: Callable[[Any], pa.Array], what: str) -> pa.Array:
    """Return ``convert(values)``, or raise CellFault for the first value that it rejects."""
    try:
        return convert(values)
    except (pa.ArrowException, ValueError, OverflowError):
        good, bad = 0, len(values)  # bisection: values[:good] converts, values[:bad] does not
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                convert(values[good:middle])
                good = middle
            except (pa.ArrowException, ValueError, OverflowError):
                bad = middle
        raise CellFault(good, what) from None


def _reading(data_type: pa.DataType) -> tuple[str, str, Callable[[pa.Array, pa.DataType], pa.Array]]:
    """Return pattern, description of the form, and the conversion of texts that match the pattern."""
    kind = pa.types
    if kind.is_null(data_type):
        return r"^\b$", "null alone", lambda texts, to: pa.nulls(len(texts))
    if kind.is_boolean(data_type):
        return "^(true|false)$", "true or false", lambda texts, to: pc.equal(texts, "true")
    if kind.is_integer(data_type):
        return "^-?[0-9]+$", "a whole number", lambda texts, to: texts.cast(to)
    if kind.is_floating(data_type):
        pattern = f"^({_NUMBER}|NaN|-?Infinity)$"
        return pattern, "a number, NaN, Infinity or -Infinity", _floats_from_text
    if kind.is_decimal(data_type):
        form = f"a number of at most {data_type.precision} digits, {data_type.scale} of them after the point"
        return f"^{_NUMBER}$", form, _decimals_from_text
    if kind.is_duration(data_type):
        form = f"a whole number of {data_type.unit}"
        return "^-?[0-9]+$", form, lambda texts, to: texts.cast(pa.int64()).cast(to)
    if kind.is_date(data_type):
        return f"^{_DAY}$", "2024-02-29 (year-month-day)", _instants_from_text
    if kind.is_time(data_type):
        fraction, shown = _fraction(data_type.unit)
        return f"^{_CLOCK}{fraction}$", f"12:30:00{shown}", _times_from_text
    if kind.is_timestamp(data_type):
        fraction, shown = _fraction(data_type.unit)
        zone, zone_shown = ("", ", without a zone")
        if data_type.tz is not None:
            zone, zone_shown = "(Z|[+-][0-9]{2}:[0-9]{2})", "Z or with an offset such as +01:00"
        form = f"2024-02-29T12:30:00{shown}{zone_shown}"
        return f"^{_DAY}[T ]{_CLOCK}{fraction}{zone}$", form, _instants_from_text
    if kind.is_fixed_size_binary(data_type):
        return _BASE64, f"base64 of {data_type.byte_width} bytes", _bytes_from_text
    return _BASE64, "base64", _bytes_from_text


def _fraction(unit: str) -> tuple[str, str]:
    """Return a pattern of the fractional digits that the unit can represent, and an example."""
    digits = _DIGITS[unit]
    return (rf"(\.[0-9]{{1,{digits}}})?", "." + "250000000"[:digits]) if digits else ("", "")


def _floats_from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    values = texts.cast(data_type)
    if _infinite(values) != pc.sum(pc.match_substring(texts, "Infinity")).as_py():
        raise ValueError("out of range")
    least = min(LEAST_LOSSY, _EXACT[data_type.bit_width])
    large = pc.and_(
        pc.greater_equal(pc.abs(values.cast(pa.float64())), least),
        pc.greater(pc.utf8_length(texts), _KEPT_DIGITS if data_type.bit_width == 64 else 0),
    )
    for index in np.flatnonzero(large.fill_null(False)).tolist():
        text, value = texts[index].as_py(), values[index].as_py()
        if loses_digits(text) or (_INTEGER.fullmatch(text) and int(text) != value):
            raise CellFault(index, f"the number does not fit {type_name(data_type)} exactly; {_KEEP_DIGITS}")
    return values


def loses_digits(text: str) -> bool:
    """Return whether float64 loses digits before the point or the first four after it, such as cents.

    A number with an exponent is not exact, and the shortest text of a float64 loses no digits.

    ``text``: number of decimal digits.
    """
    value = float(text)
    if abs(value) < LEAST_LOSSY or "e" in text or "E" in text:
        return False
    number = Decimal(text)
    if abs(value) >= _EXACT[64]:
        return number != Decimal(repr(value))
    digits = min(_MONEY_DIGITS, len(text.partition(".")[2]))
    return abs(number - Decimal(value)) > Decimal(5).scaleb(-digits - 1) and number != Decimal(repr(value))


def _decimals_from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert texts to decimals; Arrow's cast takes many texts of too many digits modulo a power of two."""
    values = texts.cast(data_type)
    scale = max(0, data_type.scale)
    digits = max(0, data_type.precision - scale)
    usual = pc.match_substring_regex(texts, rf"^-?[0-9]{{0,{digits}}}(\.[0-9]{{0,{scale}}})?$")
    others = pc.invert(usual)
    pairs = zip(texts.filter(others).to_pylist(), values.filter(others).to_pylist(), strict=True)
    if any(Decimal(text) != value for text, value in pairs):
        raise ValueError("out of range")
    return values


def _infinite(values: pa.Array) -> int | None:
    total: int | None = pc.sum(pc.is_inf(values.cast(pa.float64()))).as_py()
    return total


def _times_from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    on_a_day = pc.binary_join_element_wise("1970-01-01T", texts, "")
    return on_a_day.cast(pa.timestamp(data_type.unit)).cast(data_type)


def _instants_from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:  # an error, a far year, or an end of the type's range, which Arrow rejects
        pass
    numbers = [None if text is None else _far_number(text, data_type) for text in texts.to_pylist()]
    stored = pa.int32() if pa.types.is_date(data_type) else pa.int64()
    return pa.array(numbers, stored).cast(data_type)


def _far_number(text: str, data_type: pa.DataType) -> int:
    """Return days, or units of a timestamp, since 1970, for any year."""
    parts = _FAR_PARTS.fullmatch(text)
    assert parts is not None  # from_text has matched the pattern
    year, month, day = int(parts[1]), int(parts[2]), int(parts[3])
    era = (year - 2000) // _ERA_YEARS
    days = (date(year - era * _ERA_YEARS, month, day) - _EPOCH).days + era * _ERA_DAYS
    if pa.types.is_date(data_type):
        return days
    hour, minute, second = int(parts[4]), int(parts[5]), int(parts[6])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("out of range")
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    if parts[8] not in (None, "Z"):
        hours, minutes = int(parts[8][1:3]), int(parts[8][4:6])
        if hours > 23 or minutes > 59:
            raise ValueError("out of range")
        seconds -= (-1 if parts[8][0] == "-" else 1) * (hours * 3600 + minutes * 60)
    digits = _DIGITS[data_type.unit]
    per_second: int = 10**digits
    return seconds * per_second + int((parts[7] or "").ljust(digits, "0") or "0")


def _bytes_from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    decoded = [None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()]
    return pa.array(decoded, data_type)


# ----------------------------------------------------------------------------------------- to text


def to_text(array: pa.Array) -> pa.Array:
    """Convert a flat, plain array to large_string; nulls stay null."""
    kind, data_type = pa.types, array.type
    if kind.is_floating(data_type):
        return _floats_to_text(array)
    if kind.is_duration(data_type):
        array = array.cast(pa.int64())
    elif kind.is_date(data_type):
        return _dates_to_text(array)
    elif kind.is_timestamp(data_type):
        return _timestamps_to_text(array)
    elif kind.is_binary(data_type) or kind.is_large_binary(data_type) or kind.is_fixed_size_binary(data_type):
        encoded = [None if cell is None else base64.b64encode(cell).decode() for cell in array.to_pylist()]
        return pa.array(encoded, pa.large_string())
    return array.cast(pa.large_string())


def _floats_to_text(array: pa.Array) -> pa.Array:
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    texts = array.cast(pa.large_string())
    # 5.0 and not 5, so that a column of floats is read back as floats
    texts = pc.replace_substring_regex(texts, "^(-?[0-9]+)$", r"\1.0")
    if pc.all(pc.is_finite(array)).as_py() is False:
        texts = pc.replace_substring(pc.replace_substring(texts, "nan", "NaN"), "inf", "Infinity")
        texts = pc.replace_substring(texts, "-NaN", "NaN")
    return texts


def _near(seconds: Any) -> bool:
    """Return whether all instants (seconds since 1970, null allowed) have a year of four digits."""
    if not len(seconds):
        return True
    return bool(seconds.min() >= _NEAR_SECONDS[0] and seconds.max() <= _NEAR_SECONDS[1])


def _dates_to_text(array: pa.Array) -> pa.Array:
    days = np.asarray(array.cast(pa.int32()).fill_null(0)).astype(np.int64)
    if _near(days * 86400):
        return array.cast(pa.large_string())
    numbers = array.cast(pa.int32()).to_pylist()
    return pa.array([None if number is None else _far_day(number) for number in numbers], pa.large_string())


def _far_day(days: int) -> str:
    era, day = divmod(days, _ERA_DAYS)
    within = _EPOCH + timedelta(days=day)
    year = within.year + era * _ERA_YEARS
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{within.month:02d}-{within.day:02d}"


def _far_instant(number: int, unit: str) -> str:
    digits = _DIGITS[unit]
    seconds, fraction = divmod(number, 10**digits)
    days, second = divmod(seconds, 86400)
    shown = f".{fraction:0{digits}d}" if digits else ""
    return f"{_far_day(days)}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{shown}"


def _timestamps_to_text(array: pa.Array) -> pa.Array:
    unit, zone = array.type.unit, array.type.tz
    numbers = array.cast(pa.int64())
    seconds = np.asarray(numbers.fill_null(0)) // 10 ** _DIGITS[unit]
    if not _near(seconds):  # value by value: a far one does not change the text of the others
        far = pa.array((seconds < _NEAR_SECONDS[0]) | (seconds > _NEAR_SECONDS[1]))
        mark = "" if zone is None else "Z"
        texts = [
            None if number is None else _far_instant(number, unit) + mark
            for number in numbers.filter(far).to_pylist()
        ]
        near = _timestamps_to_text(pc.if_else(far, pa.scalar(0, array.type), array))
        return pc.replace_with_mask(near, far, pa.array(texts, pa.large_string()))
    clock = numbers.cast(pa.timestamp(unit))
    if zone is None:
        return _clock_to_text(clock)
    if zone in _UTC:
        return _with_suffix(_clock_to_text(clock), pa.scalar("Z", pa.large_string()))
    try:
        local = pc.local_timestamp(array)
    except pa.ArrowInvalid:  # a zone that is missing in the time zone database of this machine
        return _with_suffix(_clock_to_text(clock), pa.scalar("Z", pa.large_string()))
    offsets = np.asarray(local.cast(pa.int64()).fill_null(0)) // 10 ** _DIGITS[unit] - seconds
    known, which = np.unique(offsets, return_inverse=True)
    suffixes = pa.array([_offset(int(offset)) for offset in known], pa.large_string())
    whole = pa.array(offsets % 60 == 0)
    shown = pc.if_else(whole, local, clock)
    return _with_suffix(_clock_to_text(shown), suffixes.take(pa.array(which)))


def _offset(seconds: int) -> str:
    if seconds % 60:
        return "Z"
    sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def _clock_to_text(clock: pa.Array) -> pa.Array:
    return pc.replace_substring(clock.cast(pa.large_string()), " ", "T")


def _with_suffix(texts: pa.Array, suffix: Any) -> pa.Array:
    return pc.binary_join_element_wise(texts, suffix, pa.scalar("", pa.large_string()))
