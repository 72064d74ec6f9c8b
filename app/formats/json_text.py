"""JSON text checks: rejects duplicate names in an object, and numbers whose digits would get lost.

RFC 8259, section 4, leaves duplicate names in an object to the parser, and nearly all keep the last value
silently. A request or a table with two values for one name has no single meaning, so it is rejected.

The fast parser cannot report duplicate names. `may_repeat` therefore compares the names of the parsed
document with the colons of the text, which costs about an eighth of the parsing. Only if that is not
conclusive does `check_text` read the text a second time, object by object.

The fast parser also gives the nearest float64 of a number with a fraction. Digits of a number of 16 or more
may get lost, such as the cents of 1234567890123456.78. `is_doubtful` finds such numbers in the text.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from app.formats.errors import FormatError
from app.formats.value_text import loses_digits
from providers.errors import reference_token

_CHUNK = 1 << 18  # bytes processed together: their masks stay in the processor's cache

_COLON, _QUOTE, _SPACE, _POINT, _LINE_END = b':" .\n'

_ZERO = np.uint8(ord("0"))

_SHORT = 1 << 12
"""Number of bytes up to which the array functions take longer than methods of `bytes`."""

_SPACED_COLON = re.compile(rb"[\x00-\x20]:")

_OPENING = ord("{")

_CASE_BIT = 0x20  # the only bit in which "[" and "{" differ

_LONGEST_NAME = 200

MOST_OPENINGS = 1 << 15
"""Most lists and objects that are parsed in the event loop. Nested, they take a twentieth of a second."""

MOST_NAMES = 1 << 16
"""Most names that are parsed in the event loop. Different ones take a tenth of a second."""


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_PLACE = re.compile(r"at line ([0-9]+) column ([0-9]+)")

_LOOKED_AT = 64
"""Bytes at the place of an error that are looked at."""

_LONG_NUMBER = re.compile(
    rb"[0-9]{16}\.|[0-9]{15}\.[0-9]|[0-9]{14}\.[0-9]{2}|[0-9]{13}\.[0-9]{3}|[0-9]{12}\.[0-9]{4}"
)
"""Numbers that float64 may not hold: numbers of 16 digits, not counting the fifth and later digits after the
point."""

_LEAST_DIGITS, _MOST_DIGITS, _MOST_AFTER = 12, 16, 4
"""Digits before the point with which and up to which digits after it count, and most of these."""

_LOST = (
    "the number loses digits as float64; declare the field as decimal(p,s) or string and send text, "
    "or write the number with an exponent"
)

_NO_NUMBERS = (b"NaN", b"Infinity", b"-Infinity")

_REMEDIES = {
    "hex escape": "a half of a surrogate pair alone is no character",
    "EOF while parsing": "the text ends too early: send all of it",
    "number out of range": "a number has at most 4,300 digits: send it as a string",
    "recursion limit": "lists and objects are nested at most 200 deep: flatten them",
}
"""Part of the parser's message -> the cause or the remedy, which it does not name."""


def without_byte_order_mark(body: bytes) -> bytes:
    """Return the text without UTF-8's byte order mark, which a parser may ignore (RFC 8259, section 8.1)."""
    return body.removeprefix(_BYTE_ORDER_MARK)


def reason_not_json(body: bytes, found: str) -> str:
    """Return the reason that a body is not JSON, with the remedy where the mistake is a common one.

    Parameters
    ----------
    body : bytes
    found : str
        Message of the parser.
    """
    if body.startswith(b"\x1f\x8b"):
        return "it is gzip data; send it with the header 'Content-Encoding: gzip'"
    if body.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in body[:4]:
        return "it is UTF-16 or UTF-32; JSON is sent as UTF-8 (RFC 8259, section 8.1)"
    try:
        body.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8, in which JSON is sent (RFC 8259, section 8.1)"
    for words, remedy in _REMEDIES.items():
        if words in found:
            return f"{found}; {remedy}"
    if place := _PLACE.search(found):
        line, column = _start_of_line(body, int(place[1])), int(place[2]) - 1
        start = line + max(column - 1, 0)
        before = body[start : start + _LOOKED_AT]
        at, rest = before[line + column - start :], before.lstrip()
        if at.startswith(_NO_NUMBERS) or rest.startswith(_NO_NUMBERS):
            return f"{found}; NaN and Infinity are no JSON numbers: send null"
        if place[1] == place[2] == "1":
            return f"{found}; a request is a JSON object, which begins with {{"
        if at.startswith(b"'") or rest.startswith(b"'"):
            return f"{found}; names and texts stand in double quotes"
    return found


def _start_of_line(text: bytes, number: int) -> int:
    """Return the position of the line with this number, from 1; the end of the text if there are fewer.

    A list of all lines would take many times the memory of the text, since each may be empty.
    """
    start, left = 0, number - 1
    while left and start < len(text):
        count = text.count(b"\n", start, start + _CHUNK)
        if count >= left:
            chunk = np.frombuffer(text, np.uint8, min(_CHUNK, len(text) - start), start)
            return start + int(np.flatnonzero(chunk == _LINE_END)[left - 1]) + 1
        left -= count
        start += _CHUNK
    return min(start, len(text))


def openings_in(data: bytes) -> int:
    """Return the number of lists and objects of a JSON text; brackets in strings count, too."""
    return data.count(b"[") + data.count(b"{")


