"""k-anonymity, l-diversity, t-closeness and SUDA scores in plain Python, from their definitions."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import combinations

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
    """Earth mover's distance with ground distance 1 between any two values (Li et al. 2007)."""
    domain = list(set(table))
    pairs = zip(_shares(values, domain), _shares(table, domain), strict=True)
    return sum(abs(p - q) for p, q in pairs) / 2


def ordered_distance(values: Sequence[float], table: Sequence[float]) -> float:
    """Earth mover's distance with ground distance |i - j| / (m - 1) between ranks (Li et al. 2007)."""
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


def minimal_sample_uniques(rows: Sequence[Sequence[Hashable]], row: int) -> list[tuple[int, ...]]:
    """Sets of fields, not all of them, on which the row is unique, but on none of their subsets."""
    fields = range(len(rows[row]))

    def unique(subset: tuple[int, ...]) -> bool:
        same = [other for other in rows if all(other[field] == rows[row][field] for field in subset)]
        return len(same) == 1

    proper = [subset for size in range(1, len(fields)) for subset in combinations(fields, size)]
    found = [subset for subset in proper if unique(subset)]
    return [subset for subset in found if not any(set(other) < set(subset) for other in found)]


def suda_score(rows: Sequence[Sequence[Hashable]], row: int, largest: int) -> int:
    """Sum over the row's minimal sample uniques of prod for i = k to M of (ATT - i) (Elliot et al. 2005)."""
    fields = len(rows[row])
    sizes = [len(subset) for subset in minimal_sample_uniques(rows, row) if len(subset) <= largest]
    return sum(math.prod(fields - i for i in range(size, largest + 1)) for size in sizes)
