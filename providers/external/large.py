"""A group that is too large for memory: its rows by ranges of the buckets that its random order has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.bucket_ranges import BucketRange, LargeGroup
from providers.external.exchanging import Exchanging, Marks
from providers.external.parts import scatter, unused
from providers.groups import Groups, Pairing
from providers.kernels import ONE_BUCKET, shuffle_groups
from providers.provider import Progress
from providers.radix import IndexArray
from providers.rng import Key
from providers.storage import Scratch
from providers.swapping import REASONS, Exchange, Standing, absent_rows, row_marks
from providers.table import BoolArray, take_rows

Pieces = Callable[[], Iterator[pa.Table]]
"""The rows of the group in listing order, piece by piece, as often as asked."""


@dataclass(frozen=True)
class Share:
    """What one of several workers does of a group: one exchange, and of that a stretch of its buckets."""

    which: int
    nth: int
    of: int

    @property
    def leads(self) -> bool:
        """Whether what cannot be shared out is left to it."""
        return self.nth == 0


def exchange_large(
    exchanging: Exchanging, pieces: Pieces, rows: int, identity: int, unit_rows: int, scratch: Scratch,
    memory: int, progress: Progress, share: Share | None = None,
) -> None:  # fmt: skip
    """Exchange the rows of one group, or a share of them, about `unit_rows` of them in memory at a time."""
    shares = [share] if share is not None else [Share(at, 0, 1) for at in range(len(exchanging.moves))]
    if Share(0, 0, shares[0].of) in shares:
        exchanging.tally.groups[rows] += 1
    unswappable = False
    for done, mine in enumerate(shares):
        which, move = mine.which, exchanging.moves[mine.which]
        progress(done / len(shares), f"exchanging {move.fields[0]}")
        group = _Group(exchanging, mine, pieces, identity)
        present = group.present()
        if not mine.leads and present <= max(ONE_BUCKET, exchanging.params.min_group_size - 1):
            continue
        if present < max(2, exchanging.params.min_group_size):
            reason = REASONS["alone" if present == 1 else "group_too_small"]
            for _, part in group.parts():
                exchanging.left(which, part, reason)
            for name in move.fields:
                exchanging.tally.unswappable[name] += present
            unswappable |= present > 0
            continue
        if mine.leads:
            exchanging.swapped_sizes(which, np.array([present]))
        if present <= ONE_BUCKET:
            group.exchange_whole()
        else:
            group.exchange_by_buckets(present, unit_rows, scratch, memory)
    exchanging.tally.unswappable_groups += unswappable


class _Group:
    """One group, or a share of it, in one exchange."""

    def __init__(self, exchanging: Exchanging, share: Share, pieces: Pieces, identity: int) -> None:
        which = share.which
        self._exchanging = exchanging
        self._share = share
        self._which = which
        self._pieces = pieces
        self._identity = identity
        self._bucket = unused("bucket", [exchanging.row, *exchanging.moves[which].fields])

    def present(self) -> int:
        """How many rows take part."""
        if self._exchanging.params.nulls == "swap":
            return sum(table.num_rows for table in self._pieces())
        return sum(int(np.count_nonzero(here)) for here, _ in self._looked_at())

    def parts(self) -> Iterator[tuple[int, pa.Table]]:
        """The rows that take part, and how many came before; the others are left as they are."""
        before = 0
        for here, table in self._looked_at():
            part = table
            if not here.all():
                if self._share.leads:
                    kept = take_rows(table, np.flatnonzero(~here))
                    self._exchanging.left(self._which, kept, REASONS["null"])
                part = take_rows(table, np.flatnonzero(here))
            yield before, part
            before += part.num_rows

    def exchange_whole(self) -> None:
        """All rows that take part at once."""
        table = pa.concat_tables([part for _, part in self.parts()])
        starts = np.array([0, table.num_rows], np.int64)
        groups = Groups(table.num_rows, None, starts, np.array([self._identity], np.uint64))
        pairing = shuffle_groups(groups, self._key, self._exchanging.params.rate)
        self._exchanging.exchanged(self._which, table, pairing, _marks(pairing))

    def exchange_by_buckets(self, present: int, unit_rows: int, scratch: Scratch, memory: int) -> None:
        """Put the rows aside by ranges of buckets, and exchange range by range."""
        group = LargeGroup(present, self._identity, self._key, self._exchanging.params.rate)
        every = group.ranges(min(unit_rows, present // self._share.of + 1))
        first, stop = (len(every) * at // self._share.of for at in (self._share.nth, self._share.nth + 1))
        ranges = every[first:stop]
        if not ranges and not self._share.leads:  # who leads still has to leave what takes no part
            return
        of_bucket = np.repeat(np.arange(len(every)) - first, [len(each.sizes) for each in every])
        spool = scratch.spool(max(1, len(ranges)), memory)
        for before, part in self.parts():
            buckets = group.buckets(before, part.num_rows)
            slim = part.select([self._exchanging.row, *self._exchanging.moves[self._which].fields])
            slim = slim.append_column(self._bucket, pa.array(buckets))
            of_range = of_bucket[buckets]
            if len(ranges) < len(every):
                mine = np.flatnonzero((of_range >= 0) & (of_range < len(ranges)))
                slim, of_range = take_rows(slim, mine), of_range[mine]
            scatter(spool, of_range, slim)
        for number, each in enumerate(ranges):
            self._exchange_range(group, each, pa.concat_tables(spool.read(number)))
            spool.clear(number)

    def _exchange_range(self, group: LargeGroup, part: BucketRange, table: pa.Table) -> None:
        pairing = group.pairing(part, table.column(self._bucket).to_numpy())
        self._exchanging.exchanged(self._which, table, pairing, _marks(pairing))

    def _looked_at(self) -> Iterator[tuple[BoolArray, pa.Table]]:
        """Each piece, and which of its rows take part."""
        exchanging = self._exchanging
        move = exchanging.moves[self._which]
        nobody = Groups(0, None, np.zeros(1, np.int64), np.zeros(0, np.uint64))
        exchange = Exchange(move.fields, nobody, move.locked)
        for table in self._pieces():
            here = np.ones(table.num_rows, np.bool_)
            for name in move.fields:
                absent = absent_rows(table, exchanging.params, exchange, name)
                if absent is not None:
                    here &= ~absent
            yield here, table

    @property
    def _key(self) -> Key:
        return self._exchanging.moves[self._which].key


def _marks(pairing: Pairing) -> Marks:
    """Of rows that all could be drawn."""
    nobody: IndexArray = np.zeros(0, np.int64)
    return row_marks(Standing(pairing.groups, nobody, nobody, nobody), pairing)
