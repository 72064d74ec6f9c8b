"""Ranks and domination by their definitions, pair by pair."""

import math
from collections.abc import Sequence


def better(one: float, other: float, goal: str) -> bool:
    return one < other if goal == "low" else one > other


def dominated(points: Sequence[tuple[float, float]], goals: tuple[str, str]) -> list[bool]:
    def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
        as_good = all(not better(b, a, goal) for a, b, goal in zip(one, other, goals, strict=True))
        return as_good and any(better(a, b, goal) for a, b, goal in zip(one, other, goals, strict=True))

    return [any(dominates(one, other) for one in points) for other in points]


def ranks(values: Sequence[float | None], goal: str) -> list[float]:
    worst = math.inf if goal == "low" else -math.inf
    known = [worst if value is None or math.isnan(value) else value for value in values]
    return [1 + sum(better(b, a, goal) for b in known) + (sum(b == a for b in known) - 1) / 2 for a in known]
