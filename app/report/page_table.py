"""Table of the page: data of a chart, or figures by two keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

Cell = str | Markup


@dataclass(frozen=True, slots=True)
class Table:
    """Caption, column headers, and rows whose first cell is the row header."""

    caption: str
    head: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset()
    """Indices of columns, after the first, that hold words; numbers are aligned to the right."""
    marked: Mapping[int, str] = field(default_factory=dict)
    """Index of an emphasised row -> reason."""
