"""MEDS in plain Python: algorithm 2 of Li and Shen 2010, every distance looked at in every round."""

import math
from collections.abc import Sequence
from fractions import Fraction

Point = Sequence[float]


def distance(one: Point, two: Point) -> float:
    """The squared Euclidean distance, the fields in order."""
    total = 0.0
    for a, b in zip(one, two, strict=True):
        total += (a - b) * (a - b)
    return total


def mean(values: Sequence[float]) -> float:
    """The true mean, rounded once."""
    return float(sum(map(Fraction, values)) / len(values))


def standardised(values: Sequence[float]) -> list[float]:
    """In population standard deviations from the mean, all scaled to below 1 first."""
    if min(values) == max(values):
        return [0.0] * len(values)
    _, exponent = math.frexp(max(map(abs, values)))
    scaled = [math.ldexp(value, -exponent) for value in values]
    centre = mean(scaled)
    deviations = [value - centre for value in scaled]
    sd = math.sqrt(mean([deviation * deviation for deviation in deviations]))
    return [deviation / sd for deviation in deviations]


def centroid(points: Sequence[Point]) -> Point:
    """The mean of each field."""
    return [mean(values) for values in zip(*points, strict=True)]


def most_distant(points: Sequence[Point], left: Sequence[int]) -> tuple[int, int]:
    """The two rows that are farthest from each other, the smallest pair of several."""
    pairs = ((r, s) for at, r in enumerate(left) for s in left[at + 1 :])
    return min(pairs, key=lambda pair: (-distance(points[pair[0]], points[pair[1]]), pair))


def farthest(points: Sequence[Point], left: Sequence[int], point: Point) -> int:
    """The row farthest from a point, the smallest of several."""
    return min(left, key=lambda row: (-distance(points[row], point), row))


def nearest(points: Sequence[Point], left: Sequence[int], point: Point, count: int) -> list[int]:
    """The rows nearest to a point, by (distance, row)."""
    return sorted(left, key=lambda row: (distance(points[row], point), row))[:count]


def bins(points: Sequence[Point], k: int, method: str) -> list[list[int]]:
    """The bins, in the order in which they are made."""
    left = list(range(len(points)))
    made: list[list[int]] = []
    while len(left) >= 2 * k:
        if method == "exact":
            r, s = most_distant(points, left)
        else:
            r = farthest(points, left, centroid([points[row] for row in left]))
            s = farthest(points, [row for row in left if row != r], points[r])
        left = [row for row in left if row not in (r, s)]
        for row in (r, s):
            made.append([row, *nearest(points, left, points[row], k - 1)])
            left = [row for row in left if row not in made[-1]]
    if len(left) == 1:
        distances = [distance(points[left[0]], centroid([points[row] for row in rows])) for rows in made]
        made[distances.index(min(distances))] += left if made else []
    elif left:
        made.append(left)
    return made
