"""The order of rows by keys, against numpy's stable sort."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from providers.ordering import distinct, packed, sort_keys
from providers.radix import radix_order, radix_runs

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
        "several": [few, low % np.uint64(3), any_word >> np.uint64(40)],
        "constant among others": [few, np.zeros(ROWS, np.uint64), low],
    }


@pytest.mark.parametrize(("name", "keys"), _keys().items(), ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 33, 1000, ROWS])
def test_order_is_stable_and_ascending(name: str, keys: list[npt.NDArray[np.uint64]], rows: int) -> None:
    """The order of a stable sort, and the runs of equal keys in it; packing changes neither."""
    some = [key[:rows].copy() for key in keys]
    order = radix_order(some)
    assert np.array_equal(order, np.lexsort(some[::-1]))
    again, starts = radix_runs(some)
    assert np.array_equal(again, order)
    rising = np.any([key[order[1:]] != key[order[:-1]] for key in some], axis=0)
    wanted = [*([0] if rows else []), *(np.flatnonzero(rising) + 1).tolist(), rows]
    assert starts.tolist() == wanted
    assert np.array_equal(radix_order(packed(some)), order)


def test_packed_keys_use_all_bits() -> None:
    """Keys are joined while they fit 64 bits, and no further."""
    key = np.array([0, 2**30 - 1], np.uint64)
    assert len(packed([key] * 2)) == 1
    assert len(packed([key] * 3)) == 2
    assert len(packed([key[:0]] * 3)) == 1
    full = np.array([0, 2**64 - 1], np.uint64)
    assert [k.tolist() for k in packed([full, key % np.uint64(1), full])] == [full.tolist(), full.tolist()]


def test_distinct_values_number_their_rows() -> None:
    """Codes look up the values; null has the number after the last."""
    column = pa.chunked_array([["b", "a", None], ["a", "c"]])
    codes, values = distinct(column)
    assert [[*values.to_pylist(), None][code] for code in codes] == column.to_pylist()
