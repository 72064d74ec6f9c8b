"""Batches of even size: the same rows, no more at once than was asked for."""

from collections.abc import Iterable

import pyarrow as pa
import pytest

from app.store.blobs.batches import evened, pieces


def whole(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


BATCH = pa.record_batch({"n": list(range(1000)), "s": ["x" * (row % 50) for row in range(1000)]})


@pytest.mark.parametrize("most_bytes", [1, 100, 5000, 10**9])
@pytest.mark.parametrize("most_rows", [1, 7, 1000, 10**6])
def test_pieces_are_the_batch_and_keep_both_limits(most_bytes: int, most_rows: int) -> None:
    cut = list(pieces(BATCH, most_bytes, most_rows))
    assert whole(cut).equals(pa.table(BATCH))
    assert all(piece.num_rows <= most_rows for piece in cut)
    assert all(piece.nbytes <= most_bytes or piece.num_rows == 1 for piece in cut)


def test_a_dictionary_that_is_larger_than_a_piece_does_not_make_pieces_of_a_row() -> None:
    values = pa.array(["x" * 100_000])
    batch = pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), values)})
    assert len(list(pieces(batch, most_bytes=10_000))) == 1


@pytest.mark.parametrize("rows", [1, 10, 333])
def test_small_batches_are_gathered_and_large_ones_cut(rows: int) -> None:
    small = [BATCH.slice(start, rows) for start in range(0, 1000, rows)]
    even = list(evened(small, most_rows=300))
    assert whole(even).equals(pa.table(BATCH))
    assert len(even) <= 8
    assert all(batch.num_rows <= 300 for batch in even)


def test_batches_whose_dictionaries_differ_stay_the_same_rows() -> None:
    inside = [pa.array([word]).dictionary_encode() for word in ("a", "b")]
    nested = [pa.record_batch({"s": pa.StructArray.from_arrays([array], ["m"])}) for array in inside]
    flat = [pa.record_batch({"d": array}) for array in inside]
    for batches in (flat, nested):
        assert whole(evened(batches)).to_pylist() == whole(batches).to_pylist()


def test_rows_without_fields_and_no_rows_are_kept() -> None:
    assert list(evened([])) == []
    assert sum(batch.num_rows for batch in evened([BATCH.select([]), BATCH.select([])])) == 2000
