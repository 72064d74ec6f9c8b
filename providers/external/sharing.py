"""DSWAP, CDSWAP and DDSWAP cut into units for several workers.

Every unit reads the source and picks its own rows: those between two rows of the table in the order of the
labels, or, of a table that is one group, those of a stretch of its random buckets. Nothing has to be
handed from one unit to another. What comes out is put aside by the range of rows it belongs to, and
put together as in a run by one worker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from providers.external.exchanging import Tally
from providers.external.large import Share
from providers.external.parts import Rows
from providers.external.sorting import Labels, Splitters, label_keys, splitting_rows
from providers.external.swaps import Grouping, SwapRun, Watcher
from providers.kernels import ONE_BUCKET
from providers.ordering import packed
from providers.params import SwapParams
from providers.provider import Division, Progress, Run, Sharing, Streamed, UnitDone, no_progress
from providers.radix import radix_order
from providers.storage import Spool
from providers.table import take_rows

P = TypeVar("P", bound=SwapParams)


# ------------------------------------------------------------------------------------- one large group


def sharing_of_everything() -> Sharing[Any]:
    """How a table that is one group is shared: by fields that move on their own, and stretches of buckets."""
    return Sharing(_divide_everything, _work_on_everything, _gather_everything)


def _divide_everything(run: Run[P], progress: Progress, wanted: int) -> Division:
    swap = _swap_run(run, ())
    of = -(-wanted // len(swap.moves)) if run.source.rows > ONE_BUCKET else 1
    moves = len(swap.moves) if run.source.rows > ONE_BUCKET else 1
    shares = tuple(Share(which, nth, of) for which in range(moves) for nth in range(of))
    return Division(shares, swap.parts)


def _work_on_everything(run: Run[P], division: Division, number: int, spool: Spool) -> Tally:
    swap = _swap_run(run, ())
    exchanging = swap.exchanging(spool)
    if run.source.rows:
        swap.exchange_everything(exchanging, no_progress, division.units[number])
    return exchanging.tally


def _gather_everything(
    run: Run[P], progress: Progress, division: Division, done: Sequence[UnitDone]
) -> Streamed:
    tally = Tally()
    for unit in done:
        tally.add(unit.figures)
    tally.unswappable_groups = min(tally.unswappable_groups, 1)  # one group, in whichever of its exchanges
    return _swap_run(run, ()).assembled([unit.rows for unit in done], tally, None)


# ------------------------------------------------------------------------------------------ many groups


@dataclass(frozen=True)
class Groupings(Generic[P]):
    """What tells the services with many groups apart."""

    grouping: Callable[[P, pa.Schema, int, int], Grouping]
    """(params, schema, rows of the table, rank of the first row) -> the groups of the rows from there on."""
    watcher: Callable[[P, pa.Schema], Watcher]
    group_rows: Callable[[P], int]
    """Rows of each group in the order of the labels; 0 where rows of one label are a group."""


def sharing_of_groups(of: Groupings[P]) -> Sharing[P]:
    """How a table of many groups is shared: each unit is whole groups, side by side in the labels' order."""

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        grouping = of.grouping(run.params, run.source.schema, run.source.rows, 0)
        swap = _swap_run(run, grouping.controls)
        rows = Rows.of_source(run.source, swap.row)
        progress(0.0, "looking for places to cut")
        group_rows = of.group_rows(run.params)
        if run.source.rows <= wanted:
            cuts = _Cuts(None, (0,))
        else:
            sample = splitting_rows(rows, grouping.controls, grouping.labels, wanted)
            cuts = _Cuts(sample, (0,) * wanted)
            if group_rows:
                splitters = Splitters(sample, grouping.labels, swap.row)
                cuts = _at_blocks(rows, grouping.controls, splitters, swap.row, group_rows)
        return Division(cuts.ranks, swap.parts, cuts.rows)

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> tuple[Tally, Watcher]:
        rank = division.units[number]
        grouping = of.grouping(run.params, run.source.schema, run.source.rows, rank)
        swap = _swap_run(run, grouping.controls)
        exchanging, watcher = swap.exchanging(spool), of.watcher(run.params, run.source.schema)
        rows = Rows.of_source(run.source, swap.row)
        if division.common is not None:
            row = swap.row if of.group_rows(run.params) else None
            own = run.room.scratch.spool(1, swap.sizes.waiting)
            splitters = Splitters(division.common, grouping.labels, row)
            columns = [*grouping.controls, *([] if row is None else [row])]
            for table in rows.read(swap.fields):
                mine = np.flatnonzero(splitters.parts_of(table.select(columns)) == number)
                own.add(0, take_rows(table, mine))
            rows = Rows.of_spool(own, swap.row)
        if rows.count:
            swap.exchange_groups(rows, grouping, exchanging, no_progress, watcher)
        return exchanging.tally, watcher

    def gather(run: Run[P], progress: Progress, division: Division, done: Sequence[UnitDone]) -> Streamed:
        grouping = of.grouping(run.params, run.source.schema, run.source.rows, 0)
        tally, watcher = Tally(), of.watcher(run.params, run.source.schema)
        for unit in done:
            of_unit, seen = unit.figures
            tally.add(of_unit)
            watcher.include(seen)
        swap = _swap_run(run, grouping.controls)
        return swap.assembled([unit.rows for unit in done], tally, watcher)

    return Sharing(divide, work, gather)


@dataclass(frozen=True)
class _Cuts:
    """Where units begin."""

    rows: pa.Table | None
    """The first row of each but the first unit, in order; None where there is one unit alone."""
    ranks: tuple[int, ...]
    """The rank of each unit's first row, where groups are counted by ranks."""


def _at_blocks(rows: Rows, controls: Sequence[str], splitters: Splitters, row: str, group_rows: int) -> _Cuts:
    """The splitters moved up to where groups of so many rows each begin, those that cannot be left out."""
    count = splitters.rows.num_rows
    held = [splitters.rows.slice(0, 0) for _ in range(count)]
    sizes = np.zeros(count + 1, np.int64)
    for table in rows.read(controls):
        parts = splitters.parts_of(table)
        sizes += np.bincount(parts, minlength=count + 1)
        for at in range(count):
            more = take_rows(table, np.flatnonzero(parts == at + 1))
            held[at] = _first_rows(pa.concat_tables([held[at], more]), splitters.labels, row, group_rows)
    found, ranks = [], [0]
    for at, rank in enumerate(np.cumsum(sizes)[:-1].tolist()):
        up = -rank % group_rows
        last = rank + up >= rows.count - 1  # one row left over belongs to the group before
        if up < held[at].num_rows and not last and rank + up > ranks[-1]:
            found.append(held[at].slice(up, 1))
            ranks.append(rank + up)
    return _Cuts(pa.concat_tables(found) if found else None, tuple(ranks))


def _first_rows(table: pa.Table, labels: Labels, row: str, count: int) -> pa.Table:
    """The first rows in the order of the labels, ties by row number."""
    numbers = table.column(row).to_numpy().astype(np.uint64)
    order = radix_order(packed([*label_keys(labels(table)), numbers]))
    return take_rows(table, order[:count])


def _swap_run(run: Run[P], controls: tuple[str, ...]) -> SwapRun:
    return SwapRun(run.source, run.params, run.stream, run.room, controls)
