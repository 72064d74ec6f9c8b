"""Samples of the distance matrix: distinct pairs, each set of them equally likely, drawn by address."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.neighbours import pair_samples
from providers.neighbours.pair_samples import Pairs, draw_pairs, pair_bytes
from providers.randomness.chacha20 import Key
from providers.services.rwn import RwnParams
from tests.naive import chacha20, rwn
from tests.naive.agreement import swap


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many short calls, for which threads would mostly wait for each other."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


def key_of(seed: int) -> Key:
    return np.array([seed, 7, 1, 8, 2, 8, 1, 8], np.uint32)


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    """The pairs that were drawn, as (row, other), twice each."""
    rows = np.repeat(np.arange(len(pairs.starts) - 1), np.diff(pairs.starts))
    return list(zip(rows.tolist(), pairs.others.tolist(), strict=True))


SIZES = [
    (4, 2),
    (5, 2),
    (5, 3),
    (7, 2),
    (17, 3),
    (40, 20),
    (40, 37),
    (300, 2),
    (300, 150),
    (5000, 9),
    (1000, 301),
]


@pytest.mark.parametrize(("rows", "size"), SIZES)
def test_as_many_distinct_pairs_as_wanted(rows: int, size: int) -> None:
    """floor(n m / 2) of them, each serving both its rows, no row paired with itself, others ascending."""
    pairs = draw_pairs(rows, size, key_of(rows), 0)
    drawn = listed(pairs)
    every = rows * (rows - 1) // 2
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) == {(other, row) for row, other in drawn}
    assert all(row != other for row, other in drawn)
    assert drawn == sorted(drawn)
    count = len(drawn) // 2
    assert (every - count if pairs.is_left_out else count) == rows * size // 2
    assert count <= every / 2
    assert pairs.candidates.sum() == rows * size // 2 * 2


@pytest.mark.parametrize(("rows", "size"), [(4, 2), (5, 2), (5, 3)])
def test_every_set_of_pairs_is_equally_likely(rows: int, size: int) -> None:
    """Chi-square over samples: 15 sets of two pairs that are left out, 252 of five, 120 of three left out."""
    every = rows * (rows - 1) // 2
    drawn = min(rows * size // 2, every - rows * size // 2)
    sets = math.comb(every, drawn)
    counts = Counter(frozenset(listed(draw_pairs(rows, size, key_of(seed), 3))) for seed in range(10 * sets))
    assert len(counts) == sets
    chi_square = sum((count - 10) ** 2 / 10 for count in counts.values())
    assert abs(chi_square - (sets - 1)) < 3.5 * math.sqrt(2 * (sets - 1))


@pytest.mark.parametrize("size", [2, 4, 7])
def test_pairs_are_included_alike_and_jointly_so(size: int) -> None:
    """Each pair with n_s / N, any two with n_s (n_s - 1) / (N (N - 1)), with a row in common or not."""
    rows, seeds, every = 10, 1500, 45
    wanted = rows * size // 2
    included = np.zeros((seeds, every))
    numbers = {pair: number for number, pair in enumerate(itertools.combinations(range(rows), 2))}
    for seed in range(seeds):
        pairs = draw_pairs(rows, size, key_of(seed), 0)
        for row, other in listed(pairs):
            if row < other:
                included[seed, numbers[row, other]] = 1
        if pairs.is_left_out:
            included[seed] = 1 - included[seed]
    share = wanted / every
    alone = included.sum(axis=0)
    # The sum is fixed, which takes a degree of freedom: (N - 1) / N of the squares of independent counts.
    chi_square = np.square(alone - seeds * share).sum() / (seeds * share * (1 - share)) * (every - 1) / every
    assert abs(chi_square - (every - 1)) < 3.5 * math.sqrt(2 * (every - 1))
    jointly = (included.T @ included)[np.triu_indices(every, 1)]
    expected = seeds * wanted * (wanted - 1) / (every * (every - 1))
    deviation = math.sqrt(expected * (1 - expected / seeds))
    assert np.abs(jointly - expected).max() < 4.5 * deviation  # of 990 counts
    assert np.square((jointly - expected) / deviation).mean() == pytest.approx(1, abs=0.25)
    shared = np.array([len({*one, *other}) == 3 for one, other in itertools.combinations(numbers, 2)])
    assert jointly[shared].mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("first", "rows"), [(0, 1000), (77, 3), (2**35 - 100, 99), (5, 2**31 - 1), (0, 3 * 2**29)]
)
def test_draws_are_the_words_at_their_addresses(first: int, rows: int) -> None:
    """Words 2 d and 2 d + 1, after 2**32 blocks those of the next level; rejected ones give no pair."""
    found = np.empty(300, np.uint64)
    pair_samples._draw_pairs(key_of(1), 5, first, rows, found)
    key = key_of(1).tolist()
    rejected = 0
    for draw, pair in enumerate(found.tolist(), first):
        level, number = divmod(2 * draw, 2**36)
        number, word = divmod(number, 16)
        one, other = chacha20.block(key, number, [5, 0, level + 3])[word : word + 2]
        one, other = one * rows, other * (rows - 1)
        if one % 2**32 < 2**32 % rows or other % 2**32 < 2**32 % (rows - 1):
            rejected += 1
            assert pair == 2**64 - 1
            continue
        one, other = one >> 32, other >> 32
        other += other >= one
        assert (pair >> 32, pair % 2**32) == (min(one, other), max(one, other))
        assert max(one, other) < rows
    assert (rejected > 0) == (rows == 3 * 2**29)


def test_what_is_drawn_does_not_depend_on_how_many_are_drawn_at_once() -> None:
    """The pairs of a smaller sample are among those of a larger one: one sequence of draws, none left out."""
    drawn = [set(listed(draw_pairs(600, size, key_of(9), 0))) for size in (2, 3, 50, 250)]
    for smaller, larger in itertools.pairwise(drawn):
        assert smaller < larger


def test_parts_draw_pairs_of_their_own() -> None:
    one, other = (set(listed(draw_pairs(100, 10, key_of(9), part))) for part in (0, 1))
    assert len(one & other) < len(one) / 2


def test_memory_is_that_of_the_pairs() -> None:
    """12 bytes a pair, half as many pairs as rows times m; of those left out where these are fewer."""
    assert pair_bytes(10**6, 100) == pytest.approx(12 * 50 * 10**6, rel=0.1)
    assert pair_bytes(1001, 998) < 10**5
    pairs = draw_pairs(20_000, 100, key_of(2), 0)
    assert pairs.others.nbytes + pairs.starts.nbytes < pair_bytes(20_000, 100)


# --------------------------------------------------------------------------------------------- in RWN


def swap_by_pairs(table: pa.Table, size: int, seed: int = 0, **parameters: Any) -> Any:
    given = {"neighbours": "pairs", "sample_size": size, **parameters}
    return swap("RWN", table, given, seed.to_bytes(32, "big"))


@pytest.mark.parametrize("size", [2, 9, 17])
def test_every_other_row_gives_alike(size: int) -> None:
    """All candidates are neighbours: each other row gives as often, whether paired or drawn alone."""
    table = pa.table({"x": np.arange(20)})
    given = np.zeros((20, 20))
    without = 0
    for seed in range(800):
        result = swap_by_pairs(table, size, seed, k=20)
        given[np.arange(20), result.table["x"].to_numpy()] += 1
        without += result.provider["rows_without_pair"]
    assert not given.diagonal().any()
    expected = 800 / 19
    others = given[~np.eye(20, dtype=bool)].reshape(20, 19)
    chi_squares = np.square(others - expected).sum(axis=1) / expected
    assert chi_squares.max() < 51  # 18 degrees of freedom; 1 in 10 000 is above 48.5
    assert chi_squares.mean() == pytest.approx(18, abs=4)
    assert (without > 800) == (size == 2)


def test_rows_of_too_few_pairs_are_counted() -> None:
    """A share e^-m has no pair; rows with 1 to k - 1 candidates have as many neighbours."""
    table = pa.table({"x": np.arange(10_000.0)})
    result = swap_by_pairs(table, 2, k=4)
    figures = result.provider
    assert figures["rows_without_pair"] / 10_000 == pytest.approx(math.exp(-2), abs=0.01)
    below = sum(math.exp(-2) * 2**j / math.factorial(j) for j in (1, 2, 3))
    assert figures["rows_below_k"] / 10_000 == pytest.approx(below, abs=0.015)
    assert figures["neighbourhood_size"]["smallest"] == 1
    assert figures["neighbourhood_size"]["largest"] == 4
    assert figures["effective_k"] == 20_000
    assert result.summary.changed == {"x": 10_000}
    many = swap_by_pairs(table, 60, k=4).provider
    assert (many["rows_without_pair"], many["rows_below_k"]) == (0, 0)
    assert "rows_below_k" not in swap("RWN", table, {}).provider


def test_all_pairs_are_exact() -> None:
    """m of n - 1 or more; two rows have one pair, and fewer others than k are counted."""
    table = pa.table({"x": np.arange(50.0), "y": np.arange(50) * 7 % 11})
    for size in (49, 50, 1000):
        result = swap_by_pairs(table, size)
        assert result.table.equals(swap("RWN", table, {}, bytes(32)).table)
        assert result.provider["rows_below_k"] == 0
    pair = swap_by_pairs(table.slice(0, 2), 2)
    assert pair.table["x"].to_pylist() == [1.0, 0.0]
    assert pair.provider["rows_below_k"] == 2
    assert not swap_by_pairs(table.slice(0, 0), 2).provider["rows_below_k"]


def test_effective_k_within_parts() -> None:
    """k n / m of samples in parts, and k u where a part's rows are all in the sample."""
    table = pa.table({"x": np.arange(1000)})
    for within in ("sample", "own_sample", "pairs"):
        given = {"neighbours": "partition", "parts": 4, "within": within}
        assert swap("RWN", table, given | {"sample_size": 50}).provider["effective_k"] == 100
        assert swap("RWN", table, given | {"sample_size": 900}).provider["effective_k"] == 20


@pytest.mark.parametrize("within", ["sample", "own_sample", "pairs"])
def test_nobody_gives_beyond_the_part(within: str) -> None:
    """The parts are those of `within` `exact`, and of a common sample only that gives."""
    table = pa.table({"x": np.zeros(1000), "row": np.arange(1000)})
    shared = {"distance_fields": ["x"], "perturb_fields": ["row"], "neighbours": "partition", "parts": 5}
    params = RwnParams.model_validate(shared)
    part_of = np.empty(1000, np.int64)
    for part, (members, _, _) in enumerate(
        rwn.parts(1000, params, bytes(32), PROVIDERS["RWN"].draws_revision)
    ):
        part_of[members] = part
    given = shared | {"within": within, "sample_size": 20}
    moved = swap("RWN", table, given, bytes(32)).table["row"].to_numpy()
    assert (part_of[moved] == part_of).all()
    givers = [len(set(moved[part_of == part].tolist())) for part in range(5)]
    assert (max(givers) <= 20) == (within == "sample")
