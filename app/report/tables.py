"""A table of the page: what stands behind a picture, or holds figures that have several names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

Cell = str | Markup


@dataclass(frozen=True, slots=True)
class Table:
    """A caption, the heads of the columns, and rows whose first cell is their head."""

    caption: str
    head: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset()
    """Columns after the first that hold words: numbers stand to the right."""
    marked: Mapping[int, str] = field(default_factory=dict)
    """Row -> why it stands out."""