def is_dense(data: bytes) -> bool:
    """Return whether a JSON text of its size takes long to parse, because of its many values with parts."""
    if len(data) <= MOST_OPENINGS:
        return False
    return openings_in(data) > MOST_OPENINGS or data.count(b":") > MOST_NAMES


def is_doubtful(data: bytes, document: Any) -> bool:
    """Return whether `check_text` must read the text of this document; False is certain."""
    return may_repeat(data, document) or _may_lose_digits(data)


def may_repeat(data: bytes, document: Any) -> bool:
    """Return whether an object of the text may have a duplicate name; False is certain.

    Every name in the text has a colon of its own, directly after its closing quote unless white space comes
    between. If no colon follows white space, the text has at most as many names as colons after a quote. If
    the parsed document has that many names, none of them was lost.

    Parameters
    ----------
    data : bytes
        Valid JSON.
    document : Any
        Its value.
    """
    if len(data) <= _SHORT:
        after_quotes = data.count(b'":')
        openings = openings_in(data)
        return _SPACED_COLON.search(data) is not None or _names_in(document, openings) != after_quotes
    text = np.frombuffer(data, np.uint8)
    openings = after_quotes = after_spaces = 0
    for start in range(0, len(text), _CHUNK):
        chunk = text[start : start + _CHUNK]
        openings += int(np.count_nonzero((chunk | _CASE_BIT) == _OPENING))
        before = text[np.flatnonzero(chunk == _COLON) + (start - 1)]
        after_quotes += int(np.count_nonzero(before == _QUOTE))
        after_spaces += int(np.count_nonzero(before <= _SPACE))
    return after_spaces > 0 or _names_in(document, openings) != after_quotes


def _may_lose_digits(data: bytes) -> bool:
    """Return whether the text has a `_LONG_NUMBER`; False: no number without exponent loses any digit."""
    if len(data) <= _SHORT:
        return _LONG_NUMBER.search(data) is not None
    text = np.frombuffer(data, np.uint8)
    for start in range(_MOST_DIGITS, len(text), _CHUNK):
        points = np.flatnonzero(text[start : start + _CHUNK] == _POINT) + start
        for place in (1, _LEAST_DIGITS, *range(2, _LEAST_DIGITS)):
            points = points[text[points - place] - _ZERO < 10]
            if not len(points):
                break
        for point in points.tolist():
            if _LONG_NUMBER.search(data, point - _MOST_DIGITS, point + 1 + _MOST_AFTER):
                return True
    return False


def _names_in(document: Any, openings: int) -> int:
    """Return the number of names in all objects of a document whose text has `openings` opening brackets.

    The search goes level by level. Once every bracket is accounted for, no deeper value is an object, so the
    cells of a table are not visited.
    """
    names = found = 0
    level = [document] if type(document) in (dict, list) else []
    while level:
        objects = [value for value in level if type(value) is dict]
        lists = (value for value in level if type(value) is list)
        names += sum(map(len, objects))
        found += len(level)
        if found == openings:
            break
        inside = chain(chain.from_iterable(map(dict.values, objects)), chain.from_iterable(lists))
        level = [value for value in inside if type(value) is dict or type(value) is list]
    return names


def check_text(data: bytes) -> None:
    """Raise FormatError if an object of valid JSON has a duplicate name, or a number loses digits."""
    reader = _FaultReader()
    # Integers stay text: their values do not matter.
    value = json.loads(
        data, object_pairs_hook=reader.read_object, parse_int=str, parse_float=reader.read_number
    )
    if reader.found:
        fault = next(_faults_in(value))
        *place, name = fault.path
        pointer = "".join(f"/{reference_token(part)}" for part in place)
        if fault.message:
            raise FormatError(fault.message, f"{pointer}/{reference_token(name)}")
        if len(name) > _LONGEST_NAME:
            raise FormatError("a name is given twice in this object; give it once", pointer)
        raise FormatError(
            f"the name '{name}' is given twice in one object; give it once",
            f"{pointer}/{reference_token(name)}",
        )


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these names and values: an ``object_pairs_hook`` for small texts.

    Raises
    ------
    ValueError
        A name is duplicated.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(f"the name '{_first_repeated(pairs)[:_LONGEST_NAME]}' is given twice in one object")
    return members


class _Fault:
    """Path to a duplicate name in an object, or with a message to a value."""

    def __init__(self, *path: Any, message: str = "") -> None:
        self.path = path
        self.message = message


class _FaultReader:
    """Reducer of each parsed object to None, or to the first fault in it."""

    def __init__(self) -> None:
        self.found = False
        """Whether there is a fault."""

    def read_number(self, text: str) -> _Fault | None:
        """Return the fault of a number with a fraction or an exponent."""
        if not loses_digits(text):
            return None
        self.found = True
        return _Fault(message=_LOST)

    def read_object(self, pairs: list[tuple[str, Any]]) -> _Fault | None:
        """Return the duplicate name of an object, or the fault of a nested value."""
        if len(dict(pairs)) != len(pairs):
            self.found = True
            return _Fault(_first_repeated(pairs))
        if self.found:
            for name, value in pairs:
                for fault in _faults_in(value):
                    return _Fault(name, *fault.path, message=fault.message)
        return None


def _faults_in(value: Any) -> Iterator[_Fault]:
    """Yield the faults in a reduced value."""
    if isinstance(value, _Fault):
        yield value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for fault in _faults_in(item):
                yield _Fault(index, *fault.path, message=fault.message)


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is repeated")
