"""Weighted estimates in plain Python: sums over rows, replicated rows, and a solver of fractions."""

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction

Numbers = Sequence[float | None]


def variance_of_total(
    scores: Sequence[float], strata: Sequence[Hashable] | None = None, units: Sequence[Hashable] | None = None
) -> float:
    """sum over strata of n_h / (n_h - 1) sum over units of (z_c - mean z)^2 (Binder 1983)."""
    rows = range(len(scores))
    stratum = ["all"] * len(scores) if strata is None else list(strata)
    unit = list(rows) if units is None else list(units)
    sums: dict[tuple[Hashable, Hashable], list[float]] = {}
    for row in rows:
        sums.setdefault((stratum[row], unit[row]), []).append(scores[row])
    totals = {unit: math.fsum(parts) for unit, parts in sums.items()}
    overall = math.fsum(totals.values()) / len(totals)
    found = []
    for name in set(stratum):
        own = [total for (part, _), total in totals.items() if part == name]
        if len(own) == 1:  # no variance within the stratum: its deviation from the mean of all units
            found.append((own[0] - overall) ** 2 if len(totals) > 1 else 0.0)
            continue
        mean = math.fsum(own) / len(own)
        found.append(len(own) / (len(own) - 1) * math.fsum((total - mean) ** 2 for total in own))
    return math.fsum(found)


def mean(numbers: Numbers, weights: Sequence[float]) -> float:
    """sum of w x / sum of w over the rows that have a number."""
    pairs = [(x, w) for x, w in zip(numbers, weights, strict=True) if x is not None]
    return math.fsum(w * x for x, w in pairs) / math.fsum(w for _, w in pairs)


def mean_scores(numbers: Numbers, weights: Sequence[float]) -> list[float]:
    """w (x - mean) / sum of w; 0 for a row without a number."""
    centre = mean(numbers, weights)
    total = math.fsum(w for x, w in zip(numbers, weights, strict=True) if x is not None)
    return [0.0 if x is None else w * (x - centre) / total for x, w in zip(numbers, weights, strict=True)]


def variance(numbers: Numbers, weights: Sequence[float]) -> float:
    """m / (m - 1) sum of w (x - mean)^2 / sum of w over the m rows with a number and a weight."""
    pairs = [(x, w) for x, w in zip(numbers, weights, strict=True) if x is not None and w > 0]
    centre = math.fsum(w * x for x, w in pairs) / math.fsum(w for _, w in pairs)
    squares = math.fsum(w * (x - centre) ** 2 for x, w in pairs) / math.fsum(w for _, w in pairs)
    return squares * len(pairs) / (len(pairs) - 1)


def quantile(numbers: Numbers, weights: Sequence[float], share: Fraction) -> float:
    """Return the least number up to which at least this share of the weights lies, in exact fractions."""
    pairs = sorted((x, Fraction(w)) for x, w in zip(numbers, weights, strict=True) if x is not None and w > 0)
    wanted = share * sum(weight for _, weight in pairs)
    reached = Fraction(0)
    for x, weight in pairs:
        reached += weight
        if reached >= wanted:
            return x
    raise AssertionError("the weights add up to less than themselves")


def largest_difference(
    source: tuple[Numbers, Sequence[float]], destination: tuple[Numbers, Sequence[float]]
) -> float:
    """Largest difference of the weighted distribution functions, at every number of either table."""

    def below(table: tuple[Numbers, Sequence[float]], bound: float) -> float:
        pairs = [(x, w) for x, w in zip(*table, strict=True) if x is not None]
        return math.fsum(w for x, w in pairs if x <= bound) / math.fsum(w for _, w in pairs)

    points = [x for numbers, _ in (source, destination) for x in numbers if x is not None]
    return max(abs(below(source, point) - below(destination, point)) for point in points)


def correlation(one: Sequence[float], other: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted covariance over the root of both weighted variances."""
    centre = mean(one, weights), mean(other, weights)
    both = [
        math.fsum(w * (a - centre[i]) * (b - centre[j]) for a, b, w in zip(x, y, weights, strict=True))
        for x, y, i, j in ((one, other, 0, 1), (one, one, 0, 0), (other, other, 1, 1))
    ]
    return both[0] / math.sqrt(both[1] * both[2])


def solve(matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction]:
    """Solve a linear system by Gaussian elimination in exact fractions."""
    size = len(matrix)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for step in range(size):
        pivot = next(row for row in range(step, size) if rows[row][step] != 0)
        rows[step], rows[pivot] = rows[pivot], rows[step]
        rows[step] = [value / rows[step][step] for value in rows[step]]
        for row in range(size):
            if row != step:
                factor = rows[row][step]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[step], strict=True)]
    return [row[size] for row in rows]


def regression(
    target: Sequence[float], columns: Sequence[Sequence[float]], weights: Sequence[float]
) -> tuple[list[float], list[list[float]]]:
    """Normal equations in exact fractions.

    Returns
    -------
    list of float
        Intercept and coefficients.
    list of list of float
        Scores of each coefficient, by row: (sum of w x x')^-1 w x e.
    """
    y = [Fraction(value) for value in target]
    w = [Fraction(weight) for weight in weights]
    x = [[Fraction(1), *(Fraction(column[row]) for column in columns)] for row in range(len(target))]
    size, rows = len(columns) + 1, range(len(target))
    zero = Fraction(0)
    normal = [[sum((w[r] * x[r][i] * x[r][j] for r in rows), zero) for j in range(size)] for i in range(size)]
    right = [sum((w[r] * x[r][i] * y[r] for r in rows), zero) for i in range(size)]
    coefficients = solve(normal, right)
    residuals = [y[r] - sum(b * value for b, value in zip(coefficients, x[r], strict=True)) for r in rows]
    scores = [solve(normal, [w[r] * value * residuals[r] for value in x[r]]) for r in rows]
    return (
        [float(b) for b in coefficients],
        [[float(row[index]) for row in scores] for index in range(size)],
    )
