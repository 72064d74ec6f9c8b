"""Checks of rows verified on source and release, and the repair of exchanges that break them.

A swap can combine values that no row may have, such as a birth after a death. Every check is verified on the
source and on the release, and the report counts the rows that break it. With `on_broken` set to ``repair``,
exchanges that break a check which the row met before are drawn again:

1. Such an exchange and a random other one of its group form a block, whose rows are paired at random again.
   The new pairs of a block count if fewer of its rows break a check. `ROUNDS` rounds are tried.
2. Exchanges that still break a check are undone: their rows keep their own values.

A check that a row breaks in the source already is no reason for a repair, since no exchange caused it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray, Int64Array, UInt64Array, row_index_type
from providers.grouping.groups import Groups, Pairing
from providers.grouping.shuffle import shuffle_groups
from providers.params import SwapParams
from providers.randomness.chacha20 import Stream
from providers.results import Events, SwapResult
from providers.swapping.check_expressions import POINTER, Expression, broken_rows, names_of, parsed
from providers.swapping.exchange import sources
from providers.swapping.participation import Participation
from providers.swapping.permutation import Permutation
from providers.swapping.risk_selection import random_words
from providers.tables.columns import combined, take, unwrapped

ROUNDS = 20
"""Number of times that exchanges which break a check are drawn again."""

CHECK_BROKEN = "check_broken"
"""Code of the event about a row that breaks a check in the release and not in the source."""

CHECK_RESTORED = "check_restored"
"""Code of the event about a row that keeps its own value, since its exchange broke a check."""

CHECK_GUARANTEE = (
    "With `checks` and `on_broken` set to `repair`: no exchange makes a row break a check that it met. The "
    "report counts the rows that break each check before and after."
)
"""Sentence for the pages of the services about the guarantee of checks."""

CHECK_LIMIT = (
    "With `on_broken` set to `repair`, anyone who knows the checks can exclude exchanges that would break "
    "them: fewer exchanges are possible than `matching_bits` and `group_bits` count."
)
"""Sentence for the pages of the services about the disclosure by a repair."""


class RowChecks:
    """Checks of a run and the rows of the source that break them.

    Parameters
    ----------
    table : pa.Table
        The source.
    params : SwapParams
        With `checks`, checked against the schema.

    Raises
    ------
    SourceError
        Dates or times cannot be compared.
    """

    def __init__(self, table: pa.Table, params: SwapParams) -> None:
        self._table = table
        self.texts = params.checks
        self._expressions = parsed(params.checks)
        self.names = [names_of(each) for each in self._expressions]
        """Fields that each check names."""
        self._columns: dict[str, pa.ChunkedArray] = {}
        self.before = [self._verify(number, table) for number in range(len(self.texts))]
        """Mask of the rows that break each check in the source."""

    def __len__(self) -> int:
        return len(self.texts)

    def _verify(self, number: int, table: pa.Table) -> BoolArray:
        expression: Expression = self._expressions[number]
        columns = {name: table.column(name) for name in self.names[number]}
        return broken_rows(expression, columns, f"{POINTER}/{number}")

    def newly_broken(self, number: int, origin: dict[str, IndexArray], rows: IndexArray) -> BoolArray:
        """Mask of the given rows that break a check by an exchange, shape (len(rows),).

        Parameters
        ----------
        number : int
            Index of the check.
        origin : dict
            Moved field -> source row of each row's value, shape (rows of the table,).
        rows : ndarray of int
        """
        columns = {}
        for name in self.names[number]:
            taken = origin[name][rows] if name in origin else rows
            if name not in self._columns:
                self._columns[name] = _readable(self._table.column(name))
            columns[name] = take(self._columns[name], pa.array(taken))
        found = broken_rows(self._expressions[number], columns, f"{POINTER}/{number}")
        new: BoolArray = found & ~self.before[number][rows]
        return new

    def report(self, result: SwapResult) -> None:
        """Add the figure `checks` and its events to the result of the run."""
        rows = self._table.num_rows
        origin = np.arange(rows) if result.origin is None else result.origin
        broken = np.zeros(rows, np.bool_)
        by_check: dict[str, dict[str, int]] = {}
        for number, text in enumerate(self.texts):
            after = self._verify(number, result.table)
            new = np.zeros(rows, np.bool_)
            new[origin[after]] = True
            new &= ~self.before[number]
            broken |= new
            by_check[text] = {
                "before": int(np.count_nonzero(self.before[number])),
                "after": int(np.count_nonzero(after)),
                "newly_broken": int(np.count_nonzero(new)),
            }
        figures: dict[str, Any] = {"by_check": by_check, "rows_newly_broken": int(np.count_nonzero(broken))}
        result.provider["checks"] = figures | result.provider.get("checks", {})
        if broken.any():
            message = "the row breaks a check in the release that it met in the source"
            result.events.add_rows(CHECK_BROKEN, message, np.flatnonzero(broken))


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values below run-end encoding and extension types, with one dictionary for all chunks."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([combined(column)])
    return column


def report_checks(table: pa.Table, params: SwapParams, result: SwapResult) -> SwapResult:
    """Verify the checks on the release, if the run has some; return the result with their figures."""
    if params.checks:
        RowChecks(table, params).report(result)
    return result


# -------------------------------------------------------------------------------------------- repair


@dataclass
class Move:
    """Fields that move together, and their exchange."""

    purpose: str
    """Purpose of the random stream of their exchange."""
    fields: tuple[str, ...]
    participation: Participation
    source: Int64Array
    """Source row of each row's values; shape (rows,). Changed by a repair."""
    restored: BoolArray
    """Rows whose exchange was undone; shape (rows,)."""

    @classmethod
    def of(cls, purpose: str, fields: Sequence[str], participation: Participation, pairing: Pairing) -> Move:
        """Return the move of a drawn exchange."""
        source = sources(pairing).astype(np.int64)
        return cls(purpose, tuple(fields), participation, source, np.zeros(len(source), np.bool_))

    def pairing(self) -> Permutation:
        """Return the exchange after its repair."""
        groups = self.participation.groups
        moves = (self.source != np.arange(len(self.source)))[groups.order]
        took_part = np.diff(np.concatenate(([0], np.cumsum(moves)))[groups.starts]).astype(np.int64)
        nothing = np.zeros(0, groups.order.dtype)
        kept_type: IndexArray = self.source.astype(row_index_type(len(self.source)))
        return Permutation(groups, nothing, took_part, source=kept_type)


