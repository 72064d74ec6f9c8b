r"""Canonical type names <-> Arrow types, as used by the contract, the digest and the messages.

    null  bool  int8 int16 int32 int64  uint8 uint16 uint32 uint64  float16 float32 float64
    decimal(p,s)         p 1 to 76 digits, s of them after the point
    string  binary  fixed_binary(n)
    date                 a day
    time                 a time of day in microseconds, = time[us]; time[s], time[ms], time[ns]
    timestamp            microseconds without a zone, = timestamp[us]; timestamp[ms], ...
    timestamp[us, Europe/Dublin]   an instant, shown in that zone
    duration[us]         duration[s], duration[ms], duration[ns]
    interval             months, days and nanoseconds
    list<T>  struct<name: T, ...>  map<K, V>

A name describes the values, not Arrow's layout. A dictionary, run-end, view, large or fixed-size layout, a
decimal's storage width, an extension over its storage, date64 and the nullable flags have no name: they are
named as the type of their values. A struct's field name that is
not a word of ``A-Z a-z 0-9 _`` (not beginning with a digit), and a zone with characters outside
``A-Z a-z 0-9 _ + - / :``, is written as a JSON string (in the digest; elsewhere every zone that is not known
here, so that a request cannot name one by mistake): ``"``, ``\`` and U+0000 to U+001F escaped
(the short escapes where JSON has one, else ``\u00xx`` in lower case), all else as it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values below dictionary and run-end encodings."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


_SIMPLE = {
    "null": "null",
    "bool": "bool_",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
    "interval": "month_day_nano_interval",
}
"""Name of a type without parameters -> function of Arrow that makes it."""


@cache
def _simple_types() -> dict[str, pa.DataType]:
    """Map the name of each type without parameters to the type."""
    return {name: getattr(pa, function)() for name, function in _SIMPLE.items()}


@cache
def _simple_names() -> dict[pa.DataType, str]:
    """Map each type without parameters to its name."""
    return {data_type: name for name, data_type in _simple_types().items()}


_FORMS = {
    "decimal": "decimal(10,2)",
    "fixed_binary": "fixed_binary(16)",
    "time": "time",
    "timestamp": "timestamp",
    "duration": "duration[us]",
    "list": "list<string>",
    "struct": "struct<name: string>",
    "map": "map<string, int64>",
}

_NAMES_ELSEWHERE = {
    "int64": ("int", "integer", "long", "bigint", "number"),
    "int32": ("int4", "i32"),
    "float64": ("float", "double", "real", "f64"),
    "float32": ("single", "f32"),
    "float16": ("half", "halffloat"),
    "string": ("str", "text", "varchar", "char", "utf8", "large_string", "string_view", "category"),
    "bool": ("boolean", "logical", "bit"),
    "binary": ("bytes", "blob", "large_binary", "binary_view", "bytea"),
    "fixed_binary(16)": ("fixed_size_binary", "uuid"),
    "decimal(10,2)": ("numeric", "decimal128", "decimal256", "money"),
    "timestamp": ("datetime", "datetime64", "timestamptz", "instant"),
    "date": ("date32", "date64", "day"),
    "time": ("time32", "time64"),
    "duration[us]": ("timedelta", "period"),
    "list<string>": ("array", "large_list", "sequence"),
    "struct<name: string>": ("object", "dict", "record", "row"),
}

_SYNONYMS = {synonym: name for name, synonyms in _NAMES_ELSEWHERE.items() for synonym in synonyms}

_UNITS = ("s", "ms", "us", "ns")

_DEEPEST = 64
"""Maximum depth of nested types."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]+", re.ASCII)


@lru_cache(maxsize=4096)
def canonical_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values without their encodings, at every depth.

    Raises ValueError for a type without a canonical name (a union).
    """
    kind = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return canonical_type(data_type.storage_type)
    if kind.is_dictionary(data_type) or kind.is_run_end_encoded(data_type):
        return canonical_type(data_type.value_type)
    if data_type in _simple_names():
        return data_type
    if kind.is_large_string(data_type) or kind.is_string_view(data_type):
        return pa.string()
    if kind.is_large_binary(data_type) or kind.is_binary_view(data_type):
        return pa.binary()
    if kind.is_date64(data_type):
        return pa.date32()
    if kind.is_decimal(data_type):
        return _decimal(data_type.precision, data_type.scale)
    if kind.is_temporal(data_type) or kind.is_fixed_size_binary(data_type):
        return data_type
    if kind.is_map(data_type):
        return pa.map_(canonical_type(data_type.key_type), canonical_type(data_type.item_type))
    if kind.is_struct(data_type):
        return pa.struct([(field.name, canonical_type(field.type)) for field in data_type])
    if is_list(data_type):
        return pa.list_(canonical_type(data_type.value_type))
    raise ValueError(f"type {data_type} is not supported; known are {_known()}")


def has_dictionary(data_type: pa.DataType) -> bool:
    """Whether the type is a dictionary or contains one."""
    if isinstance(data_type, pa.BaseExtensionType):
        return has_dictionary(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return True
    return any(has_dictionary(data_type.field(number).type) for number in range(data_type.num_fields))


def is_list(data_type: pa.DataType) -> bool:
    """Whether the type is a list in any of Arrow's layouts; a map is not."""
    kind = pa.types
    return bool(
        kind.is_list(data_type)
        or kind.is_large_list(data_type)
        or kind.is_fixed_size_list(data_type)
        or kind.is_list_view(data_type)
        or kind.is_large_list_view(data_type)
    )


