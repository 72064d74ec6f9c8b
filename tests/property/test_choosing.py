"""Ranks, domination and derived seeds, against plain twins and scipy."""

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from providers.measures.risk.changed_share import share_different
from providers.measures.risk.interval_sd import share_near
from providers.measures.shared.measure import Goal
from providers.selection.eligibility import Entry, eligibilities
from providers.selection.ranking import Estimate, beaten_points, best, mean_ranks, ranks
from providers.selection.seeds import candidate_seed, derived_seed, point_seed
from tests.naive import choosing as naive

GOALS = st.sampled_from(["low", "high"])
FEW_NUMBERS = st.sampled_from([-1.5, -0.0, 0.0, 0.1, 0.25, 1.0, 7.0, 1e300])
NUMBERS = FEW_NUMBERS | st.floats(allow_nan=False, allow_infinity=False)
UNDEFINED = st.none() | st.just(math.nan)
MASTER = bytes(range(32))


def dominated(points: list[tuple[float, float]], goals: tuple[Goal, Goal] = ("low", "low")) -> list[bool]:
    return [one.clearly for one in beaten_points([exact(point) for point in points], goals)]


def exact(point: tuple[float, float]) -> tuple[Estimate, Estimate]:
    return Estimate(point[0]), Estimate(point[1])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=25), st.tuples(GOALS, GOALS))
def test_domination_is_what_its_definition_says(
    points: list[tuple[float, float]], goals: tuple[Goal, Goal]
) -> None:
    """Without intervals a point is dominated by its values alone."""
    assert dominated(points, goals) == naive.dominated(points, goals)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=25), st.tuples(GOALS, GOALS))
def test_every_dominated_point_is_dominated_by_one_that_is_not(
    points: list[tuple[float, float]], goals: tuple[Goal, Goal]
) -> None:
    """Some point is never dominated, and dropping dominated points changes nothing."""
    found = dominated(points, goals)
    kept = [point for point, out in zip(points, found, strict=True) if not out]
    assert kept
    for point, out in zip(points, found, strict=True):
        assert naive.dominated([*kept, point], goals)[-1] == out


REACHES = st.tuples(*[st.sampled_from([0.0, 0.05, 0.5, 3.0])] * 4)


@given(
    st.lists(st.tuples(st.tuples(FEW_NUMBERS, FEW_NUMBERS), REACHES), min_size=1, max_size=12),
    st.tuples(GOALS, GOALS),
)
def test_a_difference_within_the_uncertainty_beats_nothing(
    points: list[tuple[tuple[float, float], tuple[float, ...]]], goals: tuple[Goal, Goal]
) -> None:
    """Intervals only add points to the frontier; those that they add name the points that are better."""
    values = [value for value, _ in points]
    found = beaten_points([limits(*each) for each in points], goals)
    for mine, one, exactly in zip(points, found, dominated(values, goals), strict=True):
        better = [index for index, value in enumerate(values) if naive.dominated([value, mine[0]], goals)[1]]
        clear = [index for index in better if naive.clearly_apart(mine, points[index])]
        assert one.clearly == bool(clear)
        assert list(one.within) == [index for index in better if index not in clear]
        assert exactly == bool(better)
    assert not all(one.clearly for one in found)


def limits(values: tuple[float, float], reaches: tuple[float, ...]) -> tuple[Estimate, Estimate]:
    one, two = (
        Estimate(value, {"low": value - reaches[2 * axis], "high": value + reaches[2 * axis + 1]})
        for axis, value in enumerate(values)
    )
    return one, two


def test_equal_points_are_both_kept() -> None:
    """Equal points do not dominate each other."""
    assert dominated([(1, 2), (1, 2), (1, 3), (2, 2)]) == [False, False, True, True]


@given(st.lists(NUMBERS, min_size=1, max_size=25))
def test_ranks_are_those_of_scipy(values: list[float]) -> None:
    """Equal values share the mean of their ranks; a high goal reverses the order."""
    assert ranks(values, "low").tolist() == rankdata(values).tolist()
    assert ranks(values, "high").tolist() == rankdata(-np.array(values)).tolist()


@given(st.lists(NUMBERS | UNDEFINED, min_size=1, max_size=25), GOALS)
def test_an_undefined_figure_ranks_last(values: list[float | None], goal: Literal["low", "high"]) -> None:
    """An undefined figure ranks last, whatever the goal."""
    assert ranks(values, goal).tolist() == naive.ranks(values, goal)


