"""CSV type inference: narrows the type of a field while its cells arrive.

``null`` if all are empty; ``int64`` (``uint64`` if one exceeds it); ``float64``; ``bool`` (``true``,
``false``); else ``string``. Dates remain text. So does a field with a leading zero as in 007, with a code
such as 12E3, with an integer beyond 64 bits, or, together with fractions, with a number without exponent
that is 2**53 or more or loses digits as float64, such as 1234567890123456.78: text keeps every digit. A
quoted cell that would be null unquoted does not influence the type, but is text in a field of text.
"""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pyarrow.compute as pc

from app.formats.value_text import LEAST_LOSSY, loses_digits

_INTEGER = "0|-?[1-9][0-9]*"

_FLOAT = (
    r"-?((0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
    r"|-?(0|[1-9][0-9]*)([eE][+-][0-9]+)?"
    r"|-(0|[1-9][0-9]*)[eE][0-9]+|[0-9]e[0-9]+"
    r"|NaN|-?Infinity"
)
"""Numbers as programs write them. 12E3, without sign or point, is a code: none of them writes a number so."""

_WORDS = "true|false"

_EXACT = 2**53

_LONGEST = 20  # characters of an integer of 64 bits

_BEYOND = 2**70

_FEW = 32  # number of cells below which Python is faster than a call of Arrow

_IS_INTEGER, _IS_FLOAT = re.compile(_INTEGER), re.compile(_FLOAT)


class FieldType:
    """Inferred type of one field, narrowed by each chunk of its cells."""

    __slots__ = ("_any", "_bools", "_digits", "_filled", "_floats", "_integers", "_lossy", "_nulls",
                 "_signed", "_unsigned")  # fmt: skip

    def __init__(self, nulls: frozenset[str] = frozenset({""})) -> None:
        """``nulls``: the cells that are null unless they are quoted."""
        self._nulls = nulls
        self._any = self._filled = False
        self._integers = self._floats = self._bools = True
        self._signed = self._unsigned = True
        self._digits = False
        self._lossy = False  # a cell would lose digits as float64

    @property
    def is_text(self) -> bool:
        """Whether it is text, whatever cells follow."""
        return not (self._floats or self._bools)

    def result(self) -> pa.DataType:
        """Return the type that fits all cells so far."""
        if not self._any:
            return pa.null()
        if not self._filled:
            return pa.string()
        if self._integers:
            return pa.int64() if self._signed else pa.uint64() if self._unsigned else pa.string()
        if self._floats and self._digits and not self._lossy:
            return pa.float64()
        return pa.bool_() if self._bools else pa.string()

    def see(self, cells: pa.Array) -> None:
        """Add cells as strings; a null is an unquoted empty cell."""
        if cells.null_count == len(cells):
            return
        self._any = True
        if len(cells) <= _FEW:
            self._see_few(
                [cell for cell in cells.to_pylist() if cell is not None and cell not in self._nulls]
            )
            return
        filled = without(cells, self._nulls).drop_null()
        if not len(filled):
            return
        self._see_few(filled.slice(0, _FEW).to_pylist())  # most fields are determined by their first cells
        if not self.is_text:
            self._see_many(filled)

    def _see_few(self, cells: list[str]) -> None:
        self._filled = self._filled or bool(cells)
        for cell in cells:
            if _IS_INTEGER.fullmatch(cell):
                self._bools = False
                number = int(cell) if len(cell) <= _LONGEST else _BEYOND
                self._see_integers(number, number)
            elif _IS_FLOAT.fullmatch(cell):
                self._integers = self._bools = False
                value = float(cell)
                digits = any(map(str.isdigit, cell))
                self._digits |= digits
                self._lossy |= digits and (
                    math.isinf(value)
                    or (abs(value) >= _EXACT and not _has_exponent(cell))
                    or loses_digits(cell)
                )
            else:
                self._integers = self._floats = False
                self._bools &= cell in ("true", "false")
            if self.is_text:
                return

    def _see_many(self, cells: pa.Array) -> None:
        if not self._floats:
            self._bools = _all(cells, _WORDS)
            return
        whole = pc.match_substring_regex(cells, f"^({_INTEGER})$")
        integers = cells.filter(whole)
        if len(integers):
            self._see_integers(*_extremes(integers))
        if len(integers) < len(cells):
            self._integers = False
            self._see_floats(cells.filter(pc.invert(whole)) if len(integers) else cells)

    def _see_floats(self, cells: pa.Array) -> None:
        if not _all(cells, _FLOAT):
            self._floats = False
            return
        if not self._digits:
            self._digits = bool(pc.any(pc.match_substring_regex(cells, "[0-9]")).as_py())
        values = pc.abs(cells.cast(pa.float64()))
        large = pc.greater_equal(values, LEAST_LOSSY)
        if not self._lossy and pc.any(large).as_py():
            cells, values = cells.filter(large), values.filter(large)
            rounded = pc.and_(pc.greater_equal(values, float(_EXACT)), pc.invert(_matches(cells, "[eE]")))
            rounded = pc.or_(rounded, pc.is_inf(values))
            self._lossy = bool(pc.any(pc.and_(rounded, _matches(cells, "[0-9]"))).as_py())
            self._lossy = self._lossy or any(
                map(loses_digits, cells.filter(pc.is_finite(values)).to_pylist())
            )

    def _see_integers(self, least: int, most: int) -> None:
        self._digits = True
        self._signed &= least >= -(2**63) and most < 2**63
        self._unsigned &= least >= 0 and most < 2**64
        self._lossy |= least <= -_EXACT or most >= _EXACT


def without(cells: pa.Array, nulls: frozenset[str]) -> pa.Array:
    """Return the cells with null for each cell in `nulls`, even if it was quoted."""
    alone = nulls == {""}
    quoted = pc.equal(cells, "") if alone else pc.is_in(cells, pa.array(sorted(nulls), cells.type))
    if pc.any(quoted).as_py():
        return pc.if_else(quoted, pa.scalar(None, cells.type), cells)
    return cells


def _matches(cells: pa.Array, pattern: str) -> pa.Array:
    return pc.match_substring_regex(cells, pattern)


def _has_exponent(cell: str) -> bool:
    return "e" in cell or "E" in cell


def _all(cells: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(cells, f"^({pattern})$")).as_py() is not False


def _extremes(integers: pa.Array) -> tuple[int, int]:
    """Return minimum and maximum; if a cell exceeds 64 bits, a value that does too."""
    for data_type in (pa.int64(), pa.uint64()):
        try:
            found = pc.min_max(integers.cast(data_type)).as_py()
        except pa.ArrowInvalid:
            continue
        return found["min"], found["max"]
    return -_BEYOND, _BEYOND
