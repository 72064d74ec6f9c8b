"""Shuffle all rows out of core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from providers.grouping.large_groups import LargeGroup
from providers.grouping.shuffle import ONE_BUCKET, shuffle_rows
from providers.out_of_core.partitions import scatter
from providers.randomness.chacha20 import Key
from providers.sections import Section
from providers.storage import Spool
from providers.tables.columns import take_rows, unused
from providers.tables.joining import empty_table


class Shuffle:
    """Random order of `grouping.shuffle.shuffle_rows`: rows are scattered to parts and read part by part."""

    def __init__(self, schema: pa.Schema, rows: int, key: Key, unit_rows: int) -> None:
        """``unit_rows``: approximate rows of a part."""
        self._schema = schema
        self._rows = rows
        self._key = key
        self._group = LargeGroup(rows, 0, key, 1.0)
        self._ranges = self._group.ranges(unit_rows) if rows > ONE_BUCKET else []
        self._range_of_bucket = np.repeat(
            np.arange(len(self._ranges)), [len(each.sizes) for each in self._ranges]
        ).astype(np.int64)
        self._bucket = unused("bucket", schema.names)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return max(1, len(self._ranges))

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each part in the random order; one part if the rows are not scattered."""
        return tuple(each.start for each in self._ranges) or (0,)

    def put(self, spool: Spool, first: int, piece: pa.Table) -> None:
        """Append consecutive rows, from row `first` on, to their parts."""
        if not self._ranges:
            spool.add(0, piece)
            return
        buckets = self._group.buckets(first, piece.num_rows)
        scatter(spool, self._range_of_bucket[buckets], piece.append_column(self._bucket, pa.array(buckets)))

    def pieces(self, spool: Spool, section: Section) -> Iterator[pa.Table]:
        """Yield the rows of a section in the random order, after all rows have been added."""
        if not self._ranges:
            table = pa.concat_tables([empty_table(self._schema), *spool.read(0)])
            yield section.cut(0, take_rows(table, shuffle_rows(self._rows, self._key).order))
            return
        starts = self.starts
        for number in section.ranges(starts):
            table = pa.concat_tables(spool.read(number))
            spool.clear(number)
            each = self._ranges[number]
            order = self._group.pairing(each, table.column(self._bucket).to_numpy()).order
            yield section.cut(starts[number], take_rows(table.select(self._schema.names), order))
