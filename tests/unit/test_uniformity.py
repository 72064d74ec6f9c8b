"""The pairs of a group are uniform over all matchings, at fixed seeds: chi-square, not assumed."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from providers.groups import Groups, Pairing
from providers.kernels import BUCKET_BITS, ONE_BUCKET, shuffle_groups, sources
from providers.rng import Stream

ALPHA = 1e-3
"""Each test fails once in a thousand seeds; the seeds are fixed, so that it fails never or always."""


def many_groups(size: int, count: int) -> Groups:
    starts = np.arange(count + 1, dtype=np.int64) * size
    return Groups(
        size * count, np.arange(size * count, dtype=np.int32), starts, np.arange(count, dtype=np.uint64)
    )


def outcomes(pairing: Pairing, size: int) -> Counter[tuple[int, ...]]:
    """How often each permutation of a group's rows came out."""
    rows = pairing.groups.rows
    source = sources(pairing).reshape(-1, size) - np.arange(0, rows, size)[:, np.newaxis]
    return Counter(map(tuple, source.tolist()))


@pytest.mark.parametrize(
    ("size", "matchings"), [(2, 1), (3, 2), (4, 3), (5, 20), (6, 15), (7, 210), (8, 105)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_matchings_are_uniform(size: int, matchings: int, seed: int) -> None:
    """All perfect matchings, with a cycle of three (in both directions) for odd sizes, equally often."""
    key = Stream(bytes([seed] * 32), "DSWAP", 1).key("exchange")
    found = outcomes(shuffle_groups(many_groups(size, 40_000), key, 1.0), size)
    assert len(found) == matchings
    for source in found:  # every row moves; pairs are mutual, but for one cycle of three
        assert all(row != origin for row, origin in enumerate(source))
        mutual = sum(source[origin] == row for row, origin in enumerate(source))
        assert mutual == (size if size % 2 == 0 else size - 3)
    if matchings > 1:
        assert stats.chisquare(list(found.values())).pvalue > ALPHA


@pytest.mark.parametrize(("size", "rate"), [(4, 0.5), (5, 0.5), (6, 0.4), (3, 0.6), (2, 0.3)])
def test_rate_is_unbiased_in_small_groups(size: int, rate: float) -> None:
    """On average the share of rows that takes part is the rate, as far as pairs of rows allow."""
    groups = 40_000
    key = Stream(bytes([3] * 32), "DSWAP", 1).key("exchange")
    pairing = shuffle_groups(many_groups(size, groups), key, rate)
    wanted = rate * size / 2
    low = int(wanted)
    chance = wanted - low  # of one pair more
    pairs = Counter(pairing.pairs.tolist())
    assert set(pairs) <= {low, low + 1}
    assert stats.binomtest(pairs[low + 1], groups, chance).pvalue > ALPHA
    found = outcomes(pairing, size)  # and which rows they are is uniform
    one_pair = [
        count for source, count in found.items() if sum(row != s for row, s in enumerate(source)) == 2
    ]
    if len(one_pair) > 1:
        assert len(one_pair) == size * (size - 1) // 2
        assert stats.chisquare(one_pair).pvalue > ALPHA


def test_rate_never_exceeds_the_group() -> None:
    """Close to rate 1 an odd group exchanges at most m / 2 pairs."""
    key = Stream(bytes(32), "DSWAP", 1).key("exchange")
    assert set(shuffle_groups(many_groups(3, 1000), key, 0.999).pairs.tolist()) == {1}


def test_large_groups_are_uniform_in_position() -> None:
    """In a group put in order by buckets every row is as likely to stand in any tenth of the order."""
    size = ONE_BUCKET * 8 + 1
    order = np.arange(size, dtype=np.int32)
    starts = np.array([0, size], np.int64)
    table = np.zeros((10, 10), np.int64)
    for seed in range(20):
        key = Stream(bytes([seed] * 32), "DSWAP", 1).key("exchange")
        pairing = shuffle_groups(Groups(size, order, starts, np.zeros(1, np.uint64)), key, 1.0)
        place = np.empty(size, np.int64)
        place[pairing.order] = np.arange(size)
        np.add.at(table, (np.arange(size) * 10 // size, place * 10 // size), 1)
    assert stats.chi2_contingency(table).pvalue > ALPHA


def test_large_groups_pair_across_buckets() -> None:
    """How far apart partners are is as for two uniform rows: a bucket is no neighbourhood of rows."""
    size = ONE_BUCKET * 4
    assert size >> BUCKET_BITS > 2
    groups = Groups(
        size, np.arange(size, dtype=np.int32), np.array([0, size], np.int64), np.zeros(1, np.uint64)
    )
    source = sources(shuffle_groups(groups, Stream(bytes(32), "DSWAP", 1).key("exchange"), 1.0))
    first = np.flatnonzero(source > np.arange(size))  # each pair once
    distance = (source[first] - first) / size
    assert stats.kstest(distance, lambda d: 1 - (1 - d) ** 2).pvalue > ALPHA
    assert stats.kstest(first / size, lambda x: 1 - (1 - x) ** 2).pvalue > ALPHA  # the lesser of two


def test_groups_of_one_size_get_different_orders() -> None:
    """Two classes of equal size are not permuted alike."""
    key = Stream(bytes(32), "CDSWAP", 1).key("exchange")
    found = outcomes(shuffle_groups(many_groups(40, 50), key, 1.0), 40)
    assert len(found) == 50
