"""Mask small counts of rows: below the disclosure threshold only "fewer than 5" is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.report.formatting import counted, number, percent

THRESHOLD = 5

_NOT_ROWS = frozenset(
    {
        "areas",
        "areas_with_other_households",
        "areas_with_other_persons",
        "blocks",
        "cells",
        "changed_cells",
        "classes",
        "degree",
        "distinct",
        "groups",
        "k",
        "parts",
        "partition_degree",
        "segments",
        "segments_collapsed",
        "segments_not_rounded",
        "segments_repaired",
        "segments_unchanged",
        "segments_without_localities",
        "sweeps",
        "transforms",
        "wave",
    }
)
"""Keys of a provider's figures that do not count rows; small integers of all other keys are masked."""


@dataclass(frozen=True, slots=True)
class Discretion:
    """Masking of counts and shares by the disclosure threshold and the number of rows of the table."""

    rows: int
    threshold: int = THRESHOLD

    def count(self, rows: int) -> str:
        """Format a number of rows, or return `fewer than 5`."""
        return f"fewer than {self.threshold}" if 0 < rows < self.threshold else number(rows)

    def rows_of_all(self, rows: int) -> str:
        """Format a number of the table's rows; it is masked if it, or the number of other rows, is small."""
        if 0 < self.rows - rows < self.threshold and rows >= self.threshold:
            return f"all but fewer than {self.threshold} rows"
        if rows == self.rows >= self.threshold:
            return f"all {number(rows)} rows"
        return counted(rows, "row", "rows") if not 0 < rows < self.threshold else f"{self.count(rows)} rows"

    def share_of_rows(self, rows: int) -> str:
        """Format a number of the table's rows in per cent; empty for a table without rows."""
        if not self.rows:
            return ""
        return self.share(rows / self.rows)

    def share(self, share: float) -> str:
        """Format a share of the rows in per cent, or return the bound that the threshold sets."""
        return self._bound(share, self.rows, percent) or percent(share)

    def figure(self, value: Any, sample: int | None = None) -> str:
        """Format a figure that may be a share of the rows or of the sampled rows; masked if these are few."""
        if isinstance(value, float):
            for rows in (self.rows, sample):
                if (
                    rows and abs(value * rows - round(value * rows)) < 1e-6
                ):  # else it is no share of these rows
                    bound = self._bound(value, rows, number)
                    if bound:
                        return bound
        return number(value)

    def own_figure(self, key: str, value: Any) -> str:
        """Format a provider's own figure. An integer counts rows, unless its key is known to count others."""
        if isinstance(value, int) and not isinstance(value, bool) and key not in _NOT_ROWS:
            return self.count(value)
        return self.figure(value)

    def _bound(self, share: float, rows: int, shown: Callable[[float], str]) -> str:
        """Return a bound, such as `below 0.01`, for a share of few rows or of all but few; else nothing."""
        if not rows or not 0 < share < 1:
            return ""
        few = self.threshold / rows
        if share < few * (1 - 1e-9):
            return f"below {shown(min(1.0, few))}"
        if 1 - share < few * (1 - 1e-9):
            return f"above {shown(max(0.0, 1 - few))}"
        return ""
