"""Random forest on binned fields, tree by tree and split by split, in plain Python.

Breiman 2001 and Liaw and Wiener 2002, with the intervals and draws of `providers.measures.models.forest`.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.naive.chacha20 import block

Row = Sequence[float]


def words(key: Sequence[int], tree: int, level: int) -> Iterator[int]:
    """Yield the words of the stream (tree, level)."""
    counter = 0
    while True:
        yield from block(key, counter, (tree, 0, level))
        counter += 1


def bounded(draws: Iterator[int], bound: int) -> int:
    """Return a uniform integer below `bound` (Lemire 2019, algorithm 5)."""
    product = next(draws) * bound
    while product % 2**32 < (2**32 - bound) % bound:
        product = next(draws) * bound
    return product >> 32


def bounds(values: Sequence[float]) -> list[float]:
    """Return the upper bounds of the intervals of a field, all but the last."""
    present = sorted(value for value in values if not math.isnan(value))
    distinct = sorted(set(present))
    if len(distinct) <= 255:
        return [(low + high) / 2 for low, high in itertools.pairwise(distinct)]
    places = [part * len(present) // 255 for part in range(1, 255)]
    return sorted({(present[place - 1] + present[place]) / 2 for place in places})


def interval(value: float, limits: Sequence[float]) -> int:
    """Return the number of the interval of a value; 255 if it is missing."""
    return 255 if math.isnan(value) else sum(limit < value for limit in limits)


@dataclasses.dataclass
class Node:
    """Node of a tree; a leaf if it has no field."""

    rows: list[int]
    """Training rows, each as often as it was drawn."""
    field: int | None = None
    cut: int = 0
    children: "list[Node]" = dataclasses.field(default_factory=list)


def score(target: Sequence[float], low: list[int], high: list[int], classes: bool) -> float:
    """Return S_l / w_l + S_r / w_r, S the squared sum or the sum of squared counts of classes."""
    sums = []
    for rows in (low, high):
        counts = Counter(target[row] for row in rows)
        by_class = sum(count**2 for count in counts.values())
        sums.append(by_class if classes else sum(target[row] for row in rows) ** 2)
    return (sums[0] * len(high) + sums[1] * len(low)) / (len(low) * len(high))


def grow(
    rows: list[int], intervals: list[list[int]], target: Sequence[float], classes: bool, draws: Iterator[int]
) -> Node:
    """Grow one tree, the nodes in the order in which they were made."""
    order = list(range(len(intervals)))
    tried = max(1, math.isqrt(len(order)))
    root = Node(rows)
    nodes = [root]
    for node in nodes:
        if len({target[row] for row in node.rows}) == 1 or len(node.rows) <= (1 if classes else 5):
            continue
        best = -math.inf
        drawn = 0
        while drawn < len(order) and (drawn < tried or node.field is None):
            other = drawn + bounded(draws, len(order) - drawn)
            order[drawn], order[other] = order[other], order[drawn]
            codes = intervals[order[drawn]]
            for cut in sorted({codes[row] for row in node.rows})[:-1]:
                low = [row for row in node.rows if codes[row] <= cut]
                high = [row for row in node.rows if codes[row] > cut]
                found = score(target, low, high, classes)
                if found > best:
                    best, node.field, node.cut = found, order[drawn], cut
            drawn += 1
        if node.field is not None:
            codes = intervals[node.field]
            node.children = [
                Node([row for row in node.rows if codes[row] <= node.cut]),
                Node([row for row in node.rows if codes[row] > node.cut]),
            ]
            nodes += node.children
    return root


def most_frequent(values: Sequence[float]) -> float:
    """Return the most frequent value, the lowest of several."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def predictions(
    training: Sequence[Row], target: Sequence[float], tests: Sequence[Row],
    trees: int, classes: bool, key: Sequence[int], drawn: int,
) -> list[float]:  # fmt: skip
    """Predict the target of test rows by trees that are each grown on `drawn` draws of training rows."""
    limits = [bounds(column) for column in zip(*training, strict=True)]
    intervals = [
        [interval(value, limit) for value in column]
        for column, limit in zip(zip(*training, strict=True), limits, strict=True)
    ]
    mean = 0.0 if classes else sum(target) / len(target)
    centred = [value - mean for value in target]
    votes: list[list[float]] = [[] for _ in tests]
    for tree in range(trees):
        draws = words(key, tree, 0)
        rows = [bounded(draws, len(training)) for _ in range(drawn)]
        root = grow(rows, intervals, centred, classes, words(key, tree, 1))
        for test, vote in zip(tests, votes, strict=True):
            node = root
            while node.field is not None:
                node = node.children[interval(test[node.field], limits[node.field]) > node.cut]
            values = [centred[row] for row in node.rows]
            vote.append(most_frequent(values) if classes else sum(values) / len(values))
    return [most_frequent(vote) if classes else sum(vote) / trees + mean for vote in votes]
