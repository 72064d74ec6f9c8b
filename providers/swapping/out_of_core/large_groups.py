"""Exchange a group that does not fit in memory, one range of buckets of its random order at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray
from providers.grouping.groups import Groups, Pairing
from providers.grouping.large_groups import BucketRange, LargeGroup
from providers.grouping.shuffle import ONE_BUCKET
from providers.out_of_core.partitions import scatter
from providers.out_of_core.row_ranges import Marks
from providers.progress import Progress
from providers.storage import Scratch
from providers.swapping.out_of_core.exchange import Exchanger
from providers.swapping.out_of_core.permutation import PermutedGroup
from providers.swapping.participation import REASONS, Exchange, Participation, absent_mask, row_marks
from providers.swapping.permutation import draw_exchange
from providers.tables.columns import take_rows, unused

ReadGroup: TypeAlias = "Callable[[], Iterator[pa.Table]]"
"""Callback(): batches of the group's rows in listing order; called several times."""


@dataclass(frozen=True)
class Share:
    """Share of one unit in the exchange of a group: one move, and a range of its buckets."""

    move_index: int
    number: int
    """Number of the share, from 0."""
    count: int
    """Number of shares of the move."""

    @property
    def leads(self) -> bool:
        """Whether this share also does the work that cannot be divided."""
        return self.number == 0


def exchange_large(
    exchanger: Exchanger, read: ReadGroup, rows: int, identity: int, unit_rows: int, scratch: Scratch,
    memory: int, progress: Progress, share: Share | None = None,
) -> None:  # fmt: skip
    """Exchange the rows of one group, or a share of them.

    Parameters
    ----------
    exchanger : Exchanger
    read : callable
        Reads the group's rows.
    rows, identity : int
        Number of rows of the group, and its identity in the random streams.
    unit_rows : int
        About the number of rows that are in memory at a time.
    scratch : Scratch
    memory : int
        Bytes that a spool may buffer.
    progress : Progress
    share : Share, optional
        Share of a unit; None for the whole group.
    """
    shares = [share] if share is not None else [Share(index, 0, 1) for index in exchanger.active]
    if Share(0, 0, shares[0].count) in shares:
        exchanger.tally.groups[rows] += 1
    unswappable = False
    for done, part in enumerate(shares):
        move_index, move = part.move_index, exchanger.moves[part.move_index]
        progress(done / len(shares), f"exchanging {move.fields[0]}")
        group = _GroupExchange(exchanger, part, read, identity)
        present = group.count_present()
        if not part.leads and present <= max(ONE_BUCKET, exchanger.params.min_group_size - 1):
            continue  # the leading share exchanges a group that is not divided
        if present < max(2, exchanger.params.min_group_size):
            reason = REASONS["alone" if present == 1 else "group_too_small"]
            for _, table in group.present_rows():
                exchanger.keep_values(move_index, table, reason)
            for name in move.fields:
                exchanger.tally.unswappable[name] += present
            exchanger.tally.too_small += present * len(move.fields) * (present > 1)
            unswappable |= present > 0
            continue
        if part.leads:
            exchanger.count_swappable(move_index, np.array([present]))
        if exchanger.counts_only:
            continue
        if present <= ONE_BUCKET:
            group.exchange_whole()
        else:
            group.exchange_by_buckets(present, unit_rows, scratch, memory)
    exchanger.tally.unswappable_groups += unswappable


