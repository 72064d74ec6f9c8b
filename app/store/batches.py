"""Record batches of even size, so that whoever takes a table batch by batch holds little of it at once."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

BATCH_BYTES = 1 << 24
BATCH_ROWS = 1 << 20
_MOST_GATHERED = 1 << 10
_SHRINKS = 0.9  # a half above this share of the whole is all dictionary


def pieces(
    batch: pa.RecordBatch, most_bytes: int = BATCH_BYTES, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most so many rows, and of about so many bytes where rows allow.

    A dictionary goes whole with every slice, and a row is never cut: either may be larger.
    """
    if not batch.num_rows:
        yield batch
    for start in range(0, batch.num_rows, most_rows):
        part = batch.slice(start, most_rows)
        yield from _halved(part, part.nbytes, most_bytes)


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


def evened(
    batches: Iterable[pa.RecordBatch], most_bytes: int = BATCH_BYTES, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer, larger batches where they are small, and smaller ones where they are large."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in pieces(batch, most_bytes, most_rows):
            full = rows + piece.num_rows > most_rows or size + piece.nbytes > most_bytes
            if gathered and (full or len(gathered) == _MOST_GATHERED):
                yield from _joined(gathered)
                gathered, rows, size = [], 0, 0
            if piece.num_rows:
                gathered.append(piece)
                rows, size = rows + piece.num_rows, size + piece.nbytes
    yield from _joined(gathered)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) > 1 and batches[0].num_columns:
        try:
            yield pa.concat_batches(batches)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # dictionaries that cannot be made one
            pass
        else:
            return
    yield from batches
