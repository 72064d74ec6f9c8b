"""Runs the kernels over segments: many at a time, in slices after which Python has control again."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from providers.provider import Progress
from providers.publication import COLLAPSED, KEEP, NOT_ROUNDED, REPAIRED, publish
from providers.radix import Int64Array
from providers.segmented import Part, SegmentedField, grid_of, joined, parts_of, starts_of
from providers.units import FloatArray
from providers.walk import FORWARD, RENEWED, ROUNDED, Segments, extract, find_centres, make_ready, walk

RATES_BYTES = 64 * 2**20
"""Room for the rates of all slacks along all directions; a segment that needs more computes them anew."""
_WORK = 1e8
"""Elementary steps of a slice, for each thread: about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Law:
    """How segments are redrawn, in the kernels' own numbers."""

    ties: int
    sigma: float
    bounds: int
    directions: int
    from_data: bool
    spread: bool
    iterations: int
    """Steps of a walk for each variable, and sweeps of a walk on the grid."""
    total: int
    """Steps of a walk, where not 0."""

    @property
    def whole(self) -> bool:
        """Whether the ends are walked along, as in the paper, and not drawn on their own."""
        return self.directions == FORWARD and self.bounds != KEEP


@dataclass(slots=True)
class Redrawn:
    """What has become of a field, gathered segment by segment."""

    of: SegmentedField
    values: FloatArray
    """The destination's values, in the order of `Numbers.rows`; steps from the least where `of.whole`."""
    found: int = 0
    chosen: int = 0
    rows: int = 0
    holding: int = 0
    broken: int = 0
    repaired: int = 0
    collapsed: int = 0
    not_rounded: int = 0
    without: int = 0
    """Segments without a locality."""
    modes: list[FloatArray] = field(default_factory=list)
    """Of each walk and mode: sweeps, squares and neighbours' products about the mean; shape (walks, 2, 3)."""

    def add(
        self,
        segments: Segments,
        at: int,
        part: Part,
        marks: Int64Array,
        judged: Int64Array,
        origin: Int64Array,
    ) -> None:
        """Take over the segments of a part that stand from `at` on."""
        of, start, stop = part
        here = slice(at, at + stop - start)
        counts = segments.counts[here]
        self.rows += int(counts[:, 1].sum())
        self.found += int(counts[:, 2].sum())
        self.chosen += int(counts[:, 3].sum())
        self.without += int(np.count_nonzero(counts[:, 2] == 0))
        self.holding += int(judged[here, 0].sum())
        self.broken += int(judged[here, 1].sum())
        for name, mark in (("repaired", REPAIRED), ("collapsed", COLLAPSED), ("not_rounded", NOT_ROUNDED)):
            setattr(self, name, getattr(self, name) + int(np.count_nonzero(marks[here] & mark)))
        self.modes.append(_about_the_mean(segments.trace[here]))
        sizes = np.diff(of.records[start : stop + 1])
        records = slice(of.records[start], of.records[stop])
        values = segments.x[np.repeat(segments.variables[here], sizes) + of.run[records]]
        if of.whole:
            values += np.repeat(origin[here], sizes)
        self.values[of.order[records]] = values


def _about_the_mean(trace: FloatArray) -> FloatArray:
    """Sweeps, sum of squares and sum of neighbours' products, both about the mean, of each trace."""
    count, first, last, total, squares, products = np.moveaxis(trace, -1, 0)
    mean = total / np.maximum(count, 1)
    about = squares - mean * total
    neighbours = products - mean * (2 * total - first - last) + (count - 1) * mean * mean
    long = count > 2
    return np.stack([np.where(long, part, 0.0) for part in (count, about, neighbours)], axis=-1)


Kernel = Callable[..., None]
"""Works on a range: ``kernel(start, stop, *arguments)``; holds no lock."""


