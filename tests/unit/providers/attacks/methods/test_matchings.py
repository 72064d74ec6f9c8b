"""Posteriors of exchanges against the list of all permutations, and belief propagation against both."""

import numpy as np
import pytest

from providers.attacks.methods import matchings
from providers.attacks.methods.matchings import Beliefs, beliefs, moving_rows
from tests.naive import method_attacks as naive

Codes = np.ndarray[tuple[int], np.dtype[np.int64]]


def drawn(rows: int, rate: float, values: int, seed: int) -> tuple[Codes, Codes]:
    """Shown and true values of a group after one of the exchanges that a service draws."""
    random = np.random.default_rng(seed)
    listed = naive.distribution(rows, rate)
    sources = list(listed)[random.choice(len(listed), p=list(listed.values()))]
    true = random.integers(0, values, rows)
    return true[list(sources)], true


def matrix(found: Beliefs, rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Chance of each row to show each row's value."""
    return np.stack([found.of_row(row) for row in range(rows)])


@pytest.mark.parametrize("rate", [1.0, 0.9, 0.5, 0.1])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6, 7])
def test_small_groups_equal_all_permutations(rows: int, rate: float) -> None:
    for seed in range(5):
        shown, true = drawn(rows, rate, 4, seed)
        known = {row: int(true[row]) for row in range(0, rows, 3)}
        codes = np.array([known.get(row, -1) for row in range(rows)])
        expected = naive.posterior(shown.tolist(), known, rate)
        assert expected is not None
        found = beliefs(shown, codes, rate)
        assert found.exact
        assert matrix(found, rows) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize(("size", "rate"), [(1, 0.5), (2, 0.3), (7, 0.95), (7, 0.3), (8, 0.97), (9, 1.0)])
def test_numbers_of_moving_rows(size: int, rate: float) -> None:
    """The mean is the rate, unless a single row cannot move or a rounded pair is one too many."""
    listed = naive.distribution(size, rate) if size > 1 else {(0,): 1.0}
    expected: dict[int, float] = {}
    for sources, share in listed.items():
        moving = sum(row != source for row, source in enumerate(sources))
        expected[moving] = expected.get(moving, 0.0) + share
    assert moving_rows(size, rate) == pytest.approx(expected)


def test_a_known_value_is_followed_to_its_partner() -> None:
    """One known row of a block of four distinct values fixes its partner, and so the other pair."""
    shown = np.array([11, 10, 13, 12])
    found = beliefs(shown, np.array([10, -1, -1, -1]), 1.0)
    assert matrix(found, 4).argmax(axis=1).tolist() == [1, 0, 3, 2]
    assert matrix(found, 4).max(axis=1) == pytest.approx(1.0)


def test_a_value_that_no_exchange_explains_is_ignored() -> None:
    """A suppressed value is shown nowhere; two values that exclude each other are both ignored."""
    shown = np.array([1, 2, 3, 4])
    nothing = matrix(beliefs(shown, np.array([-1, -1, -1, -1]), 1.0), 4)
    assert matrix(beliefs(shown, np.array([9, -1, -1, -1]), 1.0), 4) == pytest.approx(nothing)
    assert matrix(beliefs(shown, np.array([2, 3, -1, -1]), 1.0), 4) == pytest.approx(nothing)


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize("values", [2, 5, 30])
def test_propagation_between_kinds_equals_that_between_rows(rate: float, values: int) -> None:
    """Rows that are certain partners converge slowly, hence the tolerance."""
    random = np.random.default_rng(values)
    rows = 14
    true = random.integers(0, values, rows)
    order = random.permutation(rows)
    shown = true.copy()
    for one, two in order[: 2 * round(rate * rows / 2)].reshape(-1, 2):
        shown[[one, two]] = true[[two, one]]
    codes = np.full(rows, -1)
    codes[::3] = true[::3]
    assert not beliefs(shown, codes, rate).exact
    known = {row: int(codes[row]) for row in range(rows) if codes[row] != -1}
    (staying,) = matchings._weights_of_staying(np.array([rate]), np.array([float(rows)]))
    expected = naive.belief_propagation(shown.tolist(), known, float(staying), rounds=1500)
    assert matrix(beliefs(shown, codes, rate), rows) == pytest.approx(np.array(expected), abs=1e-3)


@pytest.mark.parametrize("rows", [8, 10])
def test_propagation_is_near_the_exact_posterior(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """The mean difference is below two points; without knowledge it is exact."""
    differences = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        true = random.integers(0, 6, rows)
        order = random.permutation(rows).reshape(-1, 2)
        shown = true.copy()
        for one, two in order:
            shown[[one, two]] = true[[two, one]]
        codes = np.full(rows, -1)
        codes[:2] = true[:2]
        exact = matrix(beliefs(shown, codes, 1.0), rows)
        with monkeypatch.context() as patch:
            patch.setattr(matchings, "MOST_LISTED", 0)
            found = beliefs(shown, codes, 1.0)
            nothing = beliefs(shown, np.full(rows, -1), 1.0)
        assert not found.exact
        differences.append(np.abs(matrix(found, rows) - exact).mean())
        even = (np.ones((rows, rows)) - np.eye(rows)) / (rows - 1)
        assert matrix(nothing, rows) == pytest.approx(even, abs=1e-6)
    assert np.mean(differences) < 0.02


def test_a_large_group_is_propagated_by_kinds() -> None:
    """50,000 rows of two values are six kinds; every row's beliefs add up to 1."""
    random = np.random.default_rng(1)
    shown = random.integers(0, 2, 50_000)
    codes = np.full(50_000, -1)
    codes[:5000] = random.integers(0, 2, 5000)
    found = beliefs(shown, codes, 1.0)
    assert len(found.own) == 6
    for row in (0, 1, 4999, 5000, 49_999):
        assert found.of_row(row).sum() == pytest.approx(1.0)


def test_more_kinds_than_fit_are_reduced() -> None:
    """Fewer known rows are used, so that messages stay within memory."""
    rows = 6000
    true = np.arange(rows)
    order = np.random.default_rng(2).permutation(rows).reshape(-1, 2)
    shown = true.copy()
    for one, two in order:
        shown[[one, two]] = true[[two, one]]
    found = beliefs(shown, np.where(true % 2, true, -1), 1.0)
    assert len(found.own) <= matchings.MOST_KINDS
