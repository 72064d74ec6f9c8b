"""k-anonymity, l-diversity and t-closeness in plain Python, class by class from their definitions."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

Values = Sequence[Hashable]


def classes(keys: Values, values: Sequence[Hashable]) -> dict[Hashable, list[Hashable]]:
    """Return key -> the values of the rows that have it."""
    found = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        found[key].append(value)
    return dict(found)


def k_anonymity(keys: Values, threshold: int) -> tuple[int, float, list[float]]:
    """Rows of the smallest class; share of rows in small ones; share of rows by size of their class."""
    sizes = Counter(keys)
    of_row = [sizes[key] for key in keys]
    intervals = [(1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, math.inf)]
    shares = [sum(low <= size <= high for size in of_row) / len(keys) for low, high in intervals]
    return min(of_row), sum(size < threshold for size in of_row) / len(keys), shares


def l_diversity(keys: Values, values: Values) -> dict[str, float]:
    """Distinct l and entropy l of the least diverse class, and the share of rows in classes of one value."""
    groups = classes(keys, values)
    entropies = []
    for group in groups.values():
        shares = [count / len(group) for count in Counter(group).values()]
        entropies.append(-sum(share * math.log(share) for share in shares))
    single = [key for key, group in groups.items() if len(set(group)) == 1]
    return {
        "distinct": min(len(set(group)) for group in groups.values()),
        "entropy": math.exp(min(entropies)),
        "homogeneous": sum(key in single for key in keys) / len(keys),
    }


def _shares(values: Values, domain: Sequence[Hashable]) -> list[float]:
    counts = Counter(values)
    return [counts[value] / len(values) for value in domain]


def equal_distance(values: Values, table: Values) -> float:
    """Earth mover's distance with ground distance 1 between any two values (Li et al. 2007, 4.2)."""
    domain = list(set(table))
    pairs = zip(_shares(values, domain), _shares(table, domain), strict=True)
    return sum(abs(p - q) for p, q in pairs) / 2


def ordered_distance(values: Sequence[float], table: Sequence[float]) -> float:
    """Earth mover's distance with ground distance |i - j| / (m - 1) between ranks (Li et al. 2007, 4.1)."""
    domain = sorted(set(table))
    if len(domain) == 1:
        return 0.0
    p, q = _shares(values, domain), _shares(table, domain)
    difference, total = 0.0, 0.0
    for i in range(len(domain)):
        difference += p[i] - q[i]
        total += abs(difference)
    return total / (len(domain) - 1)


def t_closeness(keys: Values, values: Sequence[float], ordered: bool) -> dict[str, float]:
    """Greatest distance of a class from the table, and the mean over the rows."""
    distance = ordered_distance if ordered else equal_distance
    groups = classes(keys, values)
    distances = {key: distance(group, values) for key, group in groups.items()}  # type: ignore[arg-type]
    return {"t": max(distances.values()), "mean": sum(distances[key] for key in keys) / len(keys)}
