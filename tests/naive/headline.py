"""Risk of a report's headline in plain Python, from its definition on the page about reports."""

import statistics
from collections.abc import Sequence


def beyond_chance(value: float, chance: float) -> float:
    """Success beyond chance as a share of what chance leaves (Giomi et al. 2023, section 3.2)."""
    return max(0.0, (value - chance) / (1 - chance)) if chance < 1 else 0.0


def true_values(before: Sequence[object], after: Sequence[object]) -> float:
    """Share of the rows that show their true value."""
    return sum(one == other for one, other in zip(before, after, strict=True)) / len(before)


def true_by_chance(before: Sequence[object]) -> float:
    """The same share, over all pairs of a row and the row whose value it shows."""
    return sum(one == other for one in before for other in before) / len(before) ** 2


def close_values(before: Sequence[float], after: Sequence[float]) -> float:
    """Share of the rows whose number is within a twentieth of a standard deviation of the true one."""
    width = statistics.stdev(after) / 20
    return sum(abs(one - other) <= width for one, other in zip(before, after, strict=True)) / len(before)


def close_by_chance(before: Sequence[float]) -> float:
    width = statistics.stdev(before) / 20
    return sum(abs(one - other) <= width for one in before for other in before) / len(before) ** 2


def state(risk: float, elevated: float, high: float) -> str:
    if risk > high:
        return "high"
    return "elevated" if risk > elevated else "low"
