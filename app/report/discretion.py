"""What of a count of rows may be told: nothing below the disclosure threshold but that it is below."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.report.words import counted, number, percent

THRESHOLD = 5

_NOT_ROWS = frozenset(
    {
        "blocks",
        "cells",
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
        "segments_without_localities",
        "sweeps",
        "transforms",
    }
)
"""Integers of a provider's own figures that count no rows: of all others a small one is not told."""


@dataclass(frozen=True, slots=True)
class Discretion:
    """The threshold, and the number of rows that shares are shares of."""

    rows: int
    threshold: int = THRESHOLD

    def count(self, rows: int) -> str:
        """A number of rows, or `fewer than 5`."""
        return f"fewer than {self.threshold}" if 0 < rows < self.threshold else number(rows)

    def rows_of_all(self, rows: int) -> str:
        """So many of the table's rows: neither they nor the rest of them are told where they are few."""
        if 0 < self.rows - rows < self.threshold and rows >= self.threshold:
            return f"all but fewer than {self.threshold} rows"
        if rows == self.rows >= self.threshold:
            return f"all {number(rows)} rows"
        return counted(rows, "row", "rows") if not 0 < rows < self.threshold else f"{self.count(rows)} rows"

    def share_of_rows(self, rows: int) -> str:
        """The same in hundredths; empty of no rows."""
        if not self.rows:
            return ""
        return self.share(rows / self.rows)

    def share(self, share: float) -> str:
        """A share of the rows in hundredths, or the bound that the threshold sets."""
        return self._bound(share, self.rows, percent) or percent(share)

    def figure(self, value: Any, sample: int | None = None) -> str:
        """A figure that may be a share of rows, of a sample's also: a share of few rows is not told."""
        if isinstance(value, float):
            for rows in (self.rows, sample):
                if rows and abs(value * rows - round(value * rows)) < 1e-6:  # else no share of so many
                    bound = self._bound(value, rows, number)
                    if bound:
                        return bound
        return number(value)

    def own_figure(self, key: str, value: Any) -> str:
        """A provider's own figure: an integer counts rows, unless it is known to count others."""
        if isinstance(value, int) and not isinstance(value, bool) and key not in _NOT_ROWS:
            return self.count(value)
        return self.figure(value)

    def _bound(self, share: float, rows: int, shown: Callable[[float], str]) -> str:
        """Such as `below 0.01` where the share is one of few rows, or of all but few; else empty."""
        if not rows or not 0 < share < 1:
            return ""
        few = self.threshold / rows
        if share < few * (1 - 1e-9):
            return f"below {shown(min(1.0, few))}"
        if 1 - share < few * (1 - 1e-9):
            return f"above {shown(max(0.0, 1 - few))}"
        return ""
