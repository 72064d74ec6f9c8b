"""All rows in a random order, a range of its buckets in memory at a time."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from providers.bucket_ranges import LargeGroup
from providers.external.parts import scatter, unused
from providers.kernels import ONE_BUCKET, shuffle_rows
from providers.rng import Key
from providers.storage import Spool
from providers.table import take_rows


class Shuffle:
    """The order of `kernels.shuffle_rows`: rows are put into its parts as they come, read part by part."""

    def __init__(self, schema: pa.Schema, rows: int, key: Key, unit_rows: int) -> None:
        """``unit_rows``: about as many rows make a part."""
        self._schema = schema
        self._rows = rows
        self._key = key
        self._group = LargeGroup(rows, 0, key, 1.0)
        self._ranges = self._group.ranges(unit_rows) if rows > ONE_BUCKET else []
        self._of_bucket = np.repeat(
            np.arange(len(self._ranges)), [len(each.sizes) for each in self._ranges]
        ).astype(np.int64)
        self._bucket = unused("bucket", schema.names)

    @property
    def parts(self) -> int:
        """How many parts the order has."""
        return max(1, len(self._ranges))

    def put(self, spool: Spool, first: int, piece: pa.Table) -> None:
        """Put consecutive rows, the first of this number, each into its part, in their order."""
        if not self._ranges:
            spool.add(0, piece)
            return
        buckets = self._group.buckets(first, piece.num_rows)
        scatter(spool, self._of_bucket[buckets], piece.append_column(self._bucket, pa.array(buckets)))

    def pieces(self, spool: Spool) -> Iterator[pa.Table]:
        """All rows in the random order, once all have been put there."""
        if not self._ranges:
            table = pa.concat_tables([self._schema.empty_table(), *spool.read(0)])
            yield take_rows(table, shuffle_rows(self._rows, self._key).order)
        for number, each in enumerate(self._ranges):
            table = pa.concat_tables(spool.read(number))
            spool.clear(number)
            order = self._group.pairing(each, table.column(self._bucket).to_numpy()).order
            yield take_rows(table.select(self._schema.names), order)
