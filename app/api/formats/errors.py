"""What is wrong with data that came in, or cannot be said in the format that was asked for."""

from collections.abc import Callable
from dataclasses import dataclass


class FormatError(ValueError):
    """The data cannot be read, or the table cannot be written, as the media type wants it.

    The message names field, row and what would be right; it never quotes a cell.
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        """``pointer``: JSON pointer relative to the source object, empty where no part is at fault."""
        super().__init__(message, pointer)
        self.message = message
        self.pointer = pointer

    def __str__(self) -> str:
        return self.message


class CellFault(Exception):
    """A cell of one column does not fit; whoever knows the column's place says where it is."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(index, what)
        self.index = index
        self.what = what


@dataclass(frozen=True, slots=True)
class Place:
    """Where the values of a column stand in the data that came in."""

    field: str
    locate: Callable[[int], tuple[str, int]]
    """Index in the column -> (JSON pointer, row)."""

    def fault(self, index: int, what: str) -> FormatError:
        """The error that value `index` is not right."""
        pointer, row = self.locate(index)
        return FormatError(f"field '{self.field}', row {row} (counting from 0): {what}", pointer)
