"""Settings of targeted record swapping, independent of the service's parameter model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordSwapSettings:
    """Checked parameters of a run; every field by name."""

    household: str | None
    """Field that identifies a household; None: every row is one."""
    hierarchy: tuple[str, ...]
    """Geographic fields, coarse to fine."""
    similar: tuple[tuple[str, ...], ...]
    """Match profiles, the strictest first; one without fields matches every household."""
    risk_fields: tuple[str, ...]
    k: int
    """Least number of persons of a combination of the risk fields in an area; 0: no obligation."""
    swap_rate: float
    carry_along: tuple[str, ...]
    risk: tuple[str, ...]
    """Fields of given risks: none, one, or one for each level."""
    threshold: float
    """Given risk beyond which a household must be swapped."""
    unmatched: str
    """Policy for households that must be swapped and find no donor: keep, suppress or fail."""

    @property
    def moved(self) -> tuple[str, ...]:
        """Fields whose values move: the hierarchy and those carried along."""
        return self.hierarchy + self.carry_along

    @property
    def obliging_risk(self) -> float:
        """Risk beyond which a household must be swapped; infinite where there is no obligation."""
        if self.risk:
            return self.threshold
        return 1 / self.k if self.k else float("inf")