class Repair:
    """Repair of the exchanges of a run.

    Parameters
    ----------
    checks : RowChecks
    moves : sequence of Move
        All random orders of the run; each consists of exchanges of two or three rows.
    stream : Stream
        Purposes: ``repair/ROUND/`` and ``blocks/ROUND/``, followed by the purpose of the move.
    """

    def __init__(self, checks: RowChecks, moves: Sequence[Move], stream: Stream) -> None:
        self._checks, self._moves, self._stream = checks, moves, stream
        self._rounds = 0
        self._redrawn = np.zeros(len(moves[0].source), np.bool_)
        self.figures: dict[str, int] = {}
        """Figures of the report, after `run`."""

    def run(self) -> None:
        """Repair the moves in place and set the figures of the report.

        Notes
        -----
        The first round verifies all rows; further ones verify the rows that are drawn again.
        """
        everywhere = np.arange(len(self._redrawn))
        broken = self._broken(everywhere)
        at_first = int(np.count_nonzero(np.logical_or.reduce(broken)))
        while self._rounds < ROUNDS and any(mask.any() for mask in broken):
            for move in self._moves:
                self._redraw(move, broken)
            self._rounds += 1
        self._undo(broken)
        restored = np.logical_or.reduce([move.restored for move in self._moves])
        self.figures = {
            "rows_broken_by_exchange": at_first,
            "rounds": self._rounds,
            "rows_drawn_again": int(np.count_nonzero(self._redrawn)),
            "rows_restored": int(np.count_nonzero(restored)),
        }

    def move(self, name: str) -> Move:
        """Return the move of a field."""
        return next(move for move in self._moves if name in move.fields)

    def pairing(self, name: str) -> Permutation:
        """Return the repaired exchange of a field."""
        return self.move(name).pairing()

    def _origin(self) -> dict[str, IndexArray]:
        return {name: move.source for move in self._moves for name in move.fields}

    def _broken(self, rows: IndexArray) -> list[BoolArray]:
        """Mask of the given rows that each check finds broken by an exchange."""
        origin = self._origin()
        return [self._checks.newly_broken(number, origin, rows) for number in range(len(self._checks))]

    def _concerned(self, move: Move) -> list[int]:
        """Return the checks that name a field of the move."""
        return [n for n, names in enumerate(self._checks.names) if not set(names).isdisjoint(move.fields)]

    def _redraw(self, move: Move, broken: list[BoolArray]) -> None:
        """Draw the exchanges of a move that break a check again; keep the better of old and new by block."""
        concerned = self._concerned(move)
        if not concerned:
            return
        label = _exchange_of(move.source)
        faulty = _whole(label, np.logical_or.reduce([broken[number] for number in concerned]), move.source)
        if not faulty.any():
            return
        suffix = f"{self._rounds}/{move.purpose}"
        words = random_words(self._stream.key(f"blocks/{suffix}"), len(label))
        blocks = _blocks(label, faulty, move, words)
        pairs = shuffle_groups(blocks, self._stream.key(f"repair/{suffix}"), 1.0, 2)
        rows = np.asarray(blocks.order)
        block = np.repeat(np.arange(len(blocks.identities)), blocks.sizes)
        old, drawn = move.source[rows], sources(pairs)[rows]
        before = np.bincount(block, _per_row([mask[rows] for mask in broken]))
        move.source[rows] = drawn
        trial = self._broken(rows)
        better = (np.bincount(block, _per_row(trial)) < before)[block]
        move.source[rows] = np.where(better, drawn, old)
        self._redrawn[rows[better]] = True
        for mask, found in zip(broken, trial, strict=True):
            mask[rows] = np.where(better, found, mask[rows])

    def _undo(self, broken: list[BoolArray]) -> None:
        """Undo exchanges until no row breaks a check by one.

        An undone exchange can leave a row with values of two rows in other fields, which are undone next.
        """
        everywhere = np.arange(len(self._redrawn))
        while any(mask.any() for mask in broken):
            for move in self._moves:
                concerned = self._concerned(move)
                if concerned:
                    marked = np.logical_or.reduce([broken[number] for number in concerned])
                    undone = _whole(_exchange_of(move.source), marked, move.source)
                    move.source[undone] = everywhere[undone]
                    move.restored |= undone
            broken = self._broken(everywhere)

    def add_events(self, events: Events) -> None:
        """Record an event for each row and field whose exchange was undone."""
        message = "the row keeps its own value, because no tried exchange meets the checks"
        for move in self._moves:
            if move.restored.any():
                for name in move.fields:
                    events.add_rows(CHECK_RESTORED, message, np.flatnonzero(move.restored), name)


