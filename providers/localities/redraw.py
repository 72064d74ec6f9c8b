"""Run the kernels over batches of segments."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.localities.hit_and_run import RENEWED, extract, find_centres, make_ready, walk
from providers.localities.property_publish import publish_with_properties
from providers.localities.property_walk import (
    PropertyPolytopes,
    find_property_centres,
    polytopes_of,
    prepare,
    start_property_walks,
    walk_with_properties,
)
from providers.localities.publish import COLLAPSED, IMPOSSIBLE, NOT_ROUNDED, REPAIRED, UNCHANGED, publish
from providers.localities.relations import UNIFORM
from providers.localities.segment_arrays import (
    CENTRED,
    CHOSEN,
    CONSTRAINTS,
    DIMENSIONS,
    FORWARD,
    FOUND,
    INEQUALITIES,
    KEEP,
    PROPERTIES_TO_CENTRE,
    ROUNDED,
    STATUS,
    TO_CENTRE,
    Segments,
)
from providers.localities.segments import (
    SegmentedField,
    SegmentRange,
    batches_of,
    grid_of,
    property_arrays,
    segment_arrays,
    starts_of,
)
from providers.numba import get_num_threads
from providers.progress import Progress

RATES_BYTES = 64 * 2**20
"""Memory for the rates of all slacks along all directions; a segment that needs more computes them at
every step."""

_WORK = 1e8
"""Elementary steps of a time slice per thread: about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class RedrawSettings:
    """Settings of the redrawing, as the numbers that the kernels take (`segment_arrays`, `relations`)."""

    ties: int
    sigma: float
    bounds: int
    directions: int
    from_data: bool
    spread: bool
    iterations: int
    """Steps of a walk per variable, and sweeps of a walk on the grid."""
    total: int
    """Steps of a walk; 0 if `iterations` gives them."""
    selection: int = UNIFORM
    """Selection of the localities that are kept."""

    @property
    def walks_ends(self) -> bool:
        """Whether the ends are variables of the walk, as in the paper, and not drawn separately."""
        return self.directions == FORWARD and self.bounds != KEEP


@dataclass(slots=True)
class RedrawnField:
    """Published values and figures of a field, collected batch by batch."""

    source: SegmentedField
    values: Float64Array
    """Published values in the order of `Numbers.rows`; steps from the least value if the type is kept."""
    found: int = 0
    """Localities of the source."""
    chosen: int = 0
    """Localities that are kept."""
    constraints: int = 0
    """Localities left as constraints after pruning."""
    holding: int = 0
    """Found localities that hold for the published values."""
    broken: int = 0
    """Chosen localities, and orders of neighbours, that do not hold for the published values."""
    repaired: int = 0
    """Segments pulled towards their centre."""
    collapsed: int = 0
    """Segments whose values became one value."""
    not_rounded: int = 0
    """Segments that are not on the grid."""
    unchanged: int = 0
    """Segments published with the source's values, since their properties allow no others."""
    impossible: int = 0
    """Segments for which no values were found."""
    kept: Counter[int] = field(default_factory=Counter)
    """Number of the user's relation -> segments to which it applies."""
    broken_properties: Counter[int] = field(default_factory=Counter)
    """Number of the user's relation -> segments whose published values break it."""
    without: int = 0
    """Segments without a locality."""
    modes: list[Float64Array] = field(default_factory=list)
    """Per walk and mode: sweeps, squares and neighbours' products about the mean; shape (walks, 2, 3)."""

    def add(
        self,
        segments: Segments,
        first: int,
        part: SegmentRange,
        marks: Int64Array,
        judged: Int64Array,
        origin: Int64Array,
    ) -> None:
        """Add the published values and figures of a range of segments.

        Parameters
        ----------
        segments : Segments
            Batch that contains the range.
        first : int
            Index of the range's first segment in the batch.
        part : SegmentRange
            The range in the field.
        marks, judged, origin : ndarray of int64
            As written by `publish`; `Grid.origin`.
        """
        source, start, stop = part
        its_segments = slice(first, first + stop - start)
        counts = segments.counts[its_segments]
        self.constraints += int(counts[:, CONSTRAINTS].sum())
        self.found += int(counts[:, FOUND].sum())
        self.chosen += int(counts[:, CHOSEN].sum())
        self.without += int(np.count_nonzero(counts[:, FOUND] == 0))
        self.holding += int(judged[its_segments, 0].sum())
        self.broken += int(judged[its_segments, 1].sum())
        for name, mark in _MARKS.items():
            setattr(self, name, getattr(self, name) + int(np.count_nonzero(marks[its_segments] & mark)))
        self.modes.append(_about_the_mean(segments.trace[its_segments]))
        sizes = np.diff(source.record_starts[start : stop + 1])
        records = slice(source.record_starts[start], source.record_starts[stop])
        variables = np.repeat(segments.variable_starts[its_segments], sizes)
        values = segments.x[variables + source.record_variables[records]]
        if source.keeps_type:
            values += np.repeat(origin[its_segments], sizes)
        self.values[source.order[records]] = values