def _in_threads(pool: Executor, kernel: Kernel, count: int, *arguments: Any) -> None:
    """Run the kernel on ranges of 0 up to `count`, in as many threads as numba has.

    What a range's segments become does not depend on which ranges there are.
    """
    cuts = [count * part // (4 * numba.get_num_threads()) for part in range(4 * numba.get_num_threads() + 1)]
    ranges = [(start, stop) for start, stop in itertools.pairwise(cuts) if start < stop]
    for done in [pool.submit(kernel, start, stop, *arguments) for start, stop in ranges]:
        done.result()


def redraw(fields: Sequence[SegmentedField], law: Law, progress: Progress) -> list[Redrawn]:
    """Redraw every segment of every field."""
    redrawn = {of.name: Redrawn(of, np.zeros(len(of.order))) for of in fields}
    total = sum(int(of.variables.sum()) for of in fields)
    done = 0
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        for parts in parts_of(fields):
            share = sum(int(of.variables[start:stop].sum()) for of, start, stop in parts)

            def told(fraction: float, stage: str, done: int = done, share: int = share) -> None:
                progress((done + fraction * share) / total, stage)

            _redraw_parts(parts, law, redrawn, told, pool)
            done += share
    return list(redrawn.values())


def _redraw_parts(
    parts: list[Part], law: Law, redrawn: dict[str, Redrawn], progress: Progress, pool: Executor
) -> None:
    progress(0.0, "extracting relations")
    segments = joined(parts, law.ties)
    count = len(segments.counts)
    _in_threads(pool, extract, count, segments, law.ties, law.sigma)
    progress(0.05, "finding centres")
    work = float((np.diff(segments.variables) ** 3 / 3.0 + 60.0 * segments.counts[:, 0]).sum())
    steps = max(1, int(_WORK * numba.get_num_threads() / max(work, 1.0)))
    while (segments.counts[:, 6] == 0).any():
        _in_threads(pool, find_centres, count, segments, steps)
        progress(0.1, "finding centres")
    groups = _groups(segments, law)
    for nth, tasks in enumerate(groups):

        def told(fraction: float, stage: str, nth: int = nth) -> None:
            progress(0.15 + 0.75 * (nth + fraction) / len(groups), stage)

        _walk_group(segments, tasks, law, told, pool)
    progress(0.9, "publishing")
    marks, judged = np.zeros(count, np.int64), np.zeros((count, 2), np.int64)
    grid = grid_of(parts, law.iterations)
    _in_threads(
        pool, publish, count, segments, law.ties, law.bounds, law.whole, law.spread,
        grid, marks, judged,
    )  # fmt: skip
    at = 0
    for part in parts:
        redrawn[part[0].name].add(segments, at, part, marks, judged, grid.origin)
        at += part[2] - part[1]


def _shapes(segments: Segments, tasks: npt.NDArray[np.int64]) -> tuple[Int64Array, Int64Array]:
    """Cells of the directions of each segment, and of the slacks' rates along them."""
    n = (segments.variables[1:] - segments.variables[:-1])[tasks]
    directions, written = segments.counts[tasks, 4], segments.counts[tasks, 0]
    walked = (segments.counts[tasks, 6] == 1) & (n > 1)
    return np.where(walked, directions * n, 0), np.where(walked, directions * (written + n - 1), 0)


def _groups(segments: Segments, law: Law) -> list[Int64Array]:
    """The segments in groups that walk together: 1024 steps of a group are a slice of work."""
    n = np.diff(segments.variables)
    slacks = segments.counts[:, 0] + n
    _, rates = _shapes(segments, np.arange(len(n)))
    most_work = _WORK * numba.get_num_threads()
    groups: list[list[int]] = []
    room, work = 0, most_work
    for t in range(len(n)):
        needed = 8 * int(rates[t]) if law.directions == ROUNDED else 0
        needed = 0 if needed > RATES_BYTES else needed
        if work >= most_work or needed > room:
            groups.append([])
            room, work = RATES_BYTES, 0.0
        groups[-1].append(t)
        room -= needed
        work += RENEWED * float(slacks[t] + 60 + (0 if law.directions == ROUNDED else 10 * n[t]))
    return [np.array(group, np.int64) for group in groups]


def _walk_group(segments: Segments, tasks: Int64Array, law: Law, progress: Progress, pool: Executor) -> None:
    progress(0.0, "rounding polytopes")
    cells, rates = _shapes(segments, tasks)
    if law.directions != ROUNDED:
        cells, rates = np.zeros_like(cells), np.zeros_like(rates)
    rates = np.where(8 * rates > RATES_BYTES, 0, rates)
    directions_at, rates_at = starts_of(cells), starts_of(rates)
    directions, all_rates = np.empty(int(directions_at[-1])), np.empty(int(rates_at[-1]))
    _in_threads(
        pool, make_ready, len(tasks), segments, tasks, law.directions, law.whole, law.from_data,
        directions_at, directions, rates_at, all_rates,
    )  # fmt: skip
    longest = law.total or law.iterations * int(
        (segments.variables[1:] - segments.variables[:-1])[tasks].max()
    )
    for step in range(0, longest, RENEWED):
        progress(step / longest, "walking")
        _in_threads(
            pool, walk, len(tasks), segments, tasks, law.directions, law.whole, law.iterations, law.total,
            step, step + RENEWED, directions_at, directions, rates_at, all_rates,
        )  # fmt: skip
