"""Attacks in plain Python on lists of rows, from their papers. Missing values are None."""

import math
from collections.abc import Sequence
from statistics import NormalDist

Row = Sequence[object]


def gower(one: Row, two: Row, ranges: Sequence[float | None]) -> float:
    """Gower's distance: differences of numbers by their range, 1 for each pair of categories that differ.

    ``ranges``: range of each field of numbers, None for a category.
    """
    total = 0.0
    for mine, other, span in zip(one, two, ranges, strict=True):
        if mine is None or other is None:
            total += mine is not other
        elif span is None:
            total += mine != other
        elif span > 0:
            assert isinstance(mine, int | float)
            assert isinstance(other, int | float)
            total += abs(mine - other) / span
    return total


def nearest(query: Row, table: Sequence[Row], ranges: Sequence[float | None]) -> list[set[int]]:
    """Rows by distance: sets of rows at the same distance, within 1e-12, the nearest first."""
    by_distance: list[tuple[float, set[int]]] = []
    for distance, row in sorted((gower(query, row, ranges), number) for number, row in enumerate(table)):
        if by_distance and distance - by_distance[-1][0] < 1e-12:
            by_distance[-1][1].add(row)
        else:
            by_distance.append((distance, {row}))
    return [rows for _, rows in by_distance]


def links(one: Sequence[set[int]], two: Sequence[set[int]], k: int) -> bool | None:
    """Whether the k nearest rows of two searches share a row (Giomi et al. 2023); None if ties decide."""

    def certain_and_possible(classes: Sequence[set[int]]) -> tuple[set[int], set[int]]:
        found: set[int] = set()
        for rows in classes:
            if len(found) + len(rows) > k:
                return found, found | rows
            found |= rows
            if len(found) == k:
                break
        return found, found

    (certain_one, possible_one), (certain_two, possible_two) = map(certain_and_possible, (one, two))
    if certain_one & certain_two:
        return True
    return None if possible_one & possible_two else False


def wilson(successes: int, tries: int, confidence: float) -> tuple[float, float]:
    """Roots p of (rate - p)**2 = z**2 p (1 - p) / tries (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = successes / tries
    a, b, c = 1 + z**2 / tries, -(2 * rate + z**2 / tries), rate**2
    root = math.sqrt(max(0.0, b**2 - 4 * a * c))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def ratio_limits(one: tuple[float, float, float], two: tuple[float, float, float]) -> tuple[float, float]:
    """Limits of one / two of two independent estimates (value, low, high), by Donner and Zou 2012, eq. 9.

    They are the ratios R at which the limits of one - R two reach 0 (Fieller's argument with variances that
    are recovered from the limits), found by bisection.
    """
    (x, x_low, x_high), (y, y_low, y_high) = one, two

    def upper(ratio: float) -> float:
        return x - ratio * y + math.sqrt((x_high - x) ** 2 + ratio**2 * (y - y_low) ** 2)

    def lower(ratio: float) -> float:
        return x - ratio * y - math.sqrt((x - x_low) ** 2 + ratio**2 * (y_high - y) ** 2)

    def root(function: object, start: float, end: float) -> float:
        assert callable(function)
        for _ in range(200):
            middle = (start + end) / 2
            start, end = (middle, end) if function(middle) > 0 else (start, middle)
        return start

    return root(lower, 0.0, x / y), root(upper, x / y, 1e9)


def unchanged(
    before: Sequence[dict[str, object]],
    after: Sequence[dict[str, object]],
    origin: Sequence[int],
    fields: Sequence[str],
) -> list[str]:
    """Fields of which at most one in twenty released rows differs from its source row, if not all are such.

    ``origin``: number of the source row of each released row.
    """
    found = []
    for field in fields:
        different = 0
        for row, number in zip(after, origin, strict=True):
            mine, other = before[number][field], row[field]
            both_nan = mine != mine and other != other  # NaN is not itself
            different += not (both_nan or mine == other)
        if 20 * different <= len(after):
            found.append(field)
    return [] if len(found) == len(fields) else found


def reported(risks: Sequence[tuple[float, float, float]]) -> int:
    """Number of the intruder whose successes are reported; risks have value, lower and upper limit.

    The first one uses all fields. Another one is reported only if its lower limit is above 0 and above that
    of the first one, or equal to it with a higher risk.
    """
    best = 0
    for number, (value, low, high) in enumerate(risks):
        if low > 0 and (low, value, high) > (risks[best][1], risks[best][0], risks[best][2]):
            best = number
    return best


def one_row_each(chosen: Sequence[int], units: Sequence[object]) -> bool:
    """Whether no two of the chosen rows belong to one unit."""
    return len({units[row] for row in chosen}) == len(chosen)


def are_whole(chosen: Sequence[int], units: Sequence[object]) -> bool:
    """Whether no unit has both a chosen row and one that was not chosen."""
    inside = {units[row] for row in chosen}
    outside = {unit for row, unit in enumerate(units) if row not in set(chosen)}
    return not inside & outside


def fulfils(row: dict[str, object], conditions: Sequence[tuple[str, str, object]]) -> bool:
    """Whether a row fulfils all conditions (field, "is", "at most" or "at least", value)."""
    for field, operator, value in conditions:
        mine = row[field]
        if operator == "is":
            if mine != value:
                return False
            continue
        if mine is None:
            return False
        assert isinstance(mine, int | float)
        assert isinstance(value, int | float)
        if (mine > value) if operator == "at most" else (mine < value):
            return False
    return True


def is_right(guess: float | str | None, truth: float | str | None, tolerance: float) -> bool:
    """Whether a guess is the truth, or within a share of it if both are numbers; null is a value of its
    own."""
    if isinstance(guess, int | float) and isinstance(truth, int | float):
        return abs(guess - truth) <= tolerance * abs(truth)
    return guess == truth


def claims(distances: Sequence[float], limits: Sequence[float], share: float) -> float:
    """Expected number of distances that are claimed, if a share of `limits` is claimed and the closest go
    first."""
    claimed, left = 0.0, share * len(limits)
    for limit in sorted(set(limits)):
        chance = min(1.0, left / limits.count(limit))
        claimed += chance * list(distances).count(limit)
        left -= chance * limits.count(limit)
        if left > 0:
            following = min((each for each in limits if each > limit), default=math.inf)
            claimed += sum(limit < each < following for each in distances)
    return claimed + sum(each < min(limits) for each in distances)
