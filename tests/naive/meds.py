"""MEDS in plain Python: algorithm 1 of Li and Shen 2010, with every distance computed in every round."""

import math
from collections.abc import Sequence
from fractions import Fraction

from providers.services.meds import MedsParams
from tests.naive.bins import Bins, BinsOutcome, swap_in_bins
from tests.naive.swapping import Table

Point = Sequence[float]


def distance(one: Point, two: Point) -> float:
    """Squared Euclidean distance, summed in the order of the fields."""
    total = 0.0
    for a, b in zip(one, two, strict=True):
        difference = a - b
        total += difference * difference
    return total


def mean(values: Sequence[float]) -> float:
    """Exact mean, rounded once."""
    return float(sum(map(Fraction, values)) / len(values))


def standardised(values: Sequence[float]) -> list[float]:
    """Distances from the mean in population standard deviations, after scaling all values to below 1."""
    if min(values) == max(values):
        return [0.0] * len(values)
    _, exponent = math.frexp(max(map(abs, values)))
    scaled = [math.ldexp(value, -exponent) for value in values]
    centre = mean(scaled)
    deviations = [value - centre for value in scaled]
    sd = math.sqrt(mean([deviation * deviation for deviation in deviations]))
    return [deviation / sd for deviation in deviations]


def centroid(points: Sequence[Point]) -> Point:
    """Mean of each field."""
    return [mean(values) for values in zip(*points, strict=True)]


def most_distant(points: Sequence[Point], left: Sequence[int]) -> tuple[int, int]:
    """Find the two most distant rows; ties go to the smallest pair."""
    best, found = -1.0, (0, 0)
    for index, r in enumerate(left):
        for s in left[index + 1 :]:
            between = distance(points[r], points[s])
            if between > best:
                best, found = between, (r, s)
    return found


def farthest(points: Sequence[Point], left: Sequence[int], point: Point) -> int:
    """Find the row farthest from a point; ties go to the smallest row."""
    return min(left, key=lambda row: (-distance(points[row], point), row))


def nearest(points: Sequence[Point], left: Sequence[int], point: Point, count: int) -> list[int]:
    """Find the rows nearest to a point, by (distance, row)."""
    return sorted(left, key=lambda row: (distance(points[row], point), row))[:count]


def bins(points: Sequence[Point], k: int, method: str) -> list[list[int]]:
    """Form the bins, in the order of algorithm 1."""
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
    if len(left) == 1 and made:
        distances = [distance(points[left[0]], centroid([points[row] for row in rows])) for rows in made]
        made[distances.index(min(distances))] += left
    elif left:
        made.append(left)
    return made


def parts(
    points: Sequence[Point], rows: list[int], places: list[int], first: int, stop: int
) -> list[list[int]]:
    """Cut rows into the parts `first` to `stop`: each cut is at the place of a part, by the widest field."""
    if stop - first == 1:
        return [sorted(rows)]
    middle = (first + stop) // 2
    size = places[middle] - places[first]
    columns = list(zip(*(points[row] for row in rows), strict=True))
    widths = [max(values) - min(values) for values in columns]
    fields = sorted(range(len(widths)), key=lambda field: (-widths[field], field))
    ordered = sorted(rows, key=lambda row: ([points[row][field] for field in fields], row))
    left, right = ordered[:size], ordered[size:]
    return [*parts(points, left, places, first, middle), *parts(points, right, places, middle, stop)]


def squares(points: Sequence[Point]) -> Fraction:
    """Sum of squared distances from the centroid, exact."""
    total = Fraction(0)
    for values in zip(*points, strict=True):
        exact = [Fraction(value) for value in values]
        centre = sum(exact, Fraction(0)) / len(exact)
        total += sum(((value - centre) ** 2 for value in exact), Fraction(0))
    return total


def make_bins(params: MedsParams, columns: list[list[float]]) -> Bins:
    """Form the bins of these columns, with their figures for the report."""
    n, p = len(columns[0]), len(columns)
    k = params.k or max(2, n // (params.degree or 1))
    number = params.parts or 1
    largest = math.ceil(n / number)
    method = params.method
    if method in ("auto", "partitioned"):
        method = "exact" if p <= 6 or largest * largest * p <= 1e11 else "mdav"
    if params.standardise:
        columns = [standardised(values) for values in columns]
    points = list(zip(*columns, strict=True))
    made: list[list[int]] = []
    places = [n * part // number // (2 * k) * (2 * k) for part in range(number)] + [n]
    for rows in parts(points, list(range(n)), places, 0, number):
        made += [[rows[index] for index in found] for found in bins([points[row] for row in rows], k, method)]
    total = squares(points)
    within = sum((squares([points[row] for row in rows]) for rows in made), Fraction(0))
    figures = {
        "partition_degree": len(made),
        "minimal_depth": min(map(len, made)),
        "singletons": sum(len(rows) == 1 for rows in made),
        "k": k,
        "method": params.method if params.method == "partitioned" else method,
        "within_bin_variance": float(within / total) if total else 0.0,
    }
    if params.method == "partitioned":
        figures |= {"method_in_parts": method, "parts": number}
    return Bins(made, figures, ["one_bin"] if len(made) == 1 < n else [])


def swap(table: Table, params: MedsParams, seed: bytes, revision: int) -> BinsOutcome:
    """Exchange the attributes of S together within every bin."""
    return swap_in_bins(
        table, params, lambda names, columns: make_bins(params, columns), seed, "MEDS", revision
    )
