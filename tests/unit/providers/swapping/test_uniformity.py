"""Chi-square tests, at fixed seeds, that the pairs of a group are uniform over all matchings."""

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from providers.grouping.groups import Groups, Pairing
from providers.grouping.large_groups import BucketRange, LargeGroup
from providers.grouping.shuffle import BUCKET_BITS, ONE_BUCKET, shuffle_groups
from providers.randomness.chacha20 import Stream
from providers.swapping.exchange import sources
from tests.naive.pairing import moving_rows

ALPHA = 1e-3
"""Significance level: a test fails for one seed in a thousand. Seeds are fixed."""


def many_groups(size: int, count: int) -> Groups:
    starts = np.arange(count + 1, dtype=np.int64) * size
    return Groups(
        size * count, np.arange(size * count, dtype=np.int32), starts, np.arange(count, dtype=np.uint64)
    )


def outcomes(pairing: Pairing, size: int) -> Counter[tuple[int, ...]]:
    """Count each permutation of a group's rows."""
    rows = pairing.groups.rows
    source = sources(pairing).reshape(-1, size) - np.arange(0, rows, size)[:, np.newaxis]
    return Counter(map(tuple, source.tolist()))


@pytest.mark.parametrize(
    ("size", "matchings"), [(2, 1), (3, 2), (4, 3), (5, 20), (6, 15), (7, 210), (8, 105)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_matchings_are_uniform(size: int, matchings: int, seed: int) -> None:
    """All perfect matchings, with a cycle of three in either direction if odd, are equally frequent."""
    key = Stream(bytes([seed] * 32), "DSWAP", 1).key("exchange")
    found = outcomes(shuffle_groups(many_groups(size, 40_000), key, 1.0), size)
    assert len(found) == matchings
    for source in found:  # every row moves; pairs are mutual, but for one cycle of three
        assert all(row != origin for row, origin in enumerate(source))
        mutual = sum(source[origin] == row for row, origin in enumerate(source))
        assert mutual == (size if size % 2 == 0 else size - 3)
    if matchings > 1:
        assert stats.chisquare(list(found.values())).pvalue > ALPHA


RATES = [0.05, 0.3, 0.5, 0.6, 2 / 3, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999]


@pytest.mark.parametrize("size", range(2, 10))
@pytest.mark.parametrize("rate", RATES)
def test_rate_is_unbiased(size: int, rate: float) -> None:
    """The number of moving rows has two possible values, with mean exactly rate m."""
    groups = 40_000
    key = Stream(bytes([3] * 32), "DSWAP", 1).key("exchange")
    pairing = shuffle_groups(many_groups(size, groups), key, rate)
    wanted = rate * size
    low, high = neighbours_of(wanted, size)
    drawn = Counter(pairing.took_part.tolist())
    assert set(drawn) <= {low, high}
    if low == high:
        assert drawn == {low: groups}
        return
    chance = (wanted - low) / (high - low)
    assert stats.binomtest(drawn[high], groups, min(chance, 1.0)).pvalue > ALPHA
    # In numbers of rows: within four standard errors of rate m, which are at most 0.02 rows
    error = (high - low) * math.sqrt(chance * (1 - chance) / groups)
    assert abs(pairing.took_part.mean() - wanted) <= 4 * error <= 0.02


def neighbours_of(wanted: float, size: int) -> tuple[int, int]:
    """Possible numbers of moving rows: the even ones around the wanted number, or all of an odd group."""
    possible = [*range(0, size, 2), size] if size % 2 else list(range(0, size + 1, 2))
    low = max(number for number in possible if number <= wanted + 1e-9)
    high = min(number for number in possible if number >= wanted - 1e-9)
    return low, high


@pytest.mark.parametrize("size", range(2, 10))
@pytest.mark.parametrize("rate", RATES)
def test_expected_rows_by_enumeration(size: int, rate: float) -> None:
    """Averaged over all steps of u, the twin's rule moves rate m rows, up to the width of a step."""
    steps = 6000
    moving = [moving_rows(size, rate, (step + 0.5) / steps) for step in range(steps)]
    assert sum(moving) / steps == pytest.approx(rate * size, abs=2 / steps)
    assert all(number % 2 == 0 or number == size for number in moving)


@pytest.mark.parametrize(("size", "rate"), [(4, 0.5), (5, 0.5), (6, 0.4), (3, 0.6)])
def test_a_single_pair_is_uniform(size: int, rate: float) -> None:
    """If a single pair of a group moves, all pairs are equally frequent."""
    key = Stream(bytes([3] * 32), "DSWAP", 1).key("exchange")
    found = outcomes(shuffle_groups(many_groups(size, 40_000), key, rate), size)
    one_pair = [
        count for source, count in found.items() if sum(row != s for row, s in enumerate(source)) == 2
    ]
    assert len(one_pair) == size * (size - 1) // 2
    assert stats.chisquare(one_pair).pvalue > ALPHA


def test_both_cycles_of_three_below_rate_one() -> None:
    """All rows of a group of three at rate .99 move, in either direction, in 97 of 100 cases."""
    key = Stream(bytes([4] * 32), "DSWAP", 1).key("exchange")
    found = outcomes(shuffle_groups(many_groups(3, 40_000), key, 0.99), 3)
    assert len(found) == 5  # two cycles and three pairs: one pair moves at least
    cycles = [found[1, 2, 0], found[2, 0, 1]]
    assert stats.binomtest(sum(cycles), 40_000, 0.97).pvalue > ALPHA
    assert stats.chisquare(cycles).pvalue > ALPHA


@pytest.mark.parametrize("rows", [101, ONE_BUCKET + 2, 3 * ONE_BUCKET + 2])
def test_rate_of_a_large_odd_group(rows: int) -> None:
    """If m - .4 rows are wanted, all rows move in 6 of 10 cases, also in ranges of buckets."""
    rows += 1 - rows % 2
    rate = 1 - 0.4 / rows
    groups = Groups(
        rows, np.arange(rows, dtype=np.int32), np.array([0, rows], np.int64), np.zeros(1, np.uint64)
    )
    took_part = []
    for seed in range(60):
        key = Stream(bytes([seed] * 32), "DSWAP", 1).key("exchange")
        whole = shuffle_groups(groups, key, rate)
        took_part.append(int(whole.took_part[0]))
        if rows > ONE_BUCKET and seed < 6:
            large = LargeGroup(rows, 0, key, rate)
            parts = [large.pairing(part, of_range(large, part)) for part in large.ranges(rows // 3)]
            assert sum(int(part.took_part[0]) for part in parts) == took_part[-1]
    assert set(took_part) == {rows - 1, rows}
    assert stats.binomtest(took_part.count(rows), 60, 0.6).pvalue > ALPHA


def of_range(large: LargeGroup, part: BucketRange) -> npt.NDArray[np.int32]:
    """Return the buckets of the rows of a range, in listing order."""
    buckets = large.buckets(0, large.rows)
    return buckets[(buckets >= part.first) & (buckets < part.first + len(part.sizes))]


@pytest.mark.parametrize(
    ("service", "purpose", "size", "rate", "moved"),
    [
        ("DSWAP", "exchange/n", 10, 1.0, [2, 7, 0, 5, 9, 3, 8, 1, 6, 4]),
        ("DSWAP", "exchange", 11, 0.5, [0, 7, 2, 3, 9, 5, 6, 1, 10, 4, 8]),
    ],
)
def test_other_rates_are_as_they_were(
    service: str, purpose: str, size: int, rate: float, moved: list[int]
) -> None:
    """The rule for odd groups changed nothing else: these are the bytes under the keys of revision 1."""
    key = Stream(bytes(range(32)), service, 1).key(purpose)
    assert sources(shuffle_groups(many_groups(size, 1), key, rate)).tolist() == moved


def test_large_groups_are_uniform_in_position() -> None:
    """Every row of a group that is shuffled by buckets is equally likely in any tenth of the order."""
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
    """Distances between partners are those of two uniform rows: a bucket is no neighbourhood of rows."""
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
    """Two classes of equal size get different permutations."""
    key = Stream(bytes(32), "CDSWAP", 1).key("exchange")
    found = outcomes(shuffle_groups(many_groups(40, 50), key, 1.0), 40)
    assert len(found) == 50