@given(
    st.integers(1, 12).flatmap(
        lambda count: st.lists(
            st.tuples(st.lists(NUMBERS, min_size=count, max_size=count), GOALS), min_size=1, max_size=4
        )
    )
)
def test_the_best_has_the_least_mean_of_ranks(columns: list[tuple[list[float], Goal]]) -> None:
    """The first candidate with the least mean rank is kept, whatever the order of the figures."""
    found = mean_ranks(columns)
    expected = np.mean(
        [rankdata(values if goal == "low" else -np.array(values)) for values, goal in columns], axis=0
    )
    assert found == pytest.approx(expected.tolist())
    assert best(found) == found.index(min(found))
    for order in itertools.permutations(columns):
        assert best(mean_ranks(order)) == best(found)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=12),
)
def test_a_fault_puts_a_candidate_behind_all_without_it(runs: list[tuple[int, bool, bool]]) -> None:
    """Candidates are ordered by the gravest fault, then by rank, then by index."""
    ranking = [float(rank) for rank, *_ in runs]
    behind = [(one, two) for _, one, two in runs]
    expected = sorted(range(len(runs)), key=lambda index: (behind[index], ranking[index], index))[0]
    assert best(ranking, behind) == expected
    assert best(ranking) == ranking.index(min(ranking))


FIELDS = st.frozensets(st.sampled_from("abc"), max_size=3)
UNDONE = st.sampled_from([{}, {"rows_in_groups_of_two": 4}, {"rows_in_groups_of_three": 3}])


@given(
    st.lists(st.tuples(FIELDS, UNDONE, st.tuples(FEW_NUMBERS, FEW_NUMBERS)), max_size=12),
    st.tuples(GOALS, GOALS),
)
def test_eligibility_is_what_its_definition_says(
    runs: list[tuple[frozenset[str], dict[str, int], tuple[float, float]]], goals: tuple[Goal, Goal]
) -> None:
    """Results agree with the pairwise definition; runs that are reversible or protect less are never best."""
    found = eligibilities([Entry(fields, undone, exact(figures)) for fields, undone, figures in runs], goals)
    assert [(list(one.unprotected), one.dominated) for one in found] == naive.eligibilities(runs, goals)
    for (fields, reversible, _), one in zip(runs, found, strict=True):
        fewer = any(fields < others and not undone for others, undone, _ in runs)
        if reversible or fewer:
            assert one.dominated
    if any(not reversible for _, reversible, _ in runs):
        assert not all(one.dominated for one in found)


@given(
    st.lists(st.sampled_from([math.nan, 0.0, 1.0, 1.5, 2.0, 7.0, 100.0]), min_size=1, max_size=30),
    st.sampled_from([0.05, 1.0]),
)
def test_chance_levels_are_means_over_all_pairs(numbers: list[float], k: float) -> None:
    """Shares of near and of different pairs agree with counting all pairs."""
    near = share_near(np.array(numbers), k)
    expected = naive.share_near(numbers, k)
    assert near == (expected if expected is None else pytest.approx(expected))
    codes = np.unique([str(number) for number in numbers], return_inverse=True)[1].astype(np.int32)
    assert share_different(codes) == pytest.approx(naive.share_different(codes.tolist()))


def test_the_first_candidate_has_the_master_seed() -> None:
    """The first candidate has the master seed, so that one candidate equals the plain run."""
    assert candidate_seed(MASTER, 0) == MASTER


def test_derived_seeds_differ_by_name_and_by_master() -> None:
    """Two names never share a seed, however they are cut into parts."""
    names = [("candidate", "1"), ("candidate", "11"), ("candidate1", "1"), ("candidate",), ("",), ("", "")]
    names += [("point", "DSWAP", "{}", "1"), ("point", "DSWAP{", "}", "1")]
    seeds = [derived_seed(master, *name) for master in (MASTER, bytes(32)) for name in names]
    assert len(set(seeds)) == len(seeds)
    assert all(len(seed) == 32 for seed in seeds)


def test_a_points_seed_is_that_of_its_parameters_not_of_their_order() -> None:
    """The order of parameters does not change the seed."""
    one = point_seed(MASTER, "MEDS", {"k": 3, "swap_fields": ["é"]}, 0)
    assert one == point_seed(MASTER, "MEDS", {"swap_fields": ["é"], "k": 3}, 0)
    others = [
        point_seed(MASTER, "MEDS", {"k": 4, "swap_fields": ["é"]}, 0),
        point_seed(MASTER, "MEWS", {"k": 3, "swap_fields": ["é"]}, 0),
        point_seed(MASTER, "MEDS", {"k": 3, "swap_fields": ["é"]}, 1),
    ]
    assert len({one, *others}) == 4


def test_derived_seeds_stay_what_they_are() -> None:
    """Seeds are pinned, because a change would break reruns of stored jobs."""
    assert candidate_seed(MASTER, 1).hex()[:32] == "aef0baa7b31a80c8faf840e5650bec67"
    assert point_seed(MASTER, "DSWAP", {"rate": 0.5}, 0).hex()[:32] == "3bf5d6559aa1cbe6d40315a077ef231d"
