"""Similarity of two tables as sketches estimate it, exactly: Jaccard's index of two multisets."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence


def jaccard(one: Iterable[Hashable], two: Iterable[Hashable]) -> float:
    """Jaccard's index of two multisets."""
    left, right = Counter(one), Counter(two)
    union = sum((left | right).values())
    return sum((left & right).values()) / union if union else 0.0


def runs(values: Sequence[Hashable], length: int) -> list[tuple[Hashable, ...]]:
    """All runs of consecutive values."""
    return [tuple(values[start : start + length]) for start in range(len(values) - length + 1)]
