"""Buffers of a swap, which pass from the random order to the values of the last field."""

import numpy as np
import pytest

from providers.grouping.groups import ORDER, BufferPool
from providers.grouping.shuffle import shuffle_groups
from providers.randomness.chacha20 import Stream
from providers.services.dswap import whole_table
from providers.swapping.exchange import exchange

KEY = Stream(bytes(32), "DSWAP", 2).key("exchange/a")


@pytest.mark.parametrize(
    ("count", "kind", "is_taken"),
    [(10, np.uint64, True), (10, np.uint32, True), (10, np.uint16, False), (11, np.uint64, False)],
)
def test_a_buffer_is_taken_if_it_is_neither_too_small_nor_much_too_large(
    count: int, kind: type[np.generic], is_taken: bool
) -> None:
    pool = BufferPool()
    first = pool.array(ORDER, 10, np.dtype(np.uint64))
    taken = pool.taken(ORDER, count, np.dtype(kind))
    assert (taken is not None) == is_taken
    if taken is not None:
        assert taken.dtype == np.dtype(kind)
        assert taken.shape == (count,)
        assert np.shares_memory(taken, first)
        assert not np.shares_memory(pool.array(ORDER, 10, np.dtype(np.uint64)), first)


def test_a_pool_without_the_buffer_gives_none() -> None:
    assert BufferPool().taken(ORDER, 1, np.dtype(np.uint64)) is None


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("rows", [300, 20_000])
def test_values_of_the_last_field_stay_the_same_in_the_buffer_of_the_order(
    rows: int, kind: type[np.generic]
) -> None:
    """Two fields that share a pool, as in a swap: the second must not write to the values of the first."""
    values = np.arange(rows).astype(kind)
    values.flags.writeable = False
    expected, changed = exchange(values, shuffle_groups(whole_table(rows), KEY, 1.0))
    pool = BufferPool()
    moved = []
    for _ in range(2):
        pairing = shuffle_groups(whole_table(rows), KEY, 1.0, workspace=pool)
        moved.append(exchange(values, pairing, last=False, workspace=pool))
        moved.append(exchange(values, pairing, last=True, workspace=pool))
    for found, differing in moved:
        np.testing.assert_array_equal(found, expected)
        assert differing == changed
