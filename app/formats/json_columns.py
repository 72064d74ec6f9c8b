"""JSON values to Arrow columns: type inference, and validation of declared types.

Inference: all null is ``null``; booleans ``bool``; integers ``int64``, or ``uint64`` if one exceeds it;
integers mixed with other numbers ``float64``; text ``string``, never a date; arrays ``list`` and objects
``struct``, recursively. No other mixture is allowed.

A declared type is validated strictly. Whole numbers are JSON integers (``31.0`` is rejected, like ``"31"``);
a float may be an integer that it represents exactly, and ``"NaN"``, ``"Infinity"``, ``"-Infinity"``; a
decimal is a string or an integer, since a JSON number with a fraction has already lost digits; a duration is
an integer of its unit; date, time, timestamp and binary are strings in the forms of `app.formats.value_text`;
a map is an array of ``[key, value]`` pairs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from app.formats.errors import CellFault, FormatError, Place
from app.formats.size_limits import check_cells, check_size
from app.formats.value_text import first_fault, from_text
from providers.errors import did_you_mean, reference_token
from providers.tables.encodings import nested
from providers.tables.type_names import is_list, type_name

Values = Sequence[Any]

_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction or exponent",
    str: "text",
    list: "an array",
    dict: "an object",
    NoneType: "null",
}

_SPECIAL_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_EXACT = 2**53

_BEYOND = "the number is beyond float64; declare the field as decimal(p,s) or string in fields"

_DEEPEST = 32

_PLAIN_KINDS = {bool: "bool", int: "int64", float: "float64", str: "string"}

# --------------------------------------------------------------------------------------- inference


def inferred_column(values: Values, place: Place) -> pa.Array:
    """Convert values to a column of their inferred type. Raises FormatError: there is no common type."""
    kinds = set(map(type, values)) - {NoneType}
    if len(kinds) == 1 and (plain := _PLAIN_KINDS.get(next(iter(kinds)))) is not None:
        data_type = pa.type_for_alias(plain)
        try:
            array = pa.array(values, data_type)
        except (pa.ArrowException, OverflowError, ValueError):
            array = None  # located and reported below
        if array is not None:
            if data_type == pa.float64() and (index := _too_large(values, array)) is not None:
                raise place.fault(index, _BEYOND)
            return array
    return column(values, infer(values, place), place)


def infer(values: Values, place: Place, depth: int = 0) -> pa.DataType:
    """Infer the type of a column of JSON values. Raises FormatError: there is no common type."""
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.null()
    if kinds == {int}:
        return _integer_type(values, place)
    if kinds == {int, float}:
        index = _first(values, lambda value: type(value) is int and abs(value) > _EXACT)
        if index is not None:
            raise place.fault(
                index,
                "an integer beyond 2**53 in a field that also has fractions would lose digits; "
                "declare the field's type in fields, such as decimal(38,6) with values as strings",
            )
        return pa.float64()
    if len(kinds) > 1 or not kinds <= set(_KINDS):
        raise _mixed(values, place)
    kind = kinds.pop()
    if kind in (list, dict) and depth >= _DEEPEST:
        raise FormatError(f"field '{place.field}' is nested more than {_DEEPEST} levels deep; flatten it")
    if kind is list:
        return pa.list_(infer(*_elements(values, place), depth + 1))
    if kind is dict:
        names = dict.fromkeys(chain.from_iterable(value for value in values if value is not None))
        check_cells(len(names), len(values), place.field)
        members = _members(values, names, place)
        return pa.struct(
            [(name, infer(member.values, member.place, depth + 1)) for name, member in members.items()]
        )
    return pa.type_for_alias(_PLAIN_KINDS[kind])


def _integer_type(values: Values, place: Place) -> pa.DataType:
    present = [value for value in values if value is not None]
    least, most = min(present), max(present)
    if least >= -(2**63) and most < 2**63:
        return pa.int64()
    if least >= 0 and most < 2**64:
        return pa.uint64()
    limit = 2**63 if least < 0 else 2**64
    index = _first(values, lambda value: value is not None and not -(2**63) <= value < limit)
    raise place.fault(
        index or 0,
        f"the integer does not fit {'int64' if least < 0 else 'uint64'}; declare the field in fields as "
        "decimal(38,0), or as string with values in quotes",
    )


def _mixed(values: Values, place: Place) -> FormatError:
    first = next(value for value in values if value is not None)
    numbers = (int, float)
    like = numbers if type(first) in numbers else (type(first),)
    index = _first(values, lambda value: value is not None and type(value) not in like)
    if index is None or type(first) not in _KINDS or type(values[index]) not in _KINDS:
        index = _first(values, lambda value: type(value) not in _KINDS) or index or 0
        return place.fault(index, "not a JSON value")
    return place.fault(
        index,
        f"{_KINDS[type(values[index])]} where the rows before have {_KINDS[type(first)]}; "
        "a field has values of one type, which may be stated in fields",
    )


def _first(values: Values, at_fault: Callable[[Any], bool]) -> int | None:
    return next((index for index, value in enumerate(values) if at_fault(value)), None)


# ------------------------------------------------------------------------------------- conversion


def column(values: Values, data_type: pa.DataType, place: Place) -> pa.Array:
    """Convert values to a column of a canonical type. Raises FormatError: a value does not fit."""
    kind = pa.types
    check_size(data_type, len(values), f"field '{place.field}'")
    try:
        if is_list(data_type):
            return _list_column(values, data_type, place)
        if kind.is_struct(data_type):
            return _struct_column(values, data_type, place)
        if kind.is_map(data_type):
            return _map_column(values, data_type, place)
        return _flat_column(values, data_type)
    except CellFault as fault:
        raise place.fault(fault.index, fault.what) from None


def _flat_column(values: Values, data_type: pa.DataType) -> pa.Array:
    kind = pa.types
    if kind.is_null(data_type):
        _only(values, data_type, ())
        return pa.nulls(len(values))
    if kind.is_boolean(data_type):
        _only(values, data_type, (bool,))
        return pa.array(values, data_type)
    if kind.is_integer(data_type):
        _only(values, data_type, (int,), "write whole numbers as JSON numbers without a point")
        return first_fault(values, lambda some: pa.array(some, data_type), _range_of(data_type))
    if kind.is_floating(data_type):
        return _float_column(values, data_type)
    if kind.is_duration(data_type):
        _only(values, data_type, (int,), f"write it as a whole number of {data_type.unit}")
        return first_fault(values, lambda some: pa.array(some, pa.int64()), "out of range").cast(data_type)
    if kind.is_decimal(data_type):
        _only(values, data_type, (str, int), 'write it as a string, such as "12.50", to keep its digits')
        values = [str(value) if type(value) is int else value for value in values]
    elif kind.is_interval(data_type):
        raise CellFault(0, "JSON and CSV cannot carry an interval; use Arrow")
    else:
        _only(values, data_type, (str,), "write it as a string")
    return from_text(first_fault(values, lambda some: pa.array(some, pa.string()), "not text"), data_type)


def _only(values: Values, data_type: pa.DataType, kinds: tuple[type, ...], hint: str = "") -> None:
    wrong = set(map(type, values)) - {NoneType, *kinds}
    if wrong:
        index = _first(values, lambda value: type(value) in wrong) or 0
        what = _KINDS.get(type(values[index]), "not a JSON value")
        raise CellFault(index, f"{what} where {type_name(data_type)} is declared{'; ' if hint else ''}{hint}")


def _range_of(data_type: pa.DataType) -> str:
    bits = data_type.bit_width
    if pa.types.is_signed_integer(data_type):
        return f"{type_name(data_type)} holds -(2**{bits - 1}) to 2**{bits - 1} - 1"
    return f"{type_name(data_type)} holds 0 to 2**{bits} - 1"


def _too_large(values: Values, floats: pa.Array) -> int | None:
    """Return the index of the first number such as 1e400, which JSON readers turn into infinity."""
    infinite = np.flatnonzero(np.isinf(floats.to_numpy(zero_copy_only=False)))
    return next((index for index in infinite.tolist() if type(values[index]) is float), None)


def _float_column(values: Values, data_type: pa.DataType) -> pa.Array:
    hint = 'write numbers as JSON numbers, and NaN or infinities as "NaN", "Infinity", "-Infinity"'
    _only(values, data_type, (float, int, str), hint)
    kinds = set(map(type, values))
    floats = values
    if str in kinds:
        index = _first(values, lambda value: type(value) is str and value not in _SPECIAL_FLOATS)
        if index is not None:
            raise CellFault(index, f"text where {type_name(data_type)} is declared; {hint}")
        floats = [_SPECIAL_FLOATS[value] if type(value) is str else value for value in values]
    if int in kinds:
        what = f"the integer is beyond what {type_name(data_type)} holds exactly"
        floats = [_exact_float(value, index, what) for index, value in enumerate(floats)]
    wide = pa.array(floats, pa.float64())
    index = _too_large(values, wide)
    if index is not None:
        raise CellFault(index, _BEYOND)
    if data_type == wide.type:
        return wide
    narrow = wide.cast(data_type, safe=False)
    back = np.asarray(narrow.cast(pa.float64()).fill_null(0.0))
    given = np.asarray(wide.fill_null(0.0))
    out = np.flatnonzero(np.isinf(back) & np.isfinite(given))
    if len(out):
        raise CellFault(int(out[0]), f"the number is beyond the range of {type_name(data_type)}")
    if int in kinds:
        changed = [index for index in np.flatnonzero(back != given).tolist() if type(values[index]) is int]
        if changed:
            raise CellFault(changed[0], what)
    return narrow


def _exact_float(value: Any, index: int, what: str) -> Any:
    if type(value) is not int:
        return value
    try:
        converted = float(value)
    except OverflowError:
        raise CellFault(index, what) from None
    if converted != value:
        raise CellFault(index, what)
    return converted


# ------------------------------------------------------------------------------------ nested values


def _elements(values: Values, place: Place) -> tuple[list[Any], Place]:
    """Concatenate the elements of all arrays, and return their locations."""
    elements = list(chain.from_iterable(value for value in values if value is not None))
    ends = list(accumulate(0 if value is None else len(value) for value in values))

    def locate(index: int) -> tuple[str, int]:
        owner = bisect_right(ends, index)
        pointer, row = place.locate(owner)
        return f"{pointer}/{index - (ends[owner - 1] if owner else 0)}", row

    return elements, Place(place.field, locate)


@dataclass(slots=True)
class _Member:
    """Values of one member of all objects."""

    values: list[Any]
    place: Place
    owners: list[int] | None = None
    """Indices of the objects that have the member, one for each value; None: every object has a value,
    possibly null."""

    def spread(self, values: pa.Array, count: int) -> pa.Array:
        """Scatter the column of the values to all objects, with null for objects without the member."""
        if self.owners is None:
            return values
        indices = np.zeros(count, np.int64)
        indices[self.owners] = np.arange(len(self.owners))
        absent = np.ones(count, np.bool_)
        absent[self.owners] = False
        return values.take(pa.array(indices, mask=absent))


def _members(values: Values, names: Collection[str], place: Place) -> dict[str, _Member]:
    """Collect the values of each member; the names must be all that occur.

    If most objects lack most members, only existing values are gathered. Otherwise a body in which every
    object has new members would take time quadratic in its length.
    """
    filled = sum(len(value) for value in values if value is not None)
    if 2 * filled >= len(names) * len(values):
        return {
            name: _Member(
                [None if value is None else value.get(name) for value in values], _inside(place, name)
            )
            for name in names
        }
    gathered: dict[str, tuple[list[Any], list[int]]] = {name: ([], []) for name in names}
    for index, value in enumerate(values):
        for name, member in value.items() if value is not None else ():
            found, owners = gathered[name]
            found.append(member)
            owners.append(index)
    return {
        name: _Member(found, _inside(place, name, owners), owners)
        for name, (found, owners) in gathered.items()
    }


def _inside(place: Place, name: str, owners: list[int] | None = None) -> Place:
    """Return the location of a member's values."""

    def locate(index: int) -> tuple[str, int]:
        pointer, row = place.locate(index if owners is None else owners[index])
        return f"{pointer}/{reference_token(name)}", row

    return Place(place.field, locate)


