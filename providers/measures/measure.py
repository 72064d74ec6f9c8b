"""What a measure is: a declaration beside the function that computes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


class NotApplicable(Exception):
    """A measure has nothing to say of these tables; the message says why, in plain words."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure that a release is defended with."""

    key: str
    """In the report: ``measures.<key>.value``."""
    title: str
    concerns: Literal["risk", "utility"]
    goal: Literal["low", "high"]
    """Which way is better for the release."""
    range: str
    formula: str
    source: str
    cost: str
    """In the number of rows n."""
    compute: Callable[..., Any]

    def report(self, value: Any) -> dict[str, Any]:
        """The value with what a reader needs to understand it."""
        return {
            "value": value,
            "title": self.title,
            "concerns": self.concerns,
            "goal": self.goal,
            "range": self.range,
            "formula": self.formula,
            "source": self.source,
        }
