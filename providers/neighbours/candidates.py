"""Candidate rows of RWN: all rows, a sample of rows or of pairs, in the table or in each part of a partition.

The methods are those of section 10.3 of the paper. The random order that divides the rows into parts, and the
samples of the whole table, are drawn with the purpose `neighbours`. Samples within parts are drawn with the
purpose `within` and the number of the part as identity. `docs/decisions/0001-randomness.md` lists the
addresses of all draws.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from providers.arrays import Int32Array
from providers.grouping.groups import Groups
from providers.grouping.shuffle import shuffle_groups
from providers.neighbours.donors import DonorDraw, Donors, NeighbourRule, PartRows
from providers.neighbours.own_samples import SAMPLE_BYTES, draw_from_own_samples
from providers.neighbours.pair_samples import draw_from_pairs, pair_bytes, pair_work_bytes
from providers.neighbours.points import Points
from providers.numba import get_num_threads
from providers.progress import Progress
from providers.randomness.chacha20 import Key, Stream

Method = Literal["exact", "sample", "own_sample", "pairs"]

_ORDER_BYTES = 24
"""Bytes of a row while a random order is drawn."""


@dataclass(frozen=True)
class CandidateRows:
    """Candidate rows of each neighbourhood."""

    method: Method
    size: int
    """Rows of a sample (the paper's m); 0 with `exact`."""
    parts: int = 0
    """Number of random parts in which the method is applied (the paper's u); 0: the whole table."""

    def method_for(self, rows: int) -> Method:
        """Return the method for a part of `rows` rows: `exact` if a sample contains all of them."""
        if self.method == "sample" and self.size >= rows:
            return "exact"
        if self.method in ("own_sample", "pairs") and self.size >= rows - 1:
            return "exact"
        return self.method

    def cuts(self, rows: int) -> list[int]:
        """Return the offsets at which the parts begin in the random order, and its end."""
        return [rows * part // self.parts for part in range(self.parts + 1)]

    def largest_part(self, rows: int) -> int:
        """Return the rows of the largest part, or of the table if it is not divided."""
        return -(-rows // self.parts) if self.parts else rows

    def least(self, rows: int, k: int) -> int:
        """Return a lower bound of the neighbourhood sizes."""
        smallest = rows // self.parts if self.parts else rows
        candidates = smallest - 1
        if self.method == "sample":
            candidates = min(candidates, self.size - 1)
        elif self.method == "own_sample":
            candidates = min(candidates, self.size)
        elif self.method_for(self.largest_part(rows)) == "pairs":
            candidates = min(candidates, 1)  # a row may have a single pair; one without draws a sample
        return max(0, min(k, candidates))

    def effective_k(self, rows: int, k: int) -> float:
        """Return the average rank among all rows of the k-th nearest candidate: k n / m, k u."""
        factor = float(max(self.parts, 1))
        if self.method != "exact":
            factor = max(factor, rows / max(1, min(self.size, rows)))
        return k * factor

    def needed_bytes(self, rows: int) -> int:
        """Return the minimum memory of the search in bytes, beyond points and tree."""
        largest = self.largest_part(rows)
        return pair_bytes(largest, self.size) if self.method_for(largest) == "pairs" else 0

    def work_bytes(self, rows: int, k: int) -> int:
        """Return the maximum memory of the search in bytes, beyond points and tree, in the largest part."""
        largest = self.largest_part(rows)
        method = self.method_for(largest)
        if method == "own_sample":
            return SAMPLE_BYTES * min(self.size, largest) * int(get_num_threads())
        if method == "pairs":
            return pair_work_bytes(largest, self.size, k)
        return _ORDER_BYTES * largest if method == "sample" else 0


@dataclass(frozen=True)
class OrderKeys:
    """Keys from which candidate rows are drawn."""

    whole: Key
    """Key of the division into parts, or of samples of the whole table."""
    within: Key
    """Key of the samples within parts."""

    @classmethod
    def of(cls, stream: Stream) -> "OrderKeys":
        """Derive the keys of a run."""
        return cls(stream.key("neighbours"), stream.key("within"))


@dataclass
class PairShortage:
    """Numbers of rows with too few pairs."""

    few: int = 0
    """Rows with 1 to k - 1 candidates."""
    none: int = 0
    """Rows without a pair, which draw k rows as a private sample."""

    def count_complete(self, chosen: CandidateRows, rows: int, k: int) -> None:
        """Count the rows of a part in which all rows are candidates of each other."""
        if chosen.method == "pairs" and rows - 1 < k:
            self.few += rows


def random_order(rows: int, key: Key, identity: int = 0) -> Int32Array:
    """Return a uniformly random permutation of 0 to rows - 1."""
    whole = Groups(rows, None, np.array([0, rows], np.int64), np.array([identity], np.uint64))
    return np.asarray(shuffle_groups(whole, key, 1.0).order, np.int32)


def draw_without_tree(
    part: PartRows,
    chosen: CandidateRows,
    rule: NeighbourRule,
    key: Key,
    identity: int,
    shortage: PairShortage,
    progress: Callable[[float], None],
) -> None:
    """Draw donors for all rows of a part by the method `own_sample` or `pairs`.

    Parameters
    ----------
    part : PartRows
        Its words are replaced by donors, and its sizes are filled.
    chosen : CandidateRows
    rule : NeighbourRule
    key : Key
        Key of the samples.
    identity : int
        Number of the part.
    shortage : PairShortage
        Rows of the part are added.
    progress : callable
        Called with the completed fraction, 0 to 1.
    """
    if chosen.method == "own_sample":
        all_rows = np.arange(len(part.rows), dtype=np.int32)
        draw_from_own_samples(part, chosen.size, rule, key, all_rows, progress)
        return
    few, none = draw_from_pairs(part, chosen.size, rule, key, identity, progress)
    shortage.few += few
    shortage.none += none


def draw_from_candidates(
    points: Points,
    chosen: CandidateRows,
    order: OrderKeys,
    rule: NeighbourRule,
    keys: Sequence[Key],
    progress: Progress,
) -> tuple[Donors, PairShortage]:
    """Draw a donor for each row and field from the row's neighbourhood among its candidates.

    Parameters
    ----------
    points : Points
        No row, or 2 or more.
    chosen : CandidateRows
    order : OrderKeys
    rule : NeighbourRule
    keys : sequence of Key
        One for each field.
    progress : Progress
    """
    rows = len(points.numbers)
    shortage = PairShortage()
    if not rows:
        return Donors(np.zeros((len(keys), 0), np.int32), np.zeros(0, np.int32)), shortage
    drawing = DonorDraw(points, rule, keys)
    all_rows = np.arange(rows, dtype=np.int32)
    if chosen.parts:
        shuffled = random_order(rows, order.whole)
        cuts = chosen.cuts(rows)
    else:
        shuffled, cuts = all_rows, [0, rows]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        part = np.sort(shuffled[start:stop])

        def report(share: float, start: int = start, stop: int = stop) -> None:
            progress((start + share * (stop - start)) / rows, "drawing donors")

        key = order.within if chosen.parts else order.whole
        method = chosen.method_for(len(part))
        if method == "exact":
            drawing.draw_by_tree(part, part, report)
            shortage.count_complete(chosen, len(part), rule.k)
        elif method == "sample":
            sample = np.sort(random_order(len(part), key, number)[: chosen.size])
            drawing.draw_by_tree(part, part[sample], report)
        else:
            _draw_part_without_tree(drawing, part, chosen, key, number, shortage, report)
    return drawing.donors, shortage


def _draw_part_without_tree(
    drawing: DonorDraw,
    rows: Int32Array,
    chosen: CandidateRows,
    key: Key,
    number: int,
    shortage: PairShortage,
    progress: Callable[[float], None],
) -> None:
    """Draw donors for the rows of a part without a tree. The whole table is not copied."""
    points, words, sizes = drawing.points, drawing.words, drawing.sizes
    is_whole = len(rows) == len(points.numbers)
    if not is_whole:
        points = Points(points.numbers[rows], points.codes[rows], points.flags, points.weight)
        words, sizes = np.ascontiguousarray(words[:, rows]), np.empty(len(rows), np.int32)
    part = PartRows(points, rows, drawing.keys, words, sizes)
    draw_without_tree(part, chosen, drawing.rule, key, number, shortage, progress)
    if not is_whole:
        drawing.words[:, rows] = rows[words].view(np.uint32)
        drawing.sizes[rows] = sizes
