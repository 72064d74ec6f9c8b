"""Result of one measure: its value, or the reason why it does not apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class NotApplicable(Exception):
    """A measure does not apply to these tables; the message gives the reason in plain words."""


BEYOND_FLOAT64 = "the numbers are too large, or too close to each other, for float64"
"""Reason for which a measure does not apply to numbers whose squares or sums overflow or vanish."""


@dataclass(frozen=True)
class Finding:
    """Value of one measure, and the fields and rows on which it was taken."""

    value: Any
    """Plain JSON."""
    fields: Sequence[str] = ()
    sample: int | None = None
    """Number of sampled rows; None if the measure was taken on all rows."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the measure's report, such as the number of draws."""
