"""Checks of rows: expressions that compare fields with each other and with values.

The grammar is a part of Python's: names of fields, ``field("net income")`` for names that are no identifiers,
numbers, text, ``True`` and ``False``, comparisons, also in chains, ``and``, ``or``, ``not`` and parentheses.
Python's own parser reads an expression and this module accepts a list of its nodes. Nothing is evaluated by
Python.

Integers and decimals are compared exactly, timestamps with a zone as moments, and an integer and a
floating-point number as float64. A comparison with a null, or with NaN, is unknown, and unknown parts follow
Kleene's logic. A row breaks a check only if the expression is false for certain.

References
----------
Kleene 1952, Introduction to Metamathematics, section 64: three-valued logic.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from providers.arrays import BoolArray
from providers.errors import ParameterError, SourceError, did_you_mean
from providers.tables.columns import unwrapped
from providers.tables.literals import literal
from providers.tables.type_names import value_type

POINTER = "/parameters/checks"

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
"""Operator of Python's parser -> comparison of Arrow."""

_UNITS = ("s", "ms", "us", "ns")
"""Units of time from coarse to fine."""

_DECIMAL_DIGITS = 76
"""Most digits of Arrow's widest decimal type."""

_TESTS_OF_EQUALITY = ("equal", "not_equal")


@dataclass(frozen=True, slots=True)
class FieldName:
    """Field of the table."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Number, text or boolean in an expression."""

    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of a field with another field or with a value."""

    left: FieldName | Constant
    operation: str
    """Name of Arrow's function."""
    right: FieldName | Constant


@dataclass(frozen=True, slots=True)
class Junction:
    """Parts joined by ``and`` or by ``or``."""

    conjunction: bool
    """Whether all parts must be true; else one of them."""
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """Negation of an expression."""

    part: Expression


Expression = Comparison | Junction | Negation


