"""Record batches of even size, so that a reader in bounded memory holds a small part of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.tables.decoded_sizes import decoded_row_sizes
from providers.tables.joining import joined_batches

BATCH_BYTES = 1 << 24
"""Target size of a batch."""

BATCH_ROWS = 1 << 20
"""Most rows of a batch."""

_MOST_JOINED = 1 << 10  # small batches that are joined to one

_SHRINKS = 0.9  # if a half is larger than this share, most of the batch is a dictionary


def pieces(
    batch: pa.RecordBatch, most_bytes: int = BATCH_BYTES, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices of at most ``most_rows`` rows and about ``most_bytes`` bytes.

    Every slice has the whole dictionary of a field, and a row is never cut, so a slice may be larger.
    """
    if not batch.num_rows:
        yield batch
    for start in range(0, batch.num_rows, most_rows):
        piece = batch.slice(start, most_rows)
        yield from _halved(piece, piece.nbytes, most_bytes)


def _halved(batch: pa.RecordBatch, size: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows > 1 and size > most_bytes:
        halves = [batch.slice(0, rows // 2), batch.slice(rows // 2)]
        sizes = [half.nbytes for half in halves]
        if min(sizes) <= _SHRINKS * size:
            for half, half_size in zip(halves, sizes, strict=True):
                yield from _halved(half, half_size, most_bytes)
            return
    yield batch


def decoded_pieces(
    batch: pa.RecordBatch, most_bytes: int, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Cut a batch as `pieces`, into slices that take at most ``most_bytes`` also when they are decoded.

    A row is never cut: one that takes more is a slice of its own.
    """
    sizes, start = decoded_row_sizes(batch), 0
    for piece in pieces(batch, BATCH_BYTES, most_rows):
        end = start + piece.num_rows
        if sizes is None:
            yield piece
        else:
            yield from cut_by_size(piece, sizes[start:end], most_bytes)
        start = end


def cut_by_size(
    batch: pa.RecordBatch, sizes: npt.NDArray[np.int64], most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices of at most ``most_bytes`` by the sizes of its rows, or of one row."""
    if not batch.num_rows:
        yield batch
    sums, start, before = np.cumsum(sizes), 0, 0
    while start < batch.num_rows:
        end = max(start + 1, int(np.searchsorted(sums, before + most_bytes, side="right")))
        yield batch.slice(start, end - start)
        start, before = end, int(sums[end - 1])


def evened(batches: Iterable[pa.RecordBatch], most_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Join small batches and cut large ones, so that all have about the same size."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in pieces(batch, BATCH_BYTES, most_rows):
            full = rows + piece.num_rows > most_rows or size + piece.nbytes > BATCH_BYTES
            if gathered and (full or len(gathered) == _MOST_JOINED):
                yield from joined(gathered)
                gathered, rows, size = [], 0, 0
            if piece.num_rows:
                gathered.append(piece)
                rows, size = rows + piece.num_rows, size + piece.nbytes
    yield from joined(gathered)


def joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as one batch; as they are if their dictionaries cannot be unified."""
    if len(batches) > 1 and batches[0].num_columns:
        try:
            yield joined_batches(batches)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # dictionaries that cannot be unified
            pass
        else:
            return
    yield from batches
