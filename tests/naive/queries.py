"""Aggregate queries and rank intervals in plain Python, from their definitions."""

from collections.abc import Collection, Sequence
from statistics import fmean

Numbers = Sequence[float | None]


def average(
    averaged: Numbers,
    conditions: Sequence[tuple[Numbers, float]],
    kinds: Sequence[str | None],
    among: Collection[str],
) -> float | None:
    """SELECT AVG(averaged) WHERE each number > its threshold AND kind IN among; None without a value."""
    found = [
        value
        for row, value in enumerate(averaged)
        if value is not None
        and kinds[row] in among
        and all(
            (number := numbers[row]) is not None and number > threshold for numbers, threshold in conditions
        )
    ]
    return fmean(found) if found else None


def relative_error(before: float | None, after: float | None) -> float | None:
    """|b - a| / |a|; 1 without b, and none if a is 0 or missing."""
    if before is None or before == 0:
        return None
    return 1.0 if after is None else abs(after - before) / abs(before)


def is_in_rank_interval(value: float, released: float, others: Sequence[float], p: float) -> bool:
    """Whether a value is among the others within p n ranks of the ranks of the released one."""
    ordered = sorted(others)
    reach = int(p * len(ordered))
    ranks = [rank for rank, other in enumerate(ordered) if other == released]
    low, high = max(ranks[0] - reach, 0), min(ranks[-1] + reach, len(ordered) - 1)
    return ordered[low] <= value <= ordered[high]


def rank_disclosure(
    before: Sequence[Numbers], after: Sequence[Numbers], p: float
) -> tuple[float, list[float]]:
    """Share of rows of which every known value is in its interval, and the share of each field."""
    near: list[list[bool | None]] = []
    for source, released in zip(before, after, strict=True):
        others = [number for number in released if number is not None]
        near.append(
            [
                None if x is None else y is not None and is_in_rank_interval(x, y, others, p)
                for x, y in zip(source, released, strict=True)
            ]
        )
    by_field = [fmean(found for found in field if found is not None) for field in near]
    rows = [[found for found in row if found is not None] for row in zip(*near, strict=True)]
    return fmean(all(row) for row in rows if row), by_field
