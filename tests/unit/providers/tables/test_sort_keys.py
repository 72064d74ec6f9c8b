"""The order of rows by keys, against numpy's stable sort."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from providers.grouping.groups import Groups
from providers.kernels.bucket_sort import bucket_layout
from providers.kernels.radix_sort import counted_runs, radix_order, radix_runs
from providers.tables.sort_keys import distinct, packed, sort_keys

ROWS = 100_003  # enough that the work is cut between threads


def _keys() -> dict[str, list[npt.NDArray[np.uint64]]]:
    random = np.random.default_rng(3)
    any_word = random.integers(0, 2**64, ROWS, np.uint64)
    few = random.integers(0, 5, ROWS, np.uint64)
    low = any_word & np.uint64(0xFFFF)
    return {
        "one value": [np.full(ROWS, 7, np.uint64)],
        "few values": [few],
        "any word": [any_word],
        "ties above the low bits": [few << np.uint64(60) | low],
        "long ties above the low bits": [
            np.repeat(any_word[: ROWS // 50 + 1], 50)[:ROWS] & ~np.uint64(0xFFF) | low
        ],
        "nearly sorted": [np.sort(any_word) ^ few],
        "falling": [np.sort(any_word)[::-1].copy()],
        "both ends": [few % np.uint64(2) * np.uint64(2**64 - 1)],
        "floats": sort_keys(pa.chunked_array([random.normal(size=ROWS)])),
        "rounded floats": sort_keys(pa.chunked_array([random.normal(size=ROWS).round(1)])),
        "whole floats": sort_keys(pa.chunked_array([random.integers(0, 90, ROWS).astype(float)])),
        "whole floats of both signs": sort_keys(pa.chunked_array([random.integers(-9, 9, ROWS) * 0.25])),
        "the same low bits": [(few << np.uint64(40)) | np.uint64(0x5A5A5A)],
        "the same low bits, all words": [any_word | np.uint64(0xFFFFFF)],
        "several": [few, low % np.uint64(3), any_word >> np.uint64(40)],
        "constant among others": [few, np.zeros(ROWS, np.uint64), low],
    }


@pytest.mark.parametrize(("name", "keys"), _keys().items(), ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 33, 1000, ROWS])
def test_order_is_stable_and_ascending(name: str, keys: list[npt.NDArray[np.uint64]], rows: int) -> None:
    """Order and runs of equal keys are those of a stable sort; packing changes neither."""
    some = [key[:rows].copy() for key in keys]
    order = radix_order(some)
    assert np.array_equal(order, np.lexsort(some[::-1]))
    again, starts = radix_runs(some)
    assert np.array_equal(again, order)
    rising = np.any([key[order[1:]] != key[order[:-1]] for key in some], axis=0)
    wanted = [*([0] if rows else []), *(np.flatnonzero(rising) + 1).tolist(), rows]
    assert starts.tolist() == wanted
    assert np.array_equal(radix_order(packed(some)), order)


@pytest.mark.parametrize("rows", [1, 15, 16, 64, 1000, ROWS, 3 * ROWS])
@pytest.mark.parametrize("span", [1, 2, 60, 5000, 2**17])
def test_counting_finds_the_places_of_the_same_order(rows: int, span: int) -> None:
    """Counting is used if there are few keys for the number of rows, also with gaps and high keys."""
    random = np.random.default_rng(rows + span)
    keys = 2 * random.integers(0, span, rows, np.uint64) + np.uint64(2**64 - 2 * span)
    counted = counted_runs(keys)
    order, starts = radix_runs([keys])
    if int(keys.max() - keys.min()) >= min(2**16, rows // 16):
        assert counted is None
        return
    assert counted is not None
    places, same_starts, firsts = counted
    assert np.array_equal(places[order], np.arange(rows))
    assert np.array_equal(same_starts, starts)
    assert np.array_equal(firsts, order[starts[:-1]])


def test_groups_by_places_are_those_by_rows() -> None:
    random = np.random.default_rng(5)
    keys = random.integers(0, 9, 500, np.uint64)
    order, starts = radix_runs([keys])
    counted = counted_runs(keys)
    assert counted is not None
    identities = order[starts[:-1]].astype(np.uint64)
    listed = Groups(500, order, starts, identities)
    placed = Groups(500, None, counted[1], counted[2].astype(np.uint64), standing=counted[0])
    for name in ("order", "places", "sizes", "identities", "in_row_order"):
        assert np.array_equal(getattr(placed, name), getattr(listed, name))
    assert Groups(3, None, starts, identities, standing=np.arange(3, dtype=np.int32)).in_row_order


def _one_key() -> dict[str, npt.NDArray[np.uint64]]:
    random = np.random.default_rng(4)
    rows = 2 * ROWS
    any_word = random.integers(0, 2**64, rows, np.uint64)
    rare = (np.arange(rows) % 1000 == 0).astype(np.uint64)
    return {name: keys[0] for name, keys in _keys().items() if len(keys) == 1} | {
        "one value but for a few": rare * any_word,
        "one long bucket": rare * any_word + any_word % np.uint64(5000),
        "one long bucket of two values": rare * any_word + any_word % np.uint64(2),
        "many inversions among long ties": any_word & ~np.uint64(0x1FFFFFFFF) | any_word % np.uint64(999),
        "buckets of long ties": (any_word % np.uint64(64) << np.uint64(58)) + any_word % np.uint64(2**20),
    }


@pytest.mark.parametrize(("name", "key"), _one_key().items(), ids=str)
@pytest.mark.parametrize("rows", [1, 8192, 8193, None])
def test_order_by_buckets_is_that_of_a_stable_sort(
    name: str, key: npt.NDArray[np.uint64], rows: int | None
) -> None:
    """Every row has a different place, and places sorted by rank are in stable order."""
    key = key[:rows]
    layout = bucket_layout(key)
    assert (layout is None) == (len(key) <= 8192)
    if layout is not None:
        assert np.array_equal(np.sort(layout.places), np.arange(len(key)))
        assert np.array_equal(layout.of_rank, layout.places[np.argsort(key, kind="stable")])


def test_rows_near_each_other_in_the_order_are_near_in_the_layout() -> None:
    """Most ranks are within a bucket's length of their places, in any order of the rows."""
    key = np.random.default_rng(5).normal(size=10 * ROWS).view(np.uint64) >> np.uint64(1)
    layout = bucket_layout(key)
    assert layout is not None
    ranks = np.arange(len(key))
    assert np.abs(np.argsort(key) - ranks).mean() > 100_000
    assert np.abs(layout.of_rank - ranks).max() < 20_000


