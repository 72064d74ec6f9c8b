"""Divide RWN into units for several workers: ranges of the tree's leaves, or of the parts of a partition.

One worker encodes all rows and stores the k-d trees, or the points of each part. A unit draws the donors of
its own rows, and fetches their values from the source.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from providers.neighbours.kdtree import depth_of
from providers.neighbours.out_of_core.candidates import StoredParts, StoredTrees
from providers.neighbours.out_of_core.kdtree import TreeOutline
from providers.neighbours.out_of_core.points import Layout
from providers.neighbours.out_of_core.release import NeighbourRun
from providers.neighbours.release import NeighbourhoodCounts, ReleaseTally
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, Prepared, Run, Sharing, StreamedSection, UnitResult
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Scratch, Spool


@dataclass(frozen=True, slots=True)
class _Stored:
    """Data of the whole table, next to the spools with its points."""

    layout: Layout
    outlines: tuple[TreeOutline, ...]
    """Trees of the candidates and of the queries, or one that is both; empty with a partition."""
    batches: tuple[tuple[int, int], ...]
    """Batches of a partition, as in `StoredParts`."""
    varying: frozenset[str]
    """Category fields that hold two different values."""


def sharing_of_neighbours() -> Sharing[Any]:
    """Divide a table by ranges of leaves of its k-d tree, or by ranges of the parts of its partition."""
    return Sharing(_divide, _work, _assemble, _finish, prepare=_prepare)


def _divide(run: Run[Any], progress: Progress, wanted: int) -> Division:
    neighbours = _run(run)
    rows, parts = run.source.rows, run.params.candidates.parts
    pieces = parts or (1 << depth_of(rows) if rows else 1)
    count = min(wanted, pieces)
    cuts = [pieces * number // count for number in range(count + 1)]
    values = neighbours.values()
    return Division(tuple(itertools.pairwise(cuts)), values.parts, starts=values.starts)


def _prepare(run: Run[Any], progress: Progress, division: Division, kept: Scratch) -> Prepared:
    neighbours = _run(run)
    encoding = neighbours.encoding()
    layout = encoding.fit(sub_progress(progress, 0.0, 0.3))
    outlines: tuple[TreeOutline, ...] = ()
    batches: tuple[tuple[int, int], ...] = ()
    spools: tuple[Spool, ...] = ()
    if run.source.rows and run.params.candidates.parts:
        progress(0.3, "dividing the rows at random")
        stored = neighbours.search.store_parts(encoding, layout, division.units, kept)
        batches, spools = stored.batches, (stored.spool,)
    elif run.source.rows:
        trees = neighbours.search.store_trees(encoding, layout, kept, sub_progress(progress, 0.3, 1.0))
        different = [trees.candidates]
        if trees.queries is not trees.candidates:
            different.append(trees.queries)
        outlines, spools = (
            tuple(tree.outline() for tree in different),
            tuple(tree.spool for tree in different),
        )
    varying = frozenset(name for name in run.params.distance_fields if encoding.varies(name))
    return Prepared(_Stored(layout, outlines, batches, varying), spools)


def _work(run: Run[Any], division: Division, number: int, spool: Spool) -> NeighbourhoodCounts:
    neighbours = _run(run)
    if run.source.rows:
        stored, spools = _stored(run)
        share: tuple[int, int] = division.units[number]
        if stored.outlines:
            trees = [
                outline.tree(points, run.resources.memory_bytes)
                for outline, points in zip(stored.outlines, spools, strict=True)
            ]
            found = neighbours.search.draw_from_trees(StoredTrees(trees[0], trees[-1]), _no_report, share)
        else:
            parts = StoredParts(spools[0], stored.batches)
            found = neighbours.search.draw_in_parts(parts, stored.layout, share, _no_report)
        neighbours.fetch(neighbours.values([spool]), found, no_progress)
    return neighbours.counts


def _assemble(
    run: Run[Any], division: Division, done: Sequence[UnitResult], section: Section
) -> StreamedSection:
    neighbours = _run(run)
    return neighbours.section(neighbours.values([unit.rows for unit in done]), section)


def _finish(
    run: Run[Any],
    division: Division,
    units: Sequence[NeighbourhoodCounts],
    sections: Sequence[ReleaseTally],
) -> SwapResult:
    stored, _ = _stored(run)
    counts = NeighbourhoodCounts()
    for unit in units:
        counts.add(unit)
    return _run(run).finished(counts, sections, stored.varying.__contains__)


def _run(run: Run[Any]) -> NeighbourRun:
    return NeighbourRun(run.source, run.params, run.stream, run.resources)


def _stored(run: Run[Any]) -> tuple[_Stored, tuple[Spool, ...]]:
    assert run.prepared is not None  # noqa: S101 - `_prepare` has run
    return run.prepared.data, run.prepared.spools


def _no_report(rows: int) -> None:
    """Ignore the rows that have donors: units report no progress of their own."""