class _Parser:
    """Conversion of one check to an expression.

    Parameters
    ----------
    text : str
    pointer : str
        JSON pointer of the check, for errors.
    """

    def __init__(self, text: str, pointer: str) -> None:
        self._text, self._pointer = text, pointer
        self._bytes = text.encode("utf-8", "surrogatepass")

    def parse(self) -> Expression:
        """Return the expression; raise ParameterError with the place of the fault."""
        for sign in ("\\", "\n", "\r", "\0", "\f"):
            if sign in self._text:
                self._refuse(self._text.index(sign), "this character is not allowed")
        if self._text.startswith((" ", "\t")):
            self._refuse(0, "a check begins with a field, a value, 'not' or a parenthesis, not with a space")
        try:
            tree = ast.parse(self._text, mode="eval")
        except SyntaxError as error:
            self._refuse((error.offset or 1) - 1, "this is no expression such as 'birth <= death'")
        except (ValueError, RecursionError, MemoryError):
            self._refuse(0, "this expression cannot be read")
        return self._expression(tree.body)

    def _expression(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.BoolOp):
            parts = tuple(self._expression(part) for part in node.values)
            return Junction(isinstance(node.op, ast.And), parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Negation(self._expression(node.operand))
        if not isinstance(node, ast.Compare):
            self._refuse(self._place(node), "a comparison is expected here, such as 'age >= 15'")
        return self._comparisons(node)

    def _comparisons(self, node: ast.Compare) -> Expression:
        operands = [self._operand(each) for each in (node.left, *node.comparators)]
        parts: list[Comparison] = []
        for number, operation in enumerate(node.ops):
            place = self._place(node.comparators[number])
            if type(operation) not in _OPERATORS:
                self._refuse(place, "compare with ==, !=, <, <=, > or >=")
            left, right = operands[number : number + 2]
            if isinstance(left, Constant) and isinstance(right, Constant):
                self._refuse(place, "two values are compared: one side must be a field")
            parts.append(Comparison(left, _OPERATORS[type(operation)], right))
        return parts[0] if len(parts) == 1 else Junction(True, tuple(parts))

    def _operand(self, node: ast.expr) -> FieldName | Constant:
        if isinstance(node, ast.Name):
            # The parser normalises identifiers, and field names are not normalised.
            return FieldName(self._bytes[node.col_offset : node.end_col_offset].decode())
        if isinstance(node, ast.Call):
            return self._named(node)
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        value = node.operand if negative and isinstance(node, ast.UnaryOp) else node
        if not isinstance(value, ast.Constant) or not isinstance(value.value, bool | int | float | str):
            self._refuse(self._place(node), "a field, a number, a text, True or False is expected here")
        if negative and (isinstance(value.value, bool | str)):
            self._refuse(self._place(node), "only a number can be negative")
        return Constant(-value.value if negative else value.value)  # type: ignore[operator]

    def _named(self, node: ast.Call) -> FieldName:
        named = isinstance(node.func, ast.Name) and node.func.id == "field" and not node.keywords
        argument = node.args[0] if named and len(node.args) == 1 else None
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            self._refuse(self._place(node), 'the only function is field("name"), for a field\'s name')
        return FieldName(argument.value)

    def _place(self, node: ast.expr) -> int:
        return len(self._bytes[: node.col_offset].decode())

    def _refuse(self, place: int, reason: str) -> NoReturn:
        shown = min(max(place, 0), len(self._text)) + 1
        raise ParameterError(f"check '{self._text}', character {shown}: {reason}", self._pointer)


def parsed(checks: Sequence[str]) -> list[Expression]:
    """Return the expressions of the parameter `checks`.

    Raises
    ------
    ParameterError
        A check is no expression of the grammar.
    """
    return [_Parser(text, f"{POINTER}/{number}").parse() for number, text in enumerate(checks)]


def names_of(expression: Expression) -> tuple[str, ...]:
    """Return the fields that an expression names, each once."""
    if isinstance(expression, Comparison):
        operands = (expression.left, expression.right)
        return tuple(dict.fromkeys(each.name for each in operands if isinstance(each, FieldName)))
    parts = (expression.part,) if isinstance(expression, Negation) else expression.parts
    return tuple(dict.fromkeys(name for part in parts for name in names_of(part)))


# ------------------------------------------------------------------------------------ against a schema


def check_expressions(checks: Sequence[str], schema: pa.Schema) -> None:
    """Check that the expressions fit the schema.

    Raises
    ------
    ParameterError
        A check is no expression of the grammar, names an unknown field, compares fields of different
        kinds or two decimals without a common decimal type, or compares a field with a value that does not
        fit its type.
    """
    for number, (text, expression) in enumerate(zip(checks, parsed(checks), strict=True)):
        _check(expression, schema, text, f"{POINTER}/{number}")


def _check(expression: Expression, schema: pa.Schema, text: str, pointer: str) -> None:
    if not isinstance(expression, Comparison):
        for part in (expression.part,) if isinstance(expression, Negation) else expression.parts:
            _check(part, schema, text, pointer)
        return
    kinds = {}
    for name in names_of(expression):
        if not schema.get_all_field_indices(name):  # `schema.names` lists all fields at each use
            raise ParameterError(
                f"check '{text}': unknown field '{name}'{did_you_mean(name, schema.names)}", pointer
            )
        kinds[name] = _kind(schema.field(name).type)
        if kinds[name] is None:
            message = f"check '{text}': field '{name}' of type {schema.field(name).type} cannot be compared"
            raise ParameterError(message, pointer)
        if kinds[name] == "boolean" and expression.operation not in _TESTS_OF_EQUALITY:
            raise ParameterError(f"check '{text}': compare '{name}', a boolean, with == or !=", pointer)
    if len(set(kinds.values())) > 1:
        listed = " and ".join(f"'{name}' ({kind})" for name, kind in kinds.items())
        raise ParameterError(f"check '{text}': {listed} are of different kinds", pointer)
    _check_decimals([_storage(schema.field(name).type) for name in kinds], text, pointer)
    for constant, field in ((expression.left, expression.right), (expression.right, expression.left)):
        if isinstance(constant, Constant) and isinstance(field, FieldName):
            literal(constant.value, _plain(schema.field(field.name)), "a compared value", pointer)


def _check_decimals(kinds: Sequence[pa.DataType], text: str, pointer: str) -> None:
    """Raise ParameterError if no decimal type holds all values of the compared ones, one or two."""
    if pa.types.is_decimal(kinds[0]):
        digits, _ = _shared_decimal(kinds[0], kinds[-1])
        if digits > _DECIMAL_DIGITS:
            named = " and ".join(map(str, dict.fromkeys(kinds)))
            raise ParameterError(
                f"check '{text}': a comparison of {named} takes {digits} digits, and a decimal has at most "
                f"{_DECIMAL_DIGITS}; cast a field to a smaller precision or scale",
                pointer,
            )


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _storage(field.type))


def _storage(kind: pa.DataType) -> pa.DataType:
    """Return the type of a field's values below extensions and encodings."""
    while True:
        inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else value_type(kind)
        if inner == kind:
            return inner
        kind = inner