@lru_cache(maxsize=4096)
def type_name(data_type: pa.DataType, units: bool = True) -> str:
    """Return the canonical name; without `units`, the units of time, timestamp and duration are left out.

    Raises ValueError for a type without a canonical name (a union).
    """
    return _name(canonical_type(data_type), units)


def _name(data_type: pa.DataType, units: bool) -> str:
    kind = pa.types
    if (name := _simple_names().get(data_type)) is not None:
        return name
    if kind.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if kind.is_fixed_size_binary(data_type):
        return f"fixed_binary({data_type.byte_width})"
    if kind.is_time(data_type):
        return f"time[{data_type.unit}]" if units and data_type.unit != "us" else "time"
    if kind.is_duration(data_type):
        return f"duration[{data_type.unit}]" if units else "duration"
    if kind.is_timestamp(data_type):
        if data_type.tz is None:
            return f"timestamp[{data_type.unit}]" if units and data_type.unit != "us" else "timestamp"
        if not units:
            return f"timestamp[{_quoted_unless(_ZONE, data_type.tz)}]"
        zone = _quoted_unless(_ZONE, data_type.tz) if is_known_zone(data_type.tz) else _quoted(data_type.tz)
        return f"timestamp[{data_type.unit}, {zone}]"
    if kind.is_map(data_type):
        return f"map<{_name(data_type.key_type, units)}, {_name(data_type.item_type, units)}>"
    if kind.is_struct(data_type):
        parts = (f"{_quoted_unless(_WORD, field.name)}: {_name(field.type, units)}" for field in data_type)
        return f"struct<{', '.join(parts)}>"
    return f"list<{_name(data_type.value_type, units)}>"


def parse_type(name: str) -> pa.DataType:
    """Return the Arrow type of a canonical name; ``parse_type(type_name(t)) == canonical_type(t)``.

    Raises ValueError with a message that shows the correct form.
    """
    parser = _Parser(name)
    data_type = parser.type(0)
    parser.skip_spaces()
    if parser.at < len(name):
        raise parser.error("ends too late", "nothing should follow the type")
    return data_type


def _decimal(precision: int, scale: int) -> pa.DataType:
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


def _quoted_unless(plain: re.Pattern[str], text: str) -> str:
    return text if plain.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@lru_cache(maxsize=1024)
def is_known_zone(zone: str) -> bool:
    """Whether Arrow knows the time zone; True for every zone on a machine without a time zone database."""
    return zone == "Z" or _is_found(zone) or not _is_found("Europe/Dublin")


def _is_found(zone: str) -> bool:
    try:
        pc.local_timestamp(pa.scalar(0, pa.timestamp("s", zone)))
    except pa.ArrowException:
        return False
    return True


def unquoted_unknown_zone(name: str) -> str | None:
    """Return the first time zone in a type name that is neither known nor in quotes."""
    zones = (data_type.tz for data_type in _timestamps(parse_type(name)) if data_type.tz is not None)
    return next((zone for zone in zones if not is_known_zone(zone) and _quoted(zone) not in name), None)


