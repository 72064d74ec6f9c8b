"""Batches of a file, whose borders depend on its values and not on the batches of the stored table.

Memory, workers and the chunks of an upload decide how a table is stored; its file must not show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from app.store.blobs.batches import joined
from providers.tables.columns import is_words, without_null_entries
from providers.tables.decoded_sizes import row_sizes
from providers.tables.joining import joined_arrays

_ROWS_WITHOUT_PADDING = 512
"""Rows whose bits take 64 bytes; those of words take a multiple."""


def written_batches(
    batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that end at ``most_rows``, or before a row that exceeds ``most_bytes``.

    A row is never cut. Batches whose dictionaries cannot be joined stay separate.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = start = 0
    for batch in map(_joinable, batches):
        sums, start = np.concatenate([[0], np.cumsum(row_sizes(batch))]), 0
        while start < batch.num_rows:
            fitting = int(np.searchsorted(sums, sums[start] + most_bytes - size, side="right")) - 1
            end = max(start if rows else start + 1, min(fitting, start + most_rows - rows, batch.num_rows))
            if end > start:
                gathered.append(batch.slice(start, end - start))
                rows, size = rows + end - start, size + int(sums[end] - sums[start])
            if end < batch.num_rows:
                yield from _in_own_memory(gathered)
                gathered, rows, size = [], 0, 0
            start = end
    yield from _in_own_memory(gathered)


def _joinable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without nulls in dictionaries, which Arrow does not join; levels stay as they are."""
    columns = [
        without_null_entries(column) if pa.types.is_dictionary(kind) and not kind.ordered else column
        for column, kind in zip(batch.columns, batch.schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _in_own_memory(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as one batch without memory of other rows, a part of which Arrow would write."""
    if len(batches) != 1:
        yield from joined(batches)
        return
    (batch,) = batches
    columns = [column if _is_exact(column) else _copied(column) for column in batch.columns]
    yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _copied(array: pa.Array) -> pa.Array:
    """Return the array in its own memory; unchanged if Arrow cannot join its nested dictionaries."""
    try:
        return joined_arrays([array.slice(0, 0), array])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return array


def _is_exact(array: pa.Array) -> bool:
    """Whether Arrow writes the memory of these rows only, or `released` makes the array new.

    Arrow pads each buffer to 64 bytes, with what follows the rows in memory.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return not kind.ordered
    if not is_words(kind):
        return False
    if array.offset % 8 == 0 and len(array) % _ROWS_WITHOUT_PADDING == 0:
        return True
    data = array.buffers()[1]
    return not array.offset and data is not None and 8 * data.size == len(array) * kind.bit_width
