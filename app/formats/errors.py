"""Errors in input data, and in tables that a media type cannot represent."""

from collections.abc import Callable
from dataclasses import dataclass


class FormatError(ValueError):
    """The data cannot be read, or the table cannot be written, in the media type.

    The message has field, row and a correction; it never quotes a cell.
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        """``pointer``: JSON pointer relative to the source object, empty if the error has no location."""
        super().__init__(message, pointer)
        self.message = message
        self.pointer = pointer

    def __str__(self) -> str:
        return self.message


def damaged_field(name: str) -> FormatError:
    """Return the error for a field whose values do not fit its type."""
    return FormatError(f"field '{name}' is damaged: offsets, indices or text that is not UTF-8")


class CellFault(Exception):
    """A cell of one column does not fit. The caller adds the location."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(index, what)
        self.index = index
        self.what = what


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a column's values in the input."""

    field: str
    locate: Callable[[int], tuple[str, int]]
    """Function of an index in the column: returns JSON pointer and row."""

    def fault(self, index: int, what: str) -> FormatError:
        """Return the error for the value at `index`."""
        pointer, row = self.locate(index)
        return FormatError(f"field '{self.field}', row {row} (counting from 0): {what}", pointer)
