"""Among which rows neighbours are looked for out of core: all, a random sample, or those of a random part."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.donors import Rule
from providers.external.donors import Drawn, Search
from providers.external.encoding import MARK, ROW, Encoding, Layout
from providers.external.exchanging import Ranges
from providers.external.parts import scatter
from providers.external.shuffling import Shuffle
from providers.external.trees import StoredTree, cell_rows, stored_tree
from providers.provider import Progress, no_progress, part_of
from providers.radix import Int64Array
from providers.rng import Key
from providers.storage import Room, Spool
from providers.table import take_rows


@dataclass(frozen=True)
class Sample:
    """The first so many rows of a random order give to all."""

    size: int


@dataclass(frozen=True)
class Partition:
    """A random order cut into so many parts, whose rows give to each other."""

    parts: int


def outside_donors(
    encoding: Encoding, layout: Layout, among: Sample | Partition | None, order: Key, rule: Rule,
    keys: Sequence[Key], room: Room, progress: Progress,
) -> Iterator[Drawn]:  # fmt: skip
    """A donor of each row in each field, in no order of the rows; the same as `donors.draw_donors` draws.

    Parameters
    ----------
    encoding : Encoding
        Of one row or more, which have been looked at.
    layout : Layout
    among : Sample or Partition, optional
        None: all rows are candidates.
    order : Key
        Of the random order.
    rule : Rule
    keys : sequence of Key
        One a field.
    room : Room
    progress : Progress

    Raises
    ------
    SourceError
        k is too large for the memory.
    """
    rows, memory, scratch = encoding.source.rows, room.memory_bytes, room.scratch

    def tree(points: Spool, count: int, told: Progress) -> StoredTree:
        return stored_tree(layout, count, points, scratch, memory, told)

    def search(tree: StoredTree, queries: StoredTree, told: Callable[[int], None]) -> Iterator[Drawn]:
        return Search(tree, queries, rule, keys, memory).drawn(told)

    told = _Done(rows, part_of(progress, 0.4, 1.0))
    if among is None:
        everyone = scratch.spool(1, memory // _OF_MEMORY)
        for table in encoding.pieces(layout):
            everyone.add(0, table)
        grown = tree(everyone, rows, part_of(progress, 0.1, 0.4))
        yield from search(grown, grown, told)
        return
    of_row = _in_random_order(encoding, among, order, room)
    if isinstance(among, Sample):
        everyone, sample = (scratch.spool(1, memory // _OF_MEMORY) for _ in range(2))
        for number, table in enumerate(encoding.pieces(layout)):
            marks = of_row(number) == 0
            everyone.add(0, table.append_column(MARK, pa.array(marks)))
            sample.add(0, take_rows(table, np.flatnonzero(marks)))
        candidates = tree(sample, among.size, part_of(progress, 0.1, 0.2))
        yield from search(candidates, tree(everyone, rows, part_of(progress, 0.2, 0.4)), told)
        return
    together = max(1, cell_rows(layout, memory) // (rows // among.parts + 1))
    batches = scratch.spool(-(-among.parts // together), memory // 10)
    for number, table in enumerate(encoding.pieces(layout)):
        parts = of_row(number)
        scatter(batches, parts // together, table.append_column(_PART, pa.array(parts)))
    for batch in range(batches.parts):
        for points, count in _apart(batches, batch, together, room):
            grown = tree(points, count, no_progress)
            yield from search(grown, grown, told)


_PART = "part"
_OF_MEMORY = 40
"""What waits to be written as one record takes this part of the memory: three copies are made of it."""


class _Done:
    """Tells how many of the rows have their donors."""

    def __init__(self, rows: int, progress: Progress) -> None:
        self._rows = rows
        self._progress = progress
        self._done = 0

    def __call__(self, more: int) -> None:
        self._done += more
        self._progress(self._done / self._rows, "drawing donors")


def _in_random_order(
    encoding: Encoding, among: Sample | Partition, order: Key, room: Room
) -> Callable[[int], Int64Array]:
    """For each range of the encoding's the part of each row; of a sample 0, and 1 of the others."""
    source, sizes = encoding.source, encoding.sizes()
    rows = source.rows
    if isinstance(among, Sample):
        cuts = np.array([0, among.size, rows], np.int64)
    else:
        cuts = np.array([rows * part // among.parts for part in range(among.parts + 1)], np.int64)
    schema = pa.schema([(ROW, pa.int64())])
    shuffle = Shuffle(schema, rows, order, max(64, room.memory_bytes // 200))
    spool = room.scratch.spool(shuffle.parts, sizes.waiting)
    for first in range(0, rows, sizes.range_rows):
        numbers = np.arange(first, min(first + sizes.range_rows, rows), dtype=np.int64)
        shuffle.put(spool, first, pa.table({ROW: numbers}))
    aside = room.scratch.spool(Ranges.parts(rows, sizes.range_rows, 1), sizes.waiting)
    ranges = Ranges([aside], rows, sizes.range_rows, 1)
    place = 0
    for piece in shuffle.pieces(spool):
        numbers = piece.column(ROW).to_numpy()
        parts = np.searchsorted(cuts, np.arange(place, place + len(numbers)), side="right") - 1
        place += len(numbers)
        ranges.put(0, numbers, [pa.chunked_array([pa.array(parts)])], np.zeros(len(numbers), np.uint8))

    def of_range(number: int) -> Int64Array:
        (parts,), _ = ranges.get(0, number)
        return np.asarray(parts.to_numpy())

    return of_range


def _apart(batches: Spool, batch: int, together: int, room: Room) -> Iterator[tuple[Spool, int]]:
    """The points of each part of a batch, and how many they are."""
    if together == 1:
        points = room.scratch.spool(1, room.memory_bytes // _OF_MEMORY)
        for table in batches.read(batch):
            points.add(0, table.drop_columns([_PART]))
        batches.clear(batch)
        yield points, points.rows(0)
        return
    table = pa.concat_tables(batches.read(batch))
    batches.clear(batch)
    parts = table.column(_PART).to_numpy()
    order = np.argsort(parts, kind="stable")
    table = take_rows(table.drop_columns([_PART]), order)
    starts = [0, *(np.flatnonzero(np.diff(parts[order])) + 1).tolist(), table.num_rows]
    for start, stop in itertools.pairwise(starts):
        points = room.scratch.spool(1, room.memory_bytes // _OF_MEMORY)
        points.add(0, table.slice(start, stop - start))
        yield points, stop - start