def _exchange_of(source: Int64Array) -> Int64Array:
    """Return the smallest row of each row's exchange, which has two or three rows; shape (rows,)."""
    found: Int64Array = np.minimum(np.minimum(np.arange(len(source)), source), source[source])
    return found


def _whole(label: Int64Array, marked: BoolArray, source: Int64Array) -> BoolArray:
    """Mask of the rows whose exchange contains a marked row; rows that do not move are in none."""
    found = np.zeros(len(label), np.bool_)
    found[label[marked]] = True
    whole: BoolArray = found[label] & (source != np.arange(len(source)))
    return whole


def _group_of(groups: Groups) -> Int64Array:
    """Return the number of each row's group; the number after the last one for rows in none."""
    count = len(groups.identities)
    found = np.full(groups.rows, count, np.int64)
    found[groups.order] = np.repeat(np.arange(count), groups.sizes)
    return found


def _blocks(label: Int64Array, faulty: BoolArray, move: Move, words: UInt64Array) -> Groups:
    """Join each faulty exchange with another exchange of its group, whose rows are paired again together.

    Within a group the first faulty exchange in random order is joined with the first other one, and so on.
    Faulty exchanges without another one are joined with each other.

    Parameters
    ----------
    label : ndarray of int64, shape (rows,)
        Smallest row of each row's exchange.
    faulty : ndarray of bool, shape (rows,)
        Rows of the exchanges that break a check.
    move : Move
    words : ndarray of uint64, shape (rows,)
        Random word of each row: exchanges are ordered by the words of their smallest rows.
    """
    count = len(label)
    group = _group_of(move.participation.groups)
    moves = move.source != np.arange(count)
    first = np.flatnonzero((label == np.arange(count)) & moves)
    bad, good = first[faulty[first]], first[~faulty[first]]
    bad_rank, bad_count = _ranks(bad, group, words)
    good_rank, good_count = _ranks(good, group, words)
    more = bad_rank - good_count[group[bad]]  # place among those that have no other exchange
    number = np.full(count, -1, np.int64)
    number[bad] = np.where(more < 0, bad_rank, good_count[group[bad]] + more // 2)
    joined = good_rank < bad_count[group[good]]
    number[good[joined]] = good_rank[joined]
    number = np.where(moves, number[label], -1)
    rows = np.flatnonzero(number >= 0)
    order = rows[np.lexsort((rows, number[rows], group[rows]))]
    changes = (np.diff(group[order]) != 0) | (np.diff(number[order]) != 0)
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(order)])).astype(np.int64)
    order = order.astype(row_index_type(count))
    return Groups(count, order, starts, order[starts[:-1]].astype(np.uint64))


def _ranks(rows: IndexArray, group: Int64Array, words: UInt64Array) -> tuple[Int64Array, Int64Array]:
    """Return the rank of each row in its group by random word, and the number of rows of each group."""
    order = np.lexsort((rows, words[rows], group[rows]))
    within = group[rows][order]
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.arange(len(rows)) - np.searchsorted(within, within, side="left")
    return ranks, np.bincount(group[rows], minlength=int(group.max()) + 1).astype(np.int64)


def _per_row(masks: Sequence[BoolArray]) -> Int64Array:
    """Return how many of the masks hold for each row."""
    found: Int64Array = np.sum(masks, axis=0, dtype=np.int64)
    return found
