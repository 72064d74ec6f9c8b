"""Rank correlations, and the criteria of a few deciding values, in plain Python from their definitions."""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, pstdev


def rank(numbers: Sequence[float], number: float) -> float:
    """Mean of the ranks that equal numbers share, 1 for a single smallest one."""
    return 1 + sum(other < number for other in numbers) + (sum(other == number for other in numbers) - 1) / 2


def rank_correlation(one: Sequence[float | None], two: Sequence[float | None]) -> float | None:
    """Pearson's correlation of the fields' ranks over the rows that have both; None if one is constant."""
    known = [[number for number in field if number is not None] for field in (one, two)]
    both = [
        (rank(known[0], a), rank(known[1], b))
        for a, b in zip(one, two, strict=True)
        if a is not None and b is not None
    ]
    if len({a for a, _ in both}) < 2 or len({b for _, b in both}) < 2:
        return None
    x, y = fmean(a for a, _ in both), fmean(b for _, b in both)
    products = math.fsum((a - x) * (b - y) for a, b in both)
    squares = math.fsum((a - x) ** 2 for a, _ in both) * math.fsum((b - y) ** 2 for _, b in both)
    return products / math.sqrt(squares)


Fields = Sequence[Sequence[float | None]]


def change_of_ranks(source: Fields, destination: Fields) -> dict[str, float]:
    """Mean and standard deviation of the changes; a pair that only the release lacks counts as 0 there."""
    changes = []
    for one, two in combinations(range(len(source)), 2):
        before = rank_correlation(source[one], source[two])
        if before is not None:
            changes.append(abs((rank_correlation(destination[one], destination[two]) or 0.0) - before))
    return {"mean": fmean(changes), "sd": pstdev(changes)}


def few_rows_decide(numbers: Sequence[float | None], weights: Sequence[float] | None = None) -> bool:
    """Whether the most extreme 1 % of the rows, one to four, outweigh all others in squared deviations."""
    few = min(4, max(1, len(numbers) // 100))
    given = weights or [1.0] * len(numbers)
    pairs = [(number, weight) for number, weight in zip(numbers, given, strict=True) if number is not None]
    total = math.fsum(weight for _, weight in pairs)
    if not total:
        return False
    mean = math.fsum(weight * number for number, weight in pairs) / total
    squares = sorted(weight * (number - mean) ** 2 for number, weight in pairs)
    return math.fsum(squares[-few:]) > math.fsum(squares[:-few])


def range_is_stretched(numbers: Sequence[float | None]) -> bool:
    """Whether a bin holds over 95 % of the numbers, and no single value is that frequent."""
    known = [number for number in numbers if number is not None]
    bins = 1
    while (bins + 1) ** 3 <= len(numbers):
        bins += 1
    if bins < 2 or not known or min(known) == max(known):
        return False
    width = (max(known) - min(known)) / bins
    places = [min(bins - 1, math.floor((number - min(known)) / width)) for number in known]

    def most_frequent(values: Sequence[float]) -> int:
        return max(values.count(value) for value in set(values))

    return most_frequent(places) > 0.95 * len(known) >= most_frequent(known)
