"""Ranks, domination and derived seeds, against plain twins and scipy."""

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from providers.choosing.domination import dominated
from providers.choosing.ranking import Goal, best, mean_ranks, ranks
from providers.choosing.seeds import candidate_seed, derived_seed, point_seed
from tests.naive import choosing as naive

GOALS = st.sampled_from(["low", "high"])
FEW_NUMBERS = st.sampled_from([-1.5, -0.0, 0.0, 0.1, 0.25, 1.0, 7.0, 1e300])
NUMBERS = FEW_NUMBERS | st.floats(allow_nan=False, allow_infinity=False)
UNDEFINED = st.none() | st.just(math.nan)
MASTER = bytes(range(32))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=25), st.tuples(GOALS, GOALS))
def test_domination_is_what_its_definition_says(
    points: list[tuple[float, float]], goals: tuple[Goal, Goal]
) -> None:
    """The sweep finds what comparing every pair finds."""
    assert dominated(points, goals).tolist() == naive.dominated(points, goals)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=25), st.tuples(GOALS, GOALS))
def test_every_dominated_point_is_dominated_by_one_that_is_not(
    points: list[tuple[float, float]], goals: tuple[Goal, Goal]
) -> None:
    """There is always a point that nothing dominates, and the marked ones can be left out."""
    found = dominated(points, goals)
    kept = [point for point, out in zip(points, found, strict=True) if not out]
    assert kept
    for point, out in zip(points, found, strict=True):
        assert naive.dominated([*kept, point], goals)[-1] == out


def test_equal_points_are_both_kept() -> None:
    """Neither is better than the other."""
    assert dominated([(1, 2), (1, 2), (1, 3), (2, 2)]).tolist() == [False, False, True, True]


@given(st.lists(NUMBERS, min_size=1, max_size=25))
def test_ranks_are_those_of_scipy(values: list[float]) -> None:
    """Equal values share the mean of their ranks; a high goal turns the order round."""
    assert ranks(values, "low").tolist() == rankdata(values).tolist()
    assert ranks(values, "high").tolist() == rankdata(-np.array(values)).tolist()


@given(st.lists(NUMBERS | UNDEFINED, min_size=1, max_size=25), GOALS)
def test_an_undefined_figure_ranks_last(values: list[float | None], goal: Literal["low", "high"]) -> None:
    """Whatever the goal: a candidate cannot win by a figure that it does not have."""
    assert ranks(values, goal).tolist() == naive.ranks(values, goal)


@given(
    st.integers(1, 12).flatmap(
        lambda count: st.lists(
            st.tuples(st.lists(NUMBERS, min_size=count, max_size=count), GOALS), min_size=1, max_size=4
        )
    )
)
def test_the_best_has_the_least_mean_of_ranks(columns: list[tuple[list[float], Goal]]) -> None:
    """And is the first of those that have it, in whatever order the figures are named."""
    found = mean_ranks(columns)
    expected = np.mean(
        [rankdata(values if goal == "low" else -np.array(values)) for values, goal in columns], axis=0
    )
    assert found == pytest.approx(expected.tolist())
    assert best(found) == found.index(min(found))
    for order in itertools.permutations(columns):
        assert best(mean_ranks(order)) == best(found)


def test_the_first_candidate_has_the_master_seed() -> None:
    """So one candidate is the plain run."""
    assert candidate_seed(MASTER, 0) == MASTER


def test_derived_seeds_differ_by_name_and_by_master() -> None:
    """No two names share a seed, however they are cut into parts."""
    names = [("candidate", "1"), ("candidate", "11"), ("candidate1", "1"), ("candidate",), ("",), ("", "")]
    names += [("point", "DSWAP", "{}", "1"), ("point", "DSWAP{", "}", "1")]
    seeds = [derived_seed(master, *name) for master in (MASTER, bytes(32)) for name in names]
    assert len(set(seeds)) == len(seeds)
    assert all(len(seed) == 32 for seed in seeds)


def test_a_points_seed_is_that_of_its_parameters_not_of_their_order() -> None:
    """Names in another order are the same parameters."""
    one = point_seed(MASTER, "MEDS", {"k": 3, "swap_fields": ["é"]}, 0)
    assert one == point_seed(MASTER, "MEDS", {"swap_fields": ["é"], "k": 3}, 0)
    others = [
        point_seed(MASTER, "MEDS", {"k": 4, "swap_fields": ["é"]}, 0),
        point_seed(MASTER, "MEWS", {"k": 3, "swap_fields": ["é"]}, 0),
        point_seed(MASTER, "MEDS", {"k": 3, "swap_fields": ["é"]}, 1),
    ]
    assert len({one, *others}) == 4


def test_derived_seeds_stay_what_they_are() -> None:
    """Written down: a change would break the reruns of stored jobs."""
    assert candidate_seed(MASTER, 1).hex()[:32] == "aef0baa7b31a80c8faf840e5650bec67"
    assert point_seed(MASTER, "DSWAP", {"rate": 0.5}, 0).hex()[:32] == "3bf5d6559aa1cbe6d40315a077ef231d"
