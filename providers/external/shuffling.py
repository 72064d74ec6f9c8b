"""All rows in a random order, a range of its buckets in memory at a time."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from providers.bucket_ranges import LargeGroup
from providers.external.parts import scatter, unused
from providers.kernels import ONE_BUCKET, shuffle_rows
from providers.rng import Key
from providers.storage import Scratch
from providers.table import take_rows


def shuffled(
    pieces: Iterator[pa.Table], schema: pa.Schema, rows: int, key: Key, unit_rows: int, scratch: Scratch,
    memory: int,
) -> Iterator[pa.Table]:  # fmt: skip
    """The rows of all pieces in the order of `kernels.shuffle_rows`, piece by piece."""
    if rows <= ONE_BUCKET:
        table = pa.concat_tables([schema.empty_table(), *pieces])
        yield take_rows(table, shuffle_rows(rows, key).order)
        return
    group = LargeGroup(rows, 0, key, 1.0)
    ranges = group.ranges(unit_rows)
    of_bucket = np.repeat(np.arange(len(ranges)), [len(each.sizes) for each in ranges])
    bucket = unused("bucket", schema.names)
    spool = scratch.spool(len(ranges), memory)
    first = 0
    for piece in pieces:
        buckets = group.buckets(first, piece.num_rows)
        first += piece.num_rows
        scatter(spool, of_bucket[buckets], piece.append_column(bucket, pa.array(buckets)))
    for number, each in enumerate(ranges):
        table = pa.concat_tables(spool.read(number))
        spool.clear(number)
        order = group.pairing(each, table.column(bucket).to_numpy()).order
        yield take_rows(table.select(schema.names), order)
