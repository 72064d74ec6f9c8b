"""Canonical JSON, so that a signature over a document survives parsing and serialising.

Keys are sorted, there is no white space, text is UTF-8, and numbers are written as in ECMAScript. Unlike in
the RFC, integers beyond 2**53 keep all their digits.

References
----------
RFC 8785, JSON Canonicalization Scheme.
"""

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

_text = json.encoder.encode_basestring


def canonical_json(value: Any) -> bytes:
    """Serialise a JSON value to canonical bytes. Raises ValueError for values that JSON does not have."""
    return _written(value).encode()


def _written(value: Any) -> str:
    # In the order of how often they occur: half of the values of a manifest are text.
    if isinstance(value, str):
        return _text(value)
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return f"[{','.join([_written(item) for item in value])}]"
    if isinstance(value, dict):
        return f"{{{','.join([f'{_text(name)}:{_written(value[name])}' for name in _in_order(value)])}}}"
    raise ValueError(f"JSON cannot hold a {type(value).__name__}")


def _in_order(names: Iterable[Any]) -> list[str]:
    """Return an object's names in the order of their UTF-16 code units (RFC 8785, 3.2.3)."""
    try:
        plain = "".join(names).isascii()
    except TypeError:
        raise ValueError("a JSON object's names are text") from None
    return sorted(names) if plain else sorted(names, key=lambda name: name.encode("utf-16-be"))


_CONSTANTS = {None: "null", True: "true", False: "false"}


def _number(value: float) -> str:
    """Format a float as ECMA-262 Number::toString does: the shortest digits that round-trip, as in `repr`."""
    if not math.isfinite(value):
        raise ValueError("JSON cannot hold an infinity or a NaN")
    if value == 0:
        return "0"
    sign, digit_tuple, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    point = len(digit_tuple) + exponent  # the value is 0.digits times ten to this
    count = len(digits)
    if count <= point <= 21:
        text = digits + "0" * (point - count)
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if count > 1 else ""
        text = f"{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return f"-{text}" if sign else text
