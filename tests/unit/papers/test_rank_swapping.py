"""Rank swapping as a plain peer: distance of partners, coded tails, reach that preserves correlation."""

import numpy as np
import pytest

from benchmarks.papers.peers.rank_swapping import rank_swap


def test_values_move_less_than_the_reach() -> None:
    """Without coding each field keeps its values, and no rank changes by the reach."""
    source = np.random.default_rng(1).permuted(np.tile(np.arange(200.0), (3, 1)), axis=1).T
    released = rank_swap(source, np.random.default_rng(2), reach=0.1, tail=0.0)
    assert np.array_equal(np.sort(released, axis=0), np.sort(source, axis=0))
    moved = np.abs(released - source)
    assert 15 <= moved.max() < 20
    assert (moved > 0).mean() > 0.95


def test_tails_are_coded_by_their_means() -> None:
    """The five largest and smallest of a hundred; others keep their distance."""
    source = np.arange(100.0)[:, None]
    released = rank_swap(source, np.random.default_rng(3), reach=0.2)[:, 0]
    assert set(released[:5]) == {2.0}
    assert set(released[95:]) == {97.0}
    assert sorted(released[5:95]) == list(range(5, 95))


def test_reach_that_preserves_a_correlation() -> None:
    """Uniform values: sqrt(2 / 12 * (1 - R0)) of the range, so that R0 = 0.88 gives 0.14 of the rows."""
    source = np.arange(1000.0)[:, None]
    released = rank_swap(source, np.random.default_rng(4), preservation=0.88, tail=0.0)
    assert 130 <= np.abs(released - source).max() <= 142
    with pytest.raises(ValueError, match="either"):
        rank_swap(source, np.random.default_rng(4))