def test_packed_keys_use_all_bits() -> None:
    """Keys are packed together as long as they fit 64 bits."""
    key = np.array([0, 2**30 - 1], np.uint64)
    assert len(packed([key] * 2)) == 1
    assert len(packed([key] * 3)) == 2
    assert len(packed([key[:0]] * 3)) == 1
    full = np.array([0, 2**64 - 1], np.uint64)
    assert [k.tolist() for k in packed([full, key % np.uint64(1), full])] == [full.tolist(), full.tolist()]


def test_distinct_values_number_their_rows() -> None:
    """Codes index the distinct values; null has the index after the last."""
    column = pa.chunked_array([["b", "a", None], ["a", "c"]])
    codes, values = distinct(column)
    assert [[*values.to_pylist(), None][code] for code in codes] == column.to_pylist()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_keys_of_whole_floats_are_small(kind: pa.DataType) -> None:
    """Also next to NaN and null, which come last: few bits take few passes of the sort, or none."""
    values = pa.array([17.0, 64.0, None, 99.0, float("nan"), 17.0, -0.0, 0.0], pa.float64()).cast(kind)
    (key,) = sort_keys(pa.chunked_array([values]))
    assert key[0] == key[5] > key[6] == key[7] == 0
    assert key[0] < key[1] < key[3] < key[4] < key[2] < 2**18
    (without_zero,) = sort_keys(pa.chunked_array([values.slice(0, 4)]))
    assert without_zero.max() < 2**10
