"""Writers that decode values hold a bounded piece of them, whatever encodes them; the text is the same."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.formats import csv_output, json_output
from app.formats.csv_output import csv_chunks
from app.formats.json_output import json_chunks
from app.store.blobs.batches import cut_by_size, decoded_pieces
from providers.tables.decoded_sizes import decoded_row_sizes
from providers.tables.encodings import canonical_array

MOST = 5000

WORDS = pa.array(["x" * 100, "y" * 6000, None, "z"])
CODES = pa.DictionaryArray.from_arrays(np.arange(2000, dtype=np.int16) % 400 % 4, WORDS)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([900, 2000], pa.int32()), pa.array(["x" * 700, "y"]))
FLAT = pa.record_batch({"n": range(2000), "codes": CODES, "runs": RUNS})
NESTED = pa.record_batch(
    {
        "struct": pa.StructArray.from_arrays([CODES], ["a"]),
        "list": pa.ListArray.from_arrays(pa.array(range(2001), pa.int32()), CODES),
    }
)


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([canonical_array(column) for column in batch.columns], batch.schema.names)


@pytest.mark.parametrize("batch", [FLAT, NESTED], ids=["flat", "nested"])
def test_a_piece_is_small_when_it_is_decoded(batch: pa.RecordBatch) -> None:
    pieces = list(decoded_pieces(batch, MOST, 512))
    assert pa.Table.from_batches(pieces) == pa.Table.from_batches([batch])
    for piece in pieces:
        sizes = decoded_row_sizes(piece)
        assert sizes is not None
        assert piece.num_rows == 1 or (sizes.sum() <= MOST and piece.num_rows <= 512)


@pytest.mark.parametrize(
    ("module", "chunks", "batch"),
    [(json_output, json_chunks, FLAT), (json_output, json_chunks, NESTED), (csv_output, csv_chunks, FLAT)],
    ids=["json", "nested json", "csv"],
)
def test_the_text_is_that_of_the_decoded_table(
    monkeypatch: pytest.MonkeyPatch, module: Any, chunks: Any, batch: pa.RecordBatch
) -> None:
    rows = []

    def noted(given: pa.RecordBatch, most_bytes: int, most_rows: int) -> Iterator[pa.RecordBatch]:
        for piece in decoded_pieces(given, MOST, most_rows):
            rows.append(piece.num_rows)
            yield piece

    monkeypatch.setattr(module, "decoded_pieces", noted)
    written = b"".join(chunks(batch.schema, iter([batch])))
    assert max(rows) < 2000
    plain = decoded(batch)
    assert written == b"".join(chunks(plain.schema, iter([plain])))


def test_rows_are_cut_by_their_sizes() -> None:
    batch = pa.record_batch({"a": range(7)})

    def lengths(sizes: Iterable[int]) -> list[int]:
        return [piece.num_rows for piece in cut_by_size(batch, np.array(sizes, np.int64), 10)]

    assert lengths([5, 5, 5, 11, 1, 9, 1]) == [2, 1, 1, 2, 1]
    assert lengths([0] * 7) == [7]
    assert lengths([11] * 7) == [1] * 7
    assert [piece.num_rows for piece in cut_by_size(batch.slice(0, 0), np.zeros(0, np.int64), 10)] == [0]