def _timestamps(data_type: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_timestamp(data_type):
        yield data_type
    for number in range(data_type.num_fields):
        yield from _timestamps(data_type.field(number).type)


def _known() -> str:
    return ", ".join([*_SIMPLE, *_FORMS.values()])


def _unknown(word: str) -> ValueError:
    folded = word.casefold()
    near = _SYNONYMS.get(folded)
    if near is None:
        names = [*_SIMPLE, *_FORMS]
        found = difflib.get_close_matches(folded[:60], names, n=1, cutoff=0.6)
        near = _FORMS.get(found[0], found[0]) if found else None
    hint = f"did you mean '{near}'?" if near else f"known are {_known()}"
    return ValueError(f"unknown type '{word[:60]}'; {hint}")


class _Parser:
    """Recursive-descent parser of one type name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def skip_spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def comes(self, mark: str) -> bool:
        """Skip spaces, and return whether `mark` comes next. The text that is left is not copied."""
        self.skip_spaces()
        return self.text.startswith(mark, self.at)

    def error(self, what: str, right: str) -> ValueError:
        return ValueError(f"type '{self.text[:60]}' {what} at character {self.at + 1}: {right}")

    def take(self, mark: str) -> bool:
        """Skip `mark` if it comes next; return whether it did."""
        if not self.comes(mark):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str, form: str) -> None:
        if not self.take(mark):
            raise self.error(f"lacks a '{mark}'", f"write it as '{form}'")

    def match(self, pattern: re.Pattern[str]) -> str:
        self.skip_spaces()
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found.group() if found else ""

    def text_or_quoted(self, plain: re.Pattern[str], form: str) -> str:
        word: str
        if not self.comes('"'):
            word = self.match(plain)
            if not word:
                raise self.error("lacks a name", f"write it as '{form}', odd names in double quotes")
            return word
        try:
            word, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError:
            raise self.error("has a broken quoted name", "quote it as a JSON string") from None
        return word

    def integer(self, form: str) -> int:
        digits = self.match(re.compile(r"-?[0-9]{1,9}"))
        if not digits:
            raise self.error("lacks a number", f"write it as '{form}'")
        return int(digits)

    def unit(self, form: str) -> str:
        word = self.match(_WORD)
        if word not in _UNITS:
            raise self.error("lacks a unit", f"write s, ms, us or ns, as in '{form}'")
        return word

    def type(self, depth: int) -> pa.DataType:
        if depth > _DEEPEST:
            raise ValueError(f"type is nested more than {_DEEPEST} levels deep; flatten it")
        self.skip_spaces()
        start = self.at
        word = self.match(_WORD)
        if word in _SIMPLE:
            return _simple_types()[word]
        match word:
            case "decimal":
                return self._decimal()
            case "fixed_binary":
                return self._fixed_binary()
            case "time" | "timestamp" | "duration":
                return self._temporal(word)
            case "list":
                self.expect("<", "list<string>")
                element = self.type(depth + 1)
                self.expect(">", "list<string>")
                return pa.list_(element)
            case "map":
                return self._map(depth)
            case "struct":
                return self._struct(depth)
        raise _unknown(word or self.text[start : start + 60].strip())

    def _decimal(self) -> pa.DataType:
        form = _FORMS["decimal"]
        self.expect("(", form)
        precision = self.integer(form)
        self.expect(",", form)
        scale = self.integer(form)
        self.expect(")", form)
        if not 1 <= precision <= 76:
            raise self.error(f"has {precision} digits", "a decimal has 1 to 76 digits, as in 'decimal(10,2)'")
        return _decimal(precision, scale)

    def _fixed_binary(self) -> pa.DataType:
        self.expect("(", _FORMS["fixed_binary"])
        width = self.integer(_FORMS["fixed_binary"])
        self.expect(")", _FORMS["fixed_binary"])
        if width < 0:
            raise self.error("has a negative width", "give the number of bytes, as in 'fixed_binary(16)'")
        return pa.binary(width)

    def _temporal(self, word: str) -> pa.DataType:
        form = {"timestamp": "timestamp[us, UTC]"}.get(word, f"{word}[us]")
        unit, zone = "us", None
        if self.take("["):
            unit = self.unit(form)
            if word == "timestamp" and self.take(","):
                zone = self.text_or_quoted(_ZONE, form)
                if zone == "tz":
                    raise self.error("says 'tz'", f"write the zone alone, as in '{form}'")
            self.expect("]", form)
        elif word == "duration":
            raise self.error(
                "lacks its unit", "write duration[s], duration[ms], duration[us] or duration[ns]"
            )
        if word == "timestamp":
            return pa.timestamp(unit, zone)
        if word == "duration":
            return pa.duration(unit)
        return (pa.time32 if unit in ("s", "ms") else pa.time64)(unit)

    def _map(self, depth: int) -> pa.DataType:
        self.expect("<", _FORMS["map"])
        key = self.type(depth + 1)
        self.expect(",", _FORMS["map"])
        item = self.type(depth + 1)
        self.expect(">", _FORMS["map"])
        return pa.map_(key, item)

    def _struct(self, depth: int) -> pa.DataType:
        form = "struct<name: string, age: int64>"
        self.expect("<", form)
        fields: list[tuple[str, Any]] = []
        while not self.take(">"):
            if fields:
                self.expect(",", form)
            name = self.text_or_quoted(_WORD, form)
            self.expect(":", form)
            fields.append((name, self.type(depth + 1)))
        return pa.struct(fields)


def below_encodings(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values below all encodings."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif value_type(kind) != kind:
            kind = value_type(kind)
        else:
            return kind
