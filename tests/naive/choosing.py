"""Ranks, domination, eligibility and chance levels by their definitions, pair by pair."""

import math
from collections.abc import Mapping, Sequence


def better(one: float, other: float, goal: str) -> bool:
    return one < other if goal == "low" else one > other


def dominated(points: Sequence[tuple[float, float]], goals: tuple[str, str]) -> list[bool]:
    def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
        as_good = all(not better(b, a, goal) for a, b, goal in zip(one, other, goals, strict=True))
        return as_good and any(better(a, b, goal) for a, b, goal in zip(one, other, goals, strict=True))

    return [any(dominates(one, other) for one in points) for other in points]


def clearly_apart(
    one: tuple[tuple[float, float], tuple[float, ...]], other: tuple[tuple[float, float], tuple[float, ...]]
) -> bool:
    """Whether two points, each with its reaches down and up on both axes, differ on an axis by more."""
    for axis in range(2):
        (low, reach), (high, other_reach) = sorted(
            [
                (one[0][axis], one[1][2 * axis : 2 * axis + 2]),
                (other[0][axis], other[1][2 * axis : 2 * axis + 2]),
            ]
        )
        if high - low > math.hypot((low + reach[1]) - low, high - (high - other_reach[0])):
            return True
    return False


def ranks(values: Sequence[float | None], goal: str) -> list[float]:
    worst = math.inf if goal == "low" else -math.inf
    known = [worst if value is None or math.isnan(value) else value for value in values]
    return [1 + sum(better(b, a, goal) for b in known) + (sum(b == a for b in known) - 1) / 2 for a in known]


def eligibilities(
    entries: Sequence[tuple[frozenset[str], Mapping[str, int], tuple[float, float]]], goals: tuple[str, str]
) -> list[tuple[list[str], bool]]:
    """Return for each (fields, reversible rows, figures) the fields it leaves, and whether it is not best."""
    found = []
    for fields, reversible, figures in entries:
        missing: set[str] = set()
        beaten = bool(reversible)
        for others, undone, rival in entries:
            if undone:
                continue
            if fields < others:
                missing |= others - fields
            if fields == others and dominated([rival, figures], goals)[1]:
                beaten = True
        found.append((sorted(missing), beaten or bool(missing)))
    return found


def share_near(numbers: Sequence[float], k: float) -> float | None:
    """Share of pairs (i, j), i with a number, that differ by at most k standard deviations."""
    there = [number for number in numbers if not math.isnan(number)]
    if not there:
        return None
    middle = math.fsum(there) / len(there)
    squares = math.fsum((number - middle) ** 2 for number in there)
    width = k * math.sqrt(squares / (len(there) - 1)) if len(there) > 1 else 0.0
    near = sum(abs(one - other) <= width for one in there for other in there)
    return near / (len(there) * len(numbers))


def share_different(values: Sequence[object]) -> float:
    """Share of pairs (i, j) whose values differ."""
    return sum(one != other for one in values for other in values) / len(values) ** 2