_MARKS = {
    "repaired": REPAIRED,
    "collapsed": COLLAPSED,
    "not_rounded": NOT_ROUNDED,
    "unchanged": UNCHANGED,
    "impossible": IMPOSSIBLE,
}
"""Counts of `RedrawnField` -> marks that they count."""


def _about_the_mean(trace: Float64Array) -> Float64Array:
    """Return sweeps, and sums of squares and of neighbours' products about the mean, of each trace."""
    count, first, last, total, squares, products = np.moveaxis(trace, -1, 0)
    mean = total / np.maximum(count, 1)
    about = squares - mean * total
    neighbours = products - mean * (2 * total - first - last) + (count - 1) * mean * mean
    long = count > 2
    return np.stack([np.where(long, figure, 0.0) for figure in (count, about, neighbours)], axis=-1)


Kernel = Callable[..., None]
"""Kernel that works on a range, ``kernel(start, stop, *arguments)``, and releases the GIL."""


class Batch:
    """Segments that are redrawn together, and the steps of the method on them.

    Parameters
    ----------
    ranges : list of SegmentRange
        Segments of the batch.
    settings : RedrawSettings
        Settings of the redrawing.
    progress : Progress
        Called with the share of the batch that is done.
    pool : Executor
        Threads that run the kernels.
    """

    def __init__(
        self, ranges: list[SegmentRange], settings: RedrawSettings, progress: Progress, pool: Executor
    ) -> None:
        self.ranges = ranges
        self.settings = settings
        self.segments = segment_arrays(ranges, settings.ties)
        self.properties = property_arrays(ranges)
        self.related: Int64Array = np.zeros(0, np.int64)
        """Indices of the segments that have properties of interest."""
        self._polytopes: PropertyPolytopes | None = None
        self._progress = progress
        self._pool = pool

    def extract_localities(self) -> None:
        """Extract the localities of every segment, select a share of them, and prune implied ones."""
        self._progress(0.0, "extracting relations")
        settings = self.settings
        self._run(extract, len(self.segments.counts), settings.ties, settings.sigma, settings.selection)

    def add_relations(self) -> None:
        """Write the user's own relations as inequalities of the segments to which they apply."""
        if self.properties is None:
            return
        rounded = self.settings.directions == ROUNDED
        self._polytopes = polytopes_of(self.properties, self.segments, rounded, self._keep)
        self.related = np.flatnonzero(np.diff(self.properties.starts))
        self._run_related(prepare, self._keep)

    def find_centres(self) -> None:
        """Find the analytic centre of every segment's polytope, in time slices."""
        self._progress(0.05, "finding centres")
        counts, n = self.segments.counts, np.diff(self.segments.variable_starts)
        work = float((n**3 / 3.0 + 60.0 * counts[:, INEQUALITIES]).sum())
        steps = max(1, int(_slice_work() / max(work, 1.0)))
        while (counts[:, STATUS] == TO_CENTRE).any():
            self._run(find_centres, len(counts), steps)
            self._progress(0.1, "finding centres")
        if not len(self.related):
            return
        n = n[self.related]
        work = float((n**3 / 3.0 + n**2 * self._property_counts() + 60.0 * self._related_slacks()).sum())
        steps = max(1, int(_slice_work() / work))
        while (counts[self.related, STATUS] == PROPERTIES_TO_CENTRE).any():
            self._run_related(find_property_centres, self._keep, steps)
            self._progress(0.1, "finding centres")

    def walk(self) -> None:
        """Walk through every segment's polytope, in time slices."""
        groups = _walk_groups(self.segments, self.settings)
        walks = len(groups) + (len(self.related) > 0)
        for number, tasks in enumerate(groups):
            self._walk_group(tasks, number, walks)
        if len(self.related):
            self._walk_related(walks - 1, walks)

    def publish(self) -> None:
        """Round the points of the walks to publishable values, and verify every relation."""
        self._progress(0.9, "publishing")
        settings, count = self.settings, len(self.segments.counts)
        self.marks, self.judged = np.zeros(count, np.int64), np.zeros((count, 2), np.int64)
        self.grid = grid_of(self.ranges, settings.iterations)
        self._run(
            publish, count, settings.ties, settings.selection, settings.bounds, settings.walks_ends,
            settings.spread, self.grid, self.marks, self.judged,
        )  # fmt: skip
        self.broken = np.zeros(0 if self.properties is None else len(self.properties.relation), np.bool_)
        self._run_related(
            publish_with_properties, settings.ties, settings.selection, settings.bounds, settings.spread,
            self.grid, self.marks, self.judged, self.broken,
        )  # fmt: skip

    def add_to(self, redrawn: dict[str, RedrawnField]) -> None:
        """Add the published values and figures to those of the fields."""
        first = 0
        for part in self.ranges:
            of_field = redrawn[part[0].name]
            of_field.add(self.segments, first, part, self.marks, self.judged, self.grid.origin)
            stop = first + part[2] - part[1]
            if self.properties is not None:
                its = slice(int(self.properties.starts[first]), int(self.properties.starts[stop]))
                relation = self.properties.relation[its]
                of_field.kept.update(relation.tolist())
                of_field.broken_properties.update(relation[self.broken[its]].tolist())
            first = stop

    # -------------------------------------------------------------------------------- running kernels

    @property
    def _keep(self) -> bool:
        return self.settings.bounds == KEEP

    def _run(self, kernel: Kernel, count: int, *arguments: Any) -> None:
        """Run the kernel on ranges of the segments, or of `count` tasks, in as many threads as numba has.

        The result of a segment does not depend on the ranges.
        """
        threads = get_num_threads()
        if threads == 1:  # handing a range over to a thread takes longer than many a range
            if count:
                kernel(0, count, self.segments, *arguments)
            return
        # four ranges per thread, so that threads with easy segments take more of them
        shares = 4 * threads
        cuts = [count * share // shares for share in range(shares + 1)]
        ranges = [(start, stop) for start, stop in itertools.pairwise(cuts) if start < stop]
        submit = self._pool.submit
        for done in [submit(kernel, start, stop, self.segments, *arguments) for start, stop in ranges]:
            done.result()

    def _run_related(self, kernel: Kernel, *arguments: Any) -> None:
        """Run the kernel on the segments that have properties of interest."""
        if len(self.related):
            self._run(kernel, len(self.related), self.related, self._polytopes, *arguments)

    def _property_counts(self) -> Int64Array:
        """Return the number of properties of each related segment."""
        assert self.properties is not None  # noqa: S101 - there are related segments
        return np.asarray(np.diff(self.properties.starts)[self.related])

    def _related_slacks(self) -> Int64Array:
        """Return about the number of slacks of each related segment, a property counting as n."""
        n = np.diff(self.segments.variable_starts)[self.related]
        return np.asarray(
            self.segments.counts[self.related, INEQUALITIES] + n * (1 + self._property_counts())
        )

    def _walk_group(self, tasks: Int64Array, number: int, walks: int) -> None:
        """Round the polytopes of the tasks, and walk; the group is `number` of `walks`."""
        settings = self.settings
        self._walk_progress(0.0, number, walks, "rounding polytopes")
        cells, rates = _walk_cells(self.segments, tasks)
        if settings.directions != ROUNDED:
            cells, rates = np.zeros_like(cells), np.zeros_like(rates)
        rates = np.where(8 * rates > RATES_BYTES, 0, rates)
        direction_starts, rate_starts = starts_of(cells), starts_of(rates)
        directions, all_rates = np.empty(int(direction_starts[-1])), np.empty(int(rate_starts[-1]))
        self._run(
            make_ready, len(tasks), tasks, settings.directions, settings.walks_ends, settings.from_data,
            direction_starts, directions, rate_starts, all_rates,
        )  # fmt: skip
        longest = settings.total or settings.iterations * int(
            np.diff(self.segments.variable_starts)[tasks].max()
        )
        for step in range(0, longest, RENEWED):
            self._walk_progress(step / longest, number, walks, "walking")
            self._run(
                walk, len(tasks), tasks, settings.directions, settings.walks_ends, settings.iterations,
                settings.total, step, step + RENEWED, direction_starts, directions, rate_starts, all_rates,
            )  # fmt: skip

    def _walk_related(self, number: int, walks: int) -> None:
        """Round the polytopes of the segments with properties of interest, and walk."""
        settings = self.settings
        self._walk_progress(0.0, number, walks, "rounding polytopes")
        self._run_related(start_property_walks, self._keep, settings.directions, settings.from_data)
        n = np.diff(self.segments.variable_starts)[self.related]
        longest = settings.total or settings.iterations * int(n.max())
        step_work = self._related_slacks() + 60 + (0 if settings.directions == ROUNDED else 10 * n)
        stride = RENEWED * max(1, int(_slice_work() / (RENEWED * float(step_work.sum()))))
        for step in range(0, longest, stride):
            self._walk_progress(step / longest, number, walks, "walking")
            self._run_related(
                walk_with_properties, self._keep, settings.directions, settings.iterations, settings.total,
                step, step + stride,
            )  # fmt: skip

    def _walk_progress(self, fraction: float, number: int, walks: int, stage: str) -> None:
        self._progress(0.15 + 0.75 * (number + fraction) / walks, stage)


def redraw(
    fields: Sequence[SegmentedField],
    settings: RedrawSettings,
    anonymise: Callable[[Batch], None],
    progress: Progress,
) -> list[RedrawnField]:
    """Redraw every segment of every field.

    Parameters
    ----------
    fields : sequence of SegmentedField
        Fields, cut into segments.
    settings : RedrawSettings
        Settings of the redrawing.
    anonymise : callable
        Runs the steps of the method on a batch of segments.
    progress : Progress
        Called with the share of all variables that is done.
    """
    redrawn = {source.name: RedrawnField(source, np.zeros(len(source.order))) for source in fields}
    total = sum(int(source.variables.sum()) for source in fields)
    done = 0
    with ThreadPoolExecutor(get_num_threads()) as pool:
        for ranges in batches_of(fields):
            share = sum(int(source.variables[start:stop].sum()) for source, start, stop in ranges)

            def batch_progress(fraction: float, stage: str, done: int = done, share: int = share) -> None:
                progress((done + fraction * share) / total, stage)

            batch = Batch(ranges, settings, batch_progress, pool)
            anonymise(batch)
            batch.add_to(redrawn)
            done += share
    return list(redrawn.values())


def _slice_work() -> float:
    """Return the elementary steps of a time slice of all threads."""
    return float(_WORK * get_num_threads())


def _walk_cells(segments: Segments, tasks: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the cells that each task's directions take, and those of the slacks' rates along them."""
    n = np.diff(segments.variable_starts)[tasks]
    dimensions, constraints = segments.counts[tasks, DIMENSIONS], segments.counts[tasks, INEQUALITIES]
    is_walked = (segments.counts[tasks, STATUS] == CENTRED) & (n > 1)
    rates = np.where(is_walked, dimensions * (constraints + n - 1), 0)
    return np.where(is_walked, dimensions * n, 0), rates


def _walk_groups(segments: Segments, settings: RedrawSettings) -> list[Int64Array]:
    """Divide the segments into groups that walk together: 1024 steps of a group are a time slice."""
    n = np.diff(segments.variable_starts)
    slacks = segments.counts[:, INEQUALITIES] + n
    _, rates = _walk_cells(segments, np.arange(len(n)))
    most_work = _slice_work()
    groups: list[list[int]] = []
    left, work = 0, most_work
    for t in range(len(n)):
        needed = 8 * int(rates[t]) if settings.directions == ROUNDED else 0
        needed = 0 if needed > RATES_BYTES else needed
        if work >= most_work or needed > left:
            groups.append([])
            left, work = RATES_BYTES, 0.0
        groups[-1].append(t)
        left -= needed
        work += RENEWED * float(slacks[t] + 60 + (0 if settings.directions == ROUNDED else 10 * n[t]))
    return [np.array(group, np.int64) for group in groups]
