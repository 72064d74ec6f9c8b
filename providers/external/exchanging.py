"""Exchanges within the groups of one unit of work, and what they add to the report."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.external.parts import Span, scatter
from providers.groups import Groups, Pairing
from providers.kernels import shuffle_groups
from providers.params import SwapParams
from providers.radix import Int64Array
from providers.rng import Key, Stream
from providers.storage import Spool
from providers.suppression import union
from providers.swapping import Exchange, row_marks, standings_in
from providers.table import permute, take_rows

Marks = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Moves:
    """Swap fields that move together, or one that moves on its own, under a key of theirs."""

    fields: tuple[str, ...]
    locked: bool
    key: Key


def all_moves(params: SwapParams, stream: Stream) -> list[Moves]:
    """What is to be moved: all swap fields together when locked, else each on its own."""
    if params.locked:
        return [Moves(params.swap_fields, True, stream.key("exchange"))]
    return [Moves((name,), False, stream.key(f"exchange/{name}")) for name in params.swap_fields]


@dataclass
class Tally:
    """Figures of the report, summed over the units of work."""

    groups: Counter[int] = field(default_factory=Counter)
    """Rows of a group -> how many groups have so many."""
    swapped: dict[str, Counter[int]] = field(default_factory=dict)
    """The same of the rows that can be swapped, for the first of the fields that move together."""
    took_part: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    unswappable: Counter[str] = field(default_factory=Counter)
    """Field -> rows that cannot be swapped in it."""
    unswappable_groups: int = 0

    def add(self, other: "Tally") -> None:
        """Those of other units."""
        self.groups.update(other.groups)
        for name, sizes in other.swapped.items():
            self.swapped.setdefault(name, Counter()).update(sizes)
        for name in ("took_part", "changed", "unswappable"):
            getattr(self, name).update(getattr(other, name))
        self.unswappable_groups += other.unswappable_groups


def count_sizes(counter: Counter[int], sizes: Int64Array) -> None:
    """Add the groups of each size."""
    found, times = np.unique(sizes, return_counts=True)
    counter.update(dict(zip(found.tolist(), times.tolist(), strict=True)))


class Ranges:
    """The table cut into ranges of consecutive rows: where exchanged values wait to be put together."""

    def __init__(self, spools: Sequence[Spool], rows: int, range_rows: int, moves: int) -> None:
        """``spools``: where they wait, in `parts` parts; several of those whose work is brought together."""
        self.rows = rows
        self.range_rows = range_rows
        self.count = -(-rows // range_rows)
        self._spools = [Span(spools, which * self.count, self.count) for which in range(moves)]

    @staticmethod
    def parts(rows: int, range_rows: int, moves: int) -> int:
        """Parts that a spool must have: one for each range and for fields that move together."""
        return max(1, moves * -(-rows // range_rows))

    def put(self, which: int, rows: Int64Array, columns: Sequence[pa.ChunkedArray], marks: Marks) -> None:
        """Values of the fields that move together, and marks, for these rows of the table."""
        of_range, at = np.divmod(rows, self.range_rows)
        extra = [pa.array(at.astype(np.uint32)), pa.array(marks)]
        table = pa.table([*columns, *extra], names=[str(number) for number in range(len(columns) + 2)])
        scatter(self._spools[which], of_range, table)

    def get(self, which: int, number: int) -> tuple[list[pa.ChunkedArray], Marks]:
        """The values and marks of a range, in the order of its rows; they can be had once."""
        spool = self._spools[which]
        table = pa.concat_tables(spool.read(number))
        spool.clear(number)
        at = table.column(table.num_columns - 2).to_numpy()
        order = np.empty(len(at), np.int64)
        order[at] = np.arange(len(at))
        table = take_rows(table, order)
        return table.columns[:-2], np.array(table.column(table.num_columns - 1).to_numpy())

    def marks(self, which: int, number: int) -> Marks:
        """The marks alone, the range staying where it is."""
        tables = [table.select([-2, -1]) for table in self._spools[which].read(number)]
        marks: Marks = np.zeros(sum(table.num_rows for table in tables), np.uint8)
        for table in tables:
            marks[table.column(0).to_numpy()] = table.column(1).to_numpy()
        return marks


Watch = Callable[[Groups, pa.Table, str, Pairing], None]
"""Told the unit's groups and rows, the first field that moves, and the pairing."""


class Exchanging:
    """Exchanges units, and puts what comes out into its range."""

    def __init__(self, params: SwapParams, moves: Sequence[Moves], ranges: Ranges, row: str) -> None:
        self.params = params
        self.moves = moves
        self.row = row
        """The column that holds the number of a row in the table."""
        self.tally = Tally()
        self._ranges = ranges

    def unit(self, table: pa.Table, groups: Groups, watch: Watch | None = None) -> None:
        """Whole groups; the table's rows are theirs, in listing order."""
        count_sizes(self.tally.groups, groups.sizes)
        unswappable = []
        for which, move in enumerate(self.moves):
            exchange = Exchange(move.fields, groups, move.locked)
            standing = next(iter(standings_in(table, self.params, exchange).values()))
            pairing = shuffle_groups(standing.groups, move.key, self.params.rate, self.params.min_group_size)
            if watch is not None:
                watch(groups, table, move.fields[0], pairing)
            sizes = standing.groups.sizes
            self.swapped_sizes(which, sizes[sizes >= self.params.min_group_size])
            self.exchanged(which, table, pairing, row_marks(standing, pairing))
            found = standing.unswappable
            for name in move.fields:
                self.tally.unswappable[name] += len(found)
            unswappable.append(found)
        rows = union(unswappable)
        if len(rows):
            within = np.searchsorted(groups.starts, rows, side="right")
            self.tally.unswappable_groups += len(np.unique(within))

    def swapped_sizes(self, which: int, sizes: Int64Array) -> None:
        """Count groups whose rows are exchanged."""
        counter = self.tally.swapped.setdefault(self.moves[which].fields[0], Counter())
        count_sizes(counter, sizes)

    def exchanged(self, which: int, table: pa.Table, pairing: Pairing, marks: Marks) -> None:
        """Exchange the fields of a unit by its pairing."""
        columns = []
        for name in self.moves[which].fields:
            column, changed = permute(table.column(name), pairing)
            columns.append(column)
            self.tally.changed[name] += changed
            self.tally.took_part[name] += int(pairing.took_part.sum())
        self._ranges.put(which, self._rows(table), columns, marks)

    def left(self, which: int, table: pa.Table, mark: int) -> None:
        """Rows whose fields keep their values."""
        names = self.moves[which].fields
        marks = np.full(table.num_rows, mark, np.uint8)
        columns = [table.column(name) for name in names]
        self._ranges.put(which, self._rows(table), columns, marks)

    def _rows(self, table: pa.Table) -> Int64Array:
        return np.asarray(table.column(self.row).to_numpy())