class _GroupExchange:
    """One move of one group, or a share of it."""

    def __init__(self, exchanger: Exchanger, share: Share, read: ReadGroup, identity: int) -> None:
        self._exchanger = exchanger
        self._share = share
        self._move_index = share.move_index
        self._move = exchanger.moves[share.move_index]
        self._read = read
        self._identity = identity
        self._bucket = unused("bucket", [exchanger.row, *self._move.fields])

    def count_present(self) -> int:
        """Number of rows that take part."""
        if self._exchanger.params.nulls == "swap":
            return sum(table.num_rows for table in self._read())
        return sum(int(np.count_nonzero(present)) for present, _ in self._with_masks())

    def present_rows(self) -> Iterator[tuple[int, pa.Table]]:
        """Iterate over (rows before, batch) of the rows that take part; write the others unchanged."""
        before = 0
        for present, table in self._with_masks():
            batch = table
            if not present.all():
                if self._share.leads:
                    absent = take_rows(table, np.flatnonzero(~present))
                    self._exchanger.keep_values(self._move_index, absent, REASONS["null"])
                batch = take_rows(table, np.flatnonzero(present))
            yield before, batch
            before += batch.num_rows

    def exchange_whole(self) -> None:
        """Exchange all rows that take part at once."""
        table = pa.concat_tables([batch for _, batch in self.present_rows()])
        starts = np.array([0, table.num_rows], np.int64)
        groups = Groups(table.num_rows, None, starts, np.array([self._identity], np.uint64))
        pairing = draw_exchange(groups, self._move.key, self._exchanger.params)
        self._exchanger.exchange_rows(self._move_index, table, pairing, _marks(pairing))

    def exchange_by_buckets(self, present: int, unit_rows: int, scratch: Scratch, memory: int) -> None:
        """Scatter the rows by ranges of buckets to a spool, then exchange one range at a time."""
        share = self._share
        group = LargeGroup(present, self._identity, self._move.key, self._exchanger.params.rate)
        all_ranges = group.ranges(min(unit_rows, present // share.count + 1))
        first, stop = (len(all_ranges) * number // share.count for number in (share.number, share.number + 1))
        ranges = all_ranges[first:stop]
        permuted = None
        if self._exchanger.params.mechanism == "permutation":
            permuted = PermutedGroup.of(group, ranges)
        if not ranges and not share.leads:  # the leading share still has to write absent rows
            return
        range_of_bucket = np.repeat(
            np.arange(len(all_ranges)) - first, [len(each.sizes) for each in all_ranges]
        )
        labels = _BucketLabels(all_ranges, signed=permuted is not None)
        spool = scratch.spool(max(1, len(ranges)), memory)
        for before, batch in self.present_rows():
            buckets = group.buckets(before, batch.num_rows)
            columns = batch.select([self._exchanger.row, *self._move.fields])
            if permuted is not None:
                givers, links, parts = permuted.givers(before, batch.num_rows)
                giving = take_rows(columns, givers).append_column(self._bucket, pa.array(links))
                scatter(spool, parts, giving)
            columns = columns.append_column(self._bucket, pa.array(labels.of(buckets)))
            row_ranges = range_of_bucket[buckets]
            if len(ranges) < len(all_ranges):
                own_rows = np.flatnonzero((row_ranges >= 0) & (row_ranges < len(ranges)))
                columns, row_ranges = take_rows(columns, own_rows), row_ranges[own_rows]
            scatter(spool, row_ranges, columns)
        for number, bucket_range in enumerate(ranges):
            table = pa.concat_tables(spool.read(number))
            if permuted is None:
                self._exchange_range(group, bucket_range, table)
            else:
                self._permute_range(permuted, bucket_range, table)
            spool.clear(number)

    def _permute_range(self, permuted: PermutedGroup, bucket_range: BucketRange, table: pa.Table) -> None:
        """Permute the rows of a range; rows of other ranges, at the end, give their values."""
        labels: npt.NDArray[np.int32] = np.asarray(table.column(self._bucket).to_numpy())
        own, givers = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
        givers = givers[np.argsort(-labels[givers], kind="stable")]
        table = take_rows(table, np.concatenate([own, givers]))
        pairing = permuted.permutation(bucket_range, labels[own] + np.int32(bucket_range.first), len(givers))
        self._exchanger.exchange_rows(self._move_index, table, pairing, _marks(pairing), len(own))

    def _exchange_range(self, group: LargeGroup, bucket_range: BucketRange, table: pa.Table) -> None:
        labels = table.column(self._bucket).to_numpy()
        pairing = group.pairing(bucket_range, labels.astype(np.int32) + np.int32(bucket_range.first))
        self._exchanger.exchange_rows(self._move_index, table, pairing, _marks(pairing))

    def _with_masks(self) -> Iterator[tuple[BoolArray, pa.Table]]:
        """Iterate over (mask of the rows that take part, batch)."""
        params = self._exchanger.params
        no_groups = Groups(0, None, np.zeros(1, np.int64), np.zeros(0, np.uint64))
        exchange = Exchange(self._move.fields, no_groups, self._move.locked)
        for table in self._read():
            present = np.ones(table.num_rows, np.bool_)
            for name in self._move.fields:
                absent = absent_mask(table, params, exchange, name)
                if absent is not None:
                    present &= ~absent
            yield present, table


class _BucketLabels:
    """Numbers of buckets within their ranges, in few bytes: each is written with its row."""

    def __init__(self, ranges: Sequence[BucketRange], signed: bool) -> None:
        """``signed``: whether negative labels have another meaning, so that labels are int32."""
        sizes = [len(each.sizes) for each in ranges]
        self._first = np.repeat(np.array([each.first for each in ranges], np.int32), sizes)
        self._kind: type[np.integer[Any]] = np.int32 if signed or max(sizes) > 2**16 else np.uint16

    def of(self, buckets: npt.NDArray[np.int32]) -> npt.NDArray[np.integer[Any]]:
        """Return the label of each bucket."""
        return (buckets - self._first[buckets]).astype(self._kind)


def _marks(pairing: Pairing) -> Marks:
    """Marks of rows that can all be swapped."""
    no_rows: IndexArray = np.zeros(0, np.int64)
    return row_marks(Participation(pairing.groups, no_rows, no_rows, no_rows), pairing)
