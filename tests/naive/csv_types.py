"""The type of a CSV field, read straight from what `app.formats.csv_inference` promises."""

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

INTEGER = re.compile(r"0|-?[1-9][0-9]*")
CODE = re.compile(r"[0-9]+E[0-9]+|[0-9]{2,}e[0-9]+")
NUMBER = re.compile(r"(-?(([1-9][0-9]*|0)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)|NaN|Infinity|-Infinity")


def inferred(cells: Sequence[str | None], nulls: Sequence[str] = ("",)) -> str:
    """The type's canonical name; a cell that is None was null and not quoted."""
    if all(cell is None for cell in cells):
        return "null"
    filled = [cell for cell in cells if cell is not None and cell not in nulls]
    if filled and all(map(INTEGER.fullmatch, filled)):
        numbers = list(map(int, filled))
        if all(-(2**63) <= number < 2**63 for number in numbers):
            return "int64"
        if all(0 <= number < 2**64 for number in numbers):
            return "uint64"
        return "string"
    if filled and all(map(NUMBER.fullmatch, filled)) and not any(map(CODE.fullmatch, filled)):
        with_digits = [cell for cell in filled if any(map(str.isdigit, cell))]
        exact = all(abs(float(cell)) < 2**53 for cell in with_digits if "e" not in cell.lower())
        exact = exact and not any(_loses_money(cell) for cell in with_digits if "e" not in cell.lower())
        finite = all(abs(float(cell)) != float("inf") for cell in with_digits)
        return "float64" if with_digits and exact and finite else "string"
    if filled and all(cell in ("true", "false") for cell in filled):
        return "bool"
    return "string"


def _loses_money(cell: str) -> bool:
    """Whether a float64 does not show the digits of the cell again, four of them after the point."""
    digits = len(cell.partition(".")[2])
    value = float(cell)
    if digits > 4:
        return abs(Fraction(cell) - Fraction(value)) > Fraction(1, 20_000) and Decimal(cell) != Decimal(
            repr(value)
        )
    return Decimal(f"{value:.{digits}f}") != Decimal(cell)
