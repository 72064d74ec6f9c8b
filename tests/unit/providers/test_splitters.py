"""Places of keys among splitters: compared, in buckets, and searched for."""

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.out_of_core.splitters import places

FEW, MANY = 5, 40
"""Numbers of splitters below and above the number from which buckets are used."""

TINY = float(np.nextafter(0.0, 1.0))

ELEMENTS: dict[type, st.SearchStrategy[Any]] = {
    np.uint64: st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1), st.integers(2**64 - 30, 2**64 - 1)),
    np.int32: st.one_of(st.integers(-30, 30), st.integers(-(2**31), 2**31 - 1)),
    np.int64: st.integers(-(2**53), 2**53),
    np.float64: st.one_of(
        st.integers(-30, 30).map(float),
        st.floats(0.0, 1.0),
        st.floats(allow_nan=False),
        st.sampled_from([0.0, -0.0, TINY, 2 * TINY, -1.7e308, 1.7e308]),
    ),
}


def by_bisection(splitters: list[Any], keys: list[Any]) -> tuple[list[int], list[int]]:
    """Return the number of splitters at or before each key, and the places of the keys that are one."""
    return [bisect_right(splitters, key) for key in keys], [
        place for place, key in enumerate(keys) if key in splitters
    ]


@pytest.mark.parametrize("kind", ELEMENTS)
@pytest.mark.parametrize("most", [FEW, MANY])
@given(data=st.data())
def test_places_are_those_of_a_binary_search(kind: type, most: int, data: st.DataObject) -> None:
    """Equal splitters, keys outside their range, and ranges that overflow or vanish."""
    several = st.lists(ELEMENTS[kind], min_size=1 if most == FEW else FEW, max_size=most)
    splitters = sorted(data.draw(several) * (1 if most == FEW else 4))
    keys = data.draw(st.lists(st.one_of(ELEMENTS[kind], st.sampled_from(splitters)), max_size=40))
    parts, tied = places(np.array(splitters, kind), np.array(keys, kind), wants_ties=True)
    expected, expected_tied = by_bisection(splitters, keys)
    assert parts.tolist() == expected
    assert tied.tolist() == expected_tied
    parts, tied = places(np.array(splitters, kind), np.array(keys, kind), wants_ties=False)
    assert parts.tolist() == expected
    assert not len(tied)


@pytest.mark.parametrize("kind", [np.uint64, np.float64])
def test_many_keys_in_many_buckets(kind: type) -> None:
    keys: npt.NDArray[Any] = np.random.default_rng(1).integers(0, 10**6, 20_000).astype(kind)
    splitters = np.sort(keys[:300])
    parts, tied = places(splitters, keys, wants_ties=True)
    expected, expected_tied = by_bisection(splitters.tolist(), keys.tolist())
    assert parts.tolist() == expected
    assert tied.tolist() == expected_tied