@cache
def _kinds() -> tuple[tuple[str, Callable[[pa.DataType], bool]], ...]:
    """Return pairs of a kind of values and the test of a type; the first that is true counts."""
    return (
        ("boolean", pa.types.is_boolean),
        ("number", pa.types.is_integer),
        ("number", pa.types.is_floating),
        ("decimal", pa.types.is_decimal),
        ("text", pa.types.is_string),
        ("text", pa.types.is_large_string),
        ("text", pa.types.is_string_view),
        ("date", pa.types.is_date),
        ("timestamp", lambda kind: pa.types.is_timestamp(kind) and kind.tz is None),
        ("timestamp with a time zone", pa.types.is_timestamp),
        ("time", pa.types.is_time),
        ("duration", pa.types.is_duration),
    )


def _kind(kind: pa.DataType) -> str | None:
    """Return the kind of values that can be compared with each other; None for types without an order."""
    storage = _storage(kind)
    return next((name for name, matches in _kinds() if matches(storage)), None)


# --------------------------------------------------------------------------------------- evaluation


def broken_rows(expression: Expression, columns: dict[str, pa.ChunkedArray], pointer: str) -> BoolArray:
    """Mask of the rows for which the expression is false for certain.

    Parameters
    ----------
    expression : Expression
        Checked against the schema.
    columns : dict
        Field -> column, of equal length.
    pointer : str
        JSON pointer of the check.

    Raises
    ------
    SourceError
        Values of two units of time cannot be compared within 64 bits.
    """
    try:
        found = _evaluated(expression, columns)
    except pa.ArrowInvalid as error:
        message = "dates or times cannot be compared: one of them does not fit 64 bits in the other's unit"
        raise SourceError(message, pointer) from error
    broken = pc.invert(found).fill_null(False)
    mask: BoolArray = broken.combine_chunks().to_numpy(zero_copy_only=False)
    return mask


def _evaluated(expression: Expression, columns: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return true, false or null for each row."""
    if isinstance(expression, Negation):
        return pc.invert(_evaluated(expression.part, columns))
    if isinstance(expression, Junction):
        join = pc.and_kleene if expression.conjunction else pc.or_kleene
        return reduce(join, (_evaluated(part, columns) for part in expression.parts))
    left, right = _operands(expression, columns)
    return pc.call_function(expression.operation, [left, right])


def _operands(expression: Comparison, columns: dict[str, pa.ChunkedArray]) -> tuple[Any, Any]:
    sides = (expression.left, expression.right)
    found: list[Any] = [
        _values(columns[side.name]) if isinstance(side, FieldName) else None for side in sides
    ]
    for number, side in enumerate(sides):
        if isinstance(side, Constant):
            other = found[1 - number]  # a field: the parser has refused two values
            found[number] = literal(side.value, pa.field("value", other.type), "a compared value", POINTER)
    left, right = found
    shared = _shared_type(left.type, right.type)
    if shared is None:
        return left, right
    # an integer beyond 2**53 becomes the nearest float64; all other values stay what they are
    safe = not pa.types.is_floating(shared)
    return left.cast(shared, safe=safe), right.cast(shared, safe=safe)


def _shared_type(one: pa.DataType, two: pa.DataType) -> pa.DataType | None:
    """Return the type in which values of two plain types of one kind are compared; None: as they are."""
    if pa.types.is_decimal(one):
        digits, scale = _shared_decimal(one, two)
        return None if one == two and scale == one.scale else pa.decimal256(digits, scale)
    if one == two:
        return None
    if _kind(one) == "number":
        floating = pa.types.is_floating(one) or pa.types.is_floating(two)
        return pa.float64() if floating else pa.decimal128(20, 0)  # every integer of 64 bits
    if pa.types.is_timestamp(one) and one.tz is not None:  # Arrow compares two units, or two zones, not both
        return pa.timestamp(max(one.unit, two.unit, key=_UNITS.index), "UTC")
    return None


def _shared_decimal(one: pa.DataType, two: pa.DataType) -> tuple[int, int]:
    """Return the digits and the scale, not negative, that hold all values of two decimal types."""
    scale = max(one.scale, two.scale, 0)  # Arrow compares no negative scales
    return max(one.precision - one.scale, two.precision - two.scale) + scale, scale


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values without encodings; NaN becomes null."""
    column = unwrapped(column)
    kind = _storage(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        if pa.types.is_float16(kind):
            column = column.cast(pa.float32())
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column
