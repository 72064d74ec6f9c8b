"""Exchange the groups of one unit in memory, write the values to their row ranges, and tally figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.grouping.groups import Groups, Pairing
from providers.out_of_core.partitions import row_numbers
from providers.out_of_core.row_ranges import Marks, Ranges
from providers.params import SwapParams
from providers.randomness.chacha20 import Key, Stream
from providers.results import count_sizes
from providers.swapping.participation import Exchange, participation_by_field, row_marks
from providers.swapping.permutation import draw_exchange, purpose
from providers.swapping.permute import permute
from providers.swapping.suppression import union


@dataclass(frozen=True)
class Move:
    """Swap fields that move together, or one field that moves on its own."""

    fields: tuple[str, ...]
    locked: bool
    """Whether the fields of a row move together."""
    key: Key
    """Key of the random exchange."""


def all_moves(params: SwapParams, stream: Stream) -> list[Move]:
    """Return one move of all swap fields if locked, else one for each field."""
    if params.locked:
        return [Move(params.swap_fields, True, stream.key(purpose(params, None)))]
    return [Move((name,), False, stream.key(purpose(params, name))) for name in params.swap_fields]


@dataclass
class Tally:
    """Figures of the report, summed over units."""

    groups: Counter[int] = field(default_factory=Counter)
    """Group size -> number of groups."""
    swapped: dict[str, Counter[int]] = field(default_factory=dict)
    """First field of a move -> group size -> number of groups that can be swapped."""
    took_part: Counter[str] = field(default_factory=Counter)
    """Field -> rows that took part."""
    changed: Counter[str] = field(default_factory=Counter)
    """Field -> rows whose value changed."""
    unswappable: Counter[str] = field(default_factory=Counter)
    """Field -> rows that cannot be swapped in it."""
    unswappable_groups: int = 0
    """Number of groups that hold such rows."""
    too_small: int = 0
    """Values in groups of two rows or more below the smallest size, summed over the swap fields."""

    @classmethod
    def of_all(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum of the figures of some units."""
        total = cls()
        for each in tallies:
            total.add(each)
        return total

    def add(self, other: Tally) -> None:
        """Add the figures of other units."""
        self.groups.update(other.groups)
        for name, sizes in other.swapped.items():
            self.swapped.setdefault(name, Counter()).update(sizes)
        for name in ("took_part", "changed", "unswappable"):
            getattr(self, name).update(getattr(other, name))
        self.unswappable_groups += other.unswappable_groups
        self.too_small += other.too_small


Watch: TypeAlias = "Callable[[Groups, pa.Table, str, Pairing], None]"
"""Callback(groups, rows of the unit, first field of the move, pairing) for each exchange."""


class Exchanger:
    """Exchanges units of whole groups and writes the values to their row ranges.

    Parameters
    ----------
    params : SwapParams
    moves : sequence of Move
    ranges : Ranges
        Destination of the exchanged values.
    row : str
        Name of the column that holds row numbers.
    """

    counts_only = False
    """Whether groups are only counted, and nothing is exchanged or written."""

    def __init__(self, params: SwapParams, moves: Sequence[Move], ranges: Ranges, row: str) -> None:
        self.params = params
        self.moves = moves
        self.active = tuple(range(len(moves)))
        """Indices of the moves that this exchanger makes."""
        self.row = row
        """Name of the column that holds row numbers."""
        self.tally = Tally()
        """Figures so far."""
        self._ranges = ranges

    def limited_to(self, moves: Sequence[int]) -> Exchanger:
        """Return an exchanger for these moves only that shares figures and ranges."""
        limited = copy(self)
        limited.active = tuple(moves)
        return limited

    def exchange_unit(self, table: pa.Table, groups: Groups, watch: Watch | None = None) -> None:
        """Exchange whole groups; the table holds their rows in listing order."""
        if 0 in self.active:  # the report's groups are those of the first field that moves
            count_sizes(self.tally.groups, groups.sizes)
        unswappable = []
        for move_index in self.active:
            move = self.moves[move_index]
            exchange = Exchange(move.fields, groups, move.locked)
            participation = next(iter(participation_by_field(table, self.params, exchange).values()))
            pairing = draw_exchange(participation.groups, move.key, self.params)
            if watch is not None:
                watch(groups, table, move.fields[0], pairing)
            sizes = participation.groups.sizes
            self.count_swappable(move_index, sizes[sizes >= self.params.min_group_size])
            self.exchange_rows(move_index, table, pairing, row_marks(participation, pairing))
            unswappable_rows = participation.unswappable
            self.tally.too_small += len(participation.too_small) * len(move.fields)
            for name in move.fields:
                self.tally.unswappable[name] += len(unswappable_rows)
            unswappable.append(unswappable_rows)
        rows = union(unswappable)
        if len(rows):
            within = np.searchsorted(groups.starts, rows, side="right")
            self.tally.unswappable_groups += len(np.unique(within))

    def count_swappable(self, move_index: int, sizes: Int64Array) -> None:
        """Count groups that can be swapped, given by their sizes."""
        counter = self.tally.swapped.setdefault(self.moves[move_index].fields[0], Counter())
        count_sizes(counter, sizes)

    def exchange_rows(
        self, move_index: int, table: pa.Table, pairing: Pairing, marks: Marks, rows: int | None = None
    ) -> None:
        """Exchange the fields of a move by a pairing.

        Parameters
        ----------
        move_index : int
        table : pa.Table
        pairing : Pairing
        marks : ndarray of uint8, shape (rows of the table,)
            As returned by `row_marks`.
        rows : int, optional
            Number of rows to write, the first ones; further rows only give their values. None: all.
        """
        columns = []
        for name in self.moves[move_index].fields:
            column, changed = permute(table.column(name), pairing)
            columns.append(column.slice(0, rows))
            self.tally.changed[name] += changed
            self.tally.took_part[name] += int(pairing.took_part.sum())
        self._ranges.put(move_index, self._rows(table)[:rows], columns, marks[:rows])

    def keep_values(self, move_index: int, table: pa.Table, mark: int) -> None:
        """Write rows that keep their values; ``mark``: bit of the reason."""
        names = self.moves[move_index].fields
        marks = np.full(table.num_rows, mark, np.uint8)
        columns = [table.column(name) for name in names]
        self._ranges.put(move_index, self._rows(table), columns, marks)

    def _rows(self, table: pa.Table) -> Int64Array:
        return row_numbers(table, self.row)


class GroupCounter(Exchanger):
    """Counts the groups of each move by their sizes, without a random draw; nothing is written."""

    counts_only = True

    def exchange_unit(self, table: pa.Table, groups: Groups, watch: Watch | None = None) -> None:
        """Count whole groups; the table holds their rows in listing order."""
        for move_index in self.active:
            move = self.moves[move_index]
            exchange = Exchange(move.fields, groups, move.locked)
            participation = next(iter(participation_by_field(table, self.params, exchange).values()))
            sizes = participation.groups.sizes
            self.count_swappable(move_index, sizes[sizes >= self.params.min_group_size])
            self.tally.too_small += len(participation.too_small) * len(move.fields)

    def keep_values(self, move_index: int, table: pa.Table, mark: int) -> None:
        """Write nothing."""
