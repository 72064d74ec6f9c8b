"""Divide RWN into units for several workers: ranges of the tree's leaves, or of the parts of a partition.

One worker encodes all rows and cuts their points at the upper nodes of the k-d trees; each piece of the
preparation builds the cells below some of these nodes. With a partition, the worker stores the points of each
part instead. A unit draws the donors of its own rows, and fetches their values from the source.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from providers.neighbours.kdtree import depth_of
from providers.neighbours.out_of_core.candidates import StoredParts, StoredTrees
from providers.neighbours.out_of_core.kdtree import CellBoxes, StoredTree, TreeBuilder
from providers.neighbours.out_of_core.points import Layout
from providers.neighbours.out_of_core.release import NeighbourRun
from providers.neighbours.release import NeighbourhoodCounts, ReleaseTally
from providers.out_of_core.partitions import Span
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, Prepared, Run, Sharing, StreamedSection, UnitResult
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Scratch, Spool

_NODES_OF_A_PIECE = 4
"""Least number of nodes of a piece if their number is not that of the pieces, so that pieces are about equal.
"""


@dataclass(frozen=True, slots=True)
class _Stored:
    """Data of the whole table, next to the spools with its points."""

    layout: Layout
    level: int
    """Level of the nodes that the pieces share out; of a smaller tree its last one."""
    nodes: tuple[tuple[tuple[int, ...], ...], ...]
    """Parts of its spool with the points of each node, for each tree."""
    batches: tuple[tuple[int, int], ...]
    """Batches of a partition, as in `StoredParts`; empty: there is none."""
    varying: frozenset[str]
    """Category fields that hold two different values."""


def sharing_of_neighbours() -> Sharing[Any]:
    """Divide a table by ranges of leaves of its k-d tree, or by ranges of the parts of its partition."""
    return Sharing(_divide, _work, _assemble, _finish, prepare=_prepare, complete=_complete)


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
    batches: tuple[tuple[int, int], ...] = ()
    spools: tuple[Spool, ...] = ()
    nodes: tuple[tuple[tuple[int, ...], ...], ...] = ()
    level = pieces = 0
    if run.source.rows and run.params.candidates.parts:
        progress(0.3, "dividing the rows at random")
        stored = neighbours.search.store_parts(encoding, layout, division.units, kept)
        batches, spools = stored.batches, (stored.spool,)
    elif run.source.rows:
        points = neighbours.search.store_points(encoding, layout)
        builders = _builders(run, layout)
        level = min(_level_for(len(division.units)), builders[-1].level)
        pieces = min(len(division.units), 1 << level)
        for number, (builder, spool) in enumerate(zip(builders, points, strict=True)):
            first, stop = (0.4 + 0.6 * each / len(builders) for each in (number, number + 1))
            growing = sub_progress(progress, first, stop)
            parts, cut_points = builder.cut_apart(spool, min(level, builder.level), kept, growing)
            nodes, spools = (*nodes, parts), (*spools, cut_points)
    varying = frozenset(name for name in run.params.distance_fields if encoding.varies(name))
    return Prepared(_Stored(layout, level, nodes, batches, varying), spools, pieces)


def _level_for(units: int) -> int:
    """Return the level whose nodes are shared out evenly among the pieces of some units."""
    level = (units - 1).bit_length()
    return level if units == 1 << level else (_NODES_OF_A_PIECE * units - 1).bit_length()


def _complete(run: Run[Any], division: Division, number: int, kept: Scratch) -> Prepared:
    stored, spools, pieces = _stored(run)
    grown: list[CellBoxes] = []
    cells: list[Spool] = []
    for builder, points, parts in zip(_builders(run, stored.layout), spools, stored.nodes, strict=True):
        first, stop = (len(parts) * each // pieces for each in (number, number + 1))
        nodes = [builder.node(points, each) for each in parts[first:stop]]
        level = min(stored.level, builder.level)
        nodes = builder.cut(nodes, first, (level, builder.level), no_progress)
        cells.append(builder.cells(kept))
        grown.append(builder.grow(nodes, first << builder.level - level, cells[-1], no_progress))
    return Prepared(tuple(grown), tuple(cells))


def _work(run: Run[Any], division: Division, number: int, spool: Spool) -> NeighbourhoodCounts:
    neighbours = _run(run)
    if run.source.rows:
        stored, spools, _ = _stored(run)
        share: tuple[int, int] = division.units[number]
        if stored.batches:
            parts = StoredParts(spools[0], stored.batches)
            found = neighbours.search.draw_in_parts(parts, stored.layout, share, _no_report)
        else:
            trees = _trees(run, stored.layout)
            found = neighbours.search.draw_from_trees(StoredTrees(trees[0], trees[-1]), _no_report, share)
        neighbours.fetch(neighbours.values([spool]), found, no_progress)
    return neighbours.counts


def _builders(run: Run[Any], layout: Layout) -> list[TreeBuilder]:
    """Return the builders of the trees of the candidates and of the queries, or of one that is both."""
    sizes = _run(run).search.tree_sizes(run.source.rows)
    return [TreeBuilder(layout, size, run.resources) for size in sizes]


def _trees(run: Run[Any], layout: Layout) -> list[StoredTree]:
    """Return the trees of `_builders` from the results of all pieces."""
    assert run.prepared is not None  # noqa: S101 - `_prepare` has run
    completed = run.prepared.completed
    return [
        builder.joined(
            [piece.data[index] for piece in completed],
            Span([piece.spools[index] for piece in completed], 0, 1 << builder.level),
        )
        for index, builder in enumerate(_builders(run, layout))
    ]


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
    stored, _, _ = _stored(run)
    counts = NeighbourhoodCounts()
    for unit in units:
        counts.add(unit)
    return _run(run).finished(counts, sections, stored.varying.__contains__)


def _run(run: Run[Any]) -> NeighbourRun:
    return NeighbourRun(run.source, run.params, run.stream, run.resources)


def _stored(run: Run[Any]) -> tuple[_Stored, tuple[Spool, ...], int]:
    """Return the data, the spools and the number of pieces of the preparation."""
    assert run.prepared is not None  # noqa: S101 - `_prepare` has run
    return run.prepared.data, run.prepared.spools, run.prepared.pieces


def _no_report(rows: int) -> None:
    """Ignore the rows that have donors: units report no progress of their own."""