def _lengths(values: Values) -> tuple[Any, Any]:
    lengths = np.array([0 if value is None else len(value) for value in values], np.int64)
    return lengths, np.array([value is None for value in values], np.bool_)


def _list_column(values: Values, data_type: pa.DataType, place: Place) -> pa.Array:
    _only(values, data_type, (list,), "write it as an array")
    elements, inside = _elements(values, place)
    return nested(data_type, *_lengths(values), [column(elements, data_type.value_type, inside)])


def _struct_column(values: Values, data_type: pa.DataType, place: Place) -> pa.Array:
    _only(values, data_type, (dict,), "write it as an object")
    names = [field.name for field in data_type]
    known = set(names)
    for index, value in enumerate(values):
        if value is not None and not value.keys() <= known:
            stranger = next(name for name in value if name not in known)
            raise CellFault(index, f"unknown member '{stranger}'{did_you_mean(stranger, names)}")
    null = pa.array([value is None for value in values], pa.bool_())
    if not names:
        return pa.array(values, data_type)
    members = _members(values, names, place)
    children = []
    for field in data_type:
        member = members[field.name]
        children.append(member.spread(column(member.values, field.type, member.place), len(values)))
    return pa.StructArray.from_arrays(children, fields=list(data_type), mask=null)


def _map_column(values: Values, data_type: pa.DataType, place: Place) -> pa.Array:
    _only(values, data_type, (list,), "write it as an array of [key, value] pairs")
    pairs, inside = _elements(values, place)
    for index, pair in enumerate(pairs):
        if type(pair) is not list or len(pair) != 2 or pair[0] is None:
            raise inside.fault(index, "a map is written as an array of [key, value] pairs, no key null")
    sides = []
    for side, side_type in enumerate((data_type.key_type, data_type.item_type)):

        def locate(index: int, side: int = side) -> tuple[str, int]:
            pointer, row = inside.locate(index)
            return f"{pointer}/{side}", row

        sides.append(column([pair[side] for pair in pairs], side_type, Place(place.field, locate)))
    return nested(data_type, *_lengths(values), sides)
