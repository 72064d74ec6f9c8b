"""Intervals of the points of a comparison: what they cover, and what a difference within them decides."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import ttest_ind

from providers.measures.assessment import MeasureOptions, Release
from providers.measures.risk.interval_sd import robust_scale
from providers.measures.run_figures import measures_stream, release_of_run
from providers.measures.shared.repeats import share_interval_of_variance, student_quantile
from providers.progress import no_progress
from providers.selection.assumed_roles import assumed_roles
from providers.selection.axes import axis_of
from providers.selection.combinations import Variation, combinations_of
from providers.selection.figures import FIGURES, Taken, take_figures
from providers.selection.frontier import FrontierOptions, frontier, frontier_figures, with_units
from providers.selection.intervals import GROUPS, RowGroups, covered, interval_of, take_row_groups
from providers.selection.ranking import (
    LEVEL,
    Estimate,
    beaten_points,
    level_of_all,
    number_of_differences,
    p_values,
)

NEAR, CHANGED, RHO, RANKS = (
    FIGURES[name]
    for name in ("interval_sd.robust.by_field", "changed_share", "delta_rho.mean", "delta_rho.ranks.mean")
)


def people(rows: int = 500) -> pa.Table:
    chance = np.random.default_rng(4)
    age = chance.integers(18, 90, rows)
    income = np.round(300 * age + chance.normal(0, 6000, rows))
    return pa.table(
        {"age": age, "income": income, "rent": np.round(income / 4 + chance.normal(0, 900, rows))}
    )


def runs_of(parameters: dict[str, Any], seeds: int) -> tuple[list[Taken], list[RowGroups | None]]:
    table = people()
    one = combinations_of((Variation(service="DSWAP", parameters=parameters),), table.schema)[0]
    taken, groups = [], []
    for number in range(seeds):
        seed = bytes([number]) * 32
        stream = one.provider.stream(seed)
        result = one.provider.swap(table, one.params, stream, no_progress)
        release = release_of_run(one.provider, one.params, table, result, 128)
        given = [NEAR, CHANGED, RHO, RANKS], release, MeasureOptions(), measures_stream(seed)
        taken.append(take_figures(*given))
        groups.append(take_row_groups(*given))
    return taken, groups


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_the_interval_of_one_run_covers_the_mean_over_other_seeds(rate: float) -> None:
    """The interval of one run misses the mean for at most five of 40 seeds, that of two for half as many."""
    fields = ["income"]
    taken, groups = runs_of({"swap_fields": fields, "rate": rate}, 40)
    for figure in (NEAR, CHANGED, RHO, RANKS):
        mean = math.fsum(run.over(fields).values[figure.name] for run in taken) / len(taken)
        for count in (1, 2):
            misses, width = 0, 0.0
            for start in range(0, len(taken), count):
                found = interval_of(figure, taken[start : start + count], groups[start], fields)
                assert found is not None
                misses += not found["low"] <= mean <= found["high"]
                width += (found["high"] - found["low"]) * count / len(taken)
            assert misses <= 5 // count, (figure.name, count)
            assert 0 < width < 0.2, (figure.name, count)


def test_the_jackknife_is_that_of_its_definition() -> None:
    """Ten groups, twice the variance for pairs of rows that exchange values, and that of further runs."""
    others = [0.5, 0.52, 0.49, 0.5, 0.51, 0.5, 0.48, 0.5, 0.5, 0.5]

    def taken(value: float, figure: str) -> Taken:
        return Taken({figure: value}, {}, {}, {})

    squares = math.fsum((other - 0.5) ** 2 for other in others)
    for figure in (RHO, CHANGED):
        without = tuple(taken(other, figure.name) for other in others)
        groups = RowGroups(without, 400, 0.25)
        variance = 0.9 * squares * 0.25 * 2
        assert groups.variance(figure, []) == pytest.approx(variance)
        runs = [taken(value, figure.name) for value in (0.4, 0.5, 0.6)]
        pooled = (9 * variance + 0.02) / 11 / 3
        found = interval_of(figure, runs, groups, [])
        reach = student_quantile(GROUPS + 1) * math.sqrt(pooled)
        expected = {"low": 0.5 - reach, "high": 0.5 + reach}
        if figure is CHANGED:
            expected = share_interval_of_variance(0.5, pooled, GROUPS + 1, 600)
        assert found == pytest.approx(expected)


def test_a_figure_without_an_interval_gets_one_from_several_runs() -> None:
    """The marginal distributions of one run have none."""
    figure = FIGURES["marginals.mean_distance"]
    runs = [Taken({figure.name: value}, {}, {}, {}) for value in (0.1, 0.3)]
    assert interval_of(figure, runs[:1], None, []) is None
    found = interval_of(figure, runs, None, [])
    assert found is not None
    assert found == {"low": 0.0, "high": 1.0}  # 12.7 standard errors, cut to the range


@pytest.mark.parametrize(("reach", "beaten"), [(0.0, True), (0.05, True), (0.08, False)])
def test_a_difference_of_a_tenth_needs_small_errors(reach: float, beaten: bool) -> None:
    """Two errors add up as squares: 0.05 each is less than 0.1, 0.08 each is more."""
    one, two = (Estimate(value, {"low": value - reach, "high": value + reach}) for value in (0.3, 0.4))
    assert (p_values([one, two])[0, 1] <= LEVEL) == (p_values([two, one])[0, 1] <= LEVEL) == beaten
    found = beaten_points([(one, Estimate(0.0)), (two, Estimate(0.0))])
    assert [(one.clearly, one.within) for one in found] == [(False, ()), (beaten, () if beaten else (0,))]


def about(value: float, reach: float, freedom: float) -> Estimate:
    return Estimate(value, {"low": value - reach, "high": value + reach}, freedom)


@pytest.mark.parametrize("freedom", [3.0, 9.0, math.inf])
def test_alike_points_are_seldom_called_dominated(freedom: float) -> None:
    """None of 20 alike points is, in 95 of 100 comparisons; without correction one is in most of them."""
    chance = np.random.default_rng(8)
    rounds, points = 200, 20
    alone = together = 0
    for _ in range(rounds):
        errors = np.sqrt(chance.chisquare(freedom, (points, 2)) / freedom) if freedom < math.inf else 1.0
        reaches = student_quantile(freedom) * np.broadcast_to(errors, (points, 2))
        alike = [
            (about(values[0], reach[0], freedom), about(values[1], reach[1], freedom))
            for values, reach in zip(chance.normal(0, 1, (points, 2)), reaches, strict=True)
        ]
        pairs = [p_values([point[axis] for point in alike])[np.triu_indices(points, 1)] for axis in (0, 1)]
        level = level_of_all(np.concatenate(pairs), number_of_differences(points, 2))
        alone += any(one.clearly for one in beaten_points(alike))
        together += any(one.clearly for one in beaten_points(alike, level=level))
    assert together <= 0.05 * rounds
    assert alone > 0.5 * rounds


def test_holms_procedure_is_that_of_its_definition() -> None:
    """The k-th least of m probabilities is shown up to .05 / (m - k + 1), as long as all before it are."""
    assert level_of_all(np.array([0.03, 0.012, 0.01, 0.5]), 4) == 0.012
    assert level_of_all(np.array([0.03, 0.012, 0.01, 0.5]), 5) == 0.012
    assert level_of_all(np.array([0.03, 0.012, 0.01, 0.5]), 6) == 0.0
    assert level_of_all(np.array([0.0, 0.04]), 2) == 0.04
    assert level_of_all(np.array([]), 0) == 0.0


def test_the_test_of_two_figures_is_that_of_welch() -> None:
    one, two = ([3.1, 2.9, 3.6, 3.3], [4.0, 4.4, 3.7, 4.9, 4.1])
    figures = []
    for sample in (one, two):
        mean, error = float(np.mean(sample)), float(np.std(sample, ddof=1)) / math.sqrt(len(sample))
        reach = student_quantile(len(sample) - 1) * error
        figures.append(about(mean, reach, len(sample) - 1))
    expected = float(ttest_ind(one, two, equal_var=False).pvalue)
    assert p_values(figures)[0, 1] == pytest.approx(expected)


def test_the_axis_is_the_first_figure_that_differs_beyond_its_uncertainty() -> None:
    """If none does, it is the first one that differs at all, and says so."""
    runs = [
        Taken({NEAR.name: near, CHANGED.name: share}, {}, {}, {}) for near, share in ((0.1, 0.9), (0.2, 0.8))
    ]

    def axis(uncertain: Sequence[str]) -> tuple[str, bool, list[str]]:
        found = axis_of([NEAR, CHANGED], runs, MeasureOptions(), ["income"], uncertain)
        return found.figure.name, found.uncertain, list(found.passed_over)

    assert axis([]) == (NEAR.name, False, [])
    assert axis([NEAR.name]) == (CHANGED.name, False, [NEAR.name])
    assert axis([NEAR.name, CHANGED.name]) == (NEAR.name, True, [])


def test_no_seed_puts_one_of_two_equal_methods_before_the_other() -> None:
    """One method twice, with parameters that mean the same: neither run dominates the other."""
    table = people()
    services = (
        Variation(service="DSWAP", parameters={"swap_fields": ["income"]}, vary={"rate": [1.0, 0.999]}),
        Variation(service="DSWAP", parameters={"swap_fields": ["income"], "rate": 0.2}),
    )
    combinations = combinations_of(services, table.schema)
    options = FrontierOptions(services=services, risk=NEAR.name, utility=RHO.name)
    tried = frontier_figures(options, MeasureOptions(), combinations, table.schema)
    for number in range(5):
        seed = bytes([number]) * 32
        found = frontier(table, combinations, tried, 1, MeasureOptions(), seed, 256, no_progress)
        assert found["best"] == [0, 1, 2], number


def test_one_extreme_value_does_not_decide_what_is_near() -> None:
    """It makes the standard deviation so large that all releases have the same figure."""
    table = people()
    income = table["income"].to_numpy().copy()
    income[7] = 1e12
    table = table.set_column(1, "income", pa.array(income))
    services = (
        Variation(service="DSWAP", parameters={"swap_fields": ["income"]}, vary={"rate": [0.2, 1.0]}),
    )
    combinations = combinations_of(services, table.schema)
    found = {}
    for name in ("interval_sd.narrow.by_field", NEAR.name):
        options = FrontierOptions(services=services, risk=name, utility=RHO.name)
        tried = frontier_figures(options, MeasureOptions(), combinations, table.schema)
        compared = frontier(table, combinations, tried, 1, MeasureOptions(), bytes(32), 256, no_progress)
        found[name] = [point["risk"] for point in compared["points"]]
    assert min(found["interval_sd.narrow.by_field"]) > 0.99
    assert found[NEAR.name][0] > 0.8 > 0.1 > found[NEAR.name][1]


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        (np.arange(1.0, 6.0), 2 / 1.349),
        ([0.0] * 8 + [7.0, np.nan], 7 * 0.6 / 3.290),  # the quartiles are equal
        ([0.0] * 40 + [9.0], 0.0),
        ([np.nan], 0.0),
        ([4.0], 0.0),
    ],
)
def test_the_robust_scale_is_that_of_its_definition(numbers: Sequence[float], scale: float) -> None:
    assert robust_scale(np.array(numbers, np.float64)) == pytest.approx(scale)


def test_a_field_without_values_is_not_counted_as_protected() -> None:
    """It has no share near the released numbers: 0 would lower the mean over the fields."""
    table = people().append_column("empty", pa.nulls(500, pa.float64()))
    figure = FIGURES["interval_sd.narrow.by_field"]

    def taken(source: pa.Table) -> Taken:
        return take_figures([figure], Release(source, source), MeasureOptions(), measures_stream(bytes(32)))

    assert taken(table).values[figure.name] == 1.0
    assert "empty" not in taken(table).by_field[figure.name]
    assert "no field of numbers has a value" in taken(table.select(["empty"])).undefined[figure.name]


def test_the_interval_of_a_sampled_clustering_error_covers_the_rows_too() -> None:
    figure = FIGURES["clustering_error"]
    assert covered(figure, 1, True, False, sampled=False) == "draws"
    assert covered(figure, 1, True, False, sampled=True) == "rows and draws"
    assert covered(figure, 2, True, False, sampled=True) == "rows, draws and seeds"
    assert covered(FIGURES["prediction.destination"], 1, True, False, sampled=True) == "draws"
    assert covered(NEAR, 1, False, True, sampled=False) == "rows"
    assert covered(NEAR, 1, False, False, sampled=False) == ""


def test_the_intervals_of_a_comparison_count_persons() -> None:
    """Groups of the jackknife have whole persons, and copies of all rows make no interval narrower."""
    once = people(200).append_column("person", pa.array(np.arange(200)))
    often = once.take(np.repeat(np.arange(200), 5))
    widths = {}
    for name, table in (("once", once), ("often", often)):
        parameters = {"swap_fields": ["income"], "unit_id": "person"}
        one = combinations_of((Variation(service="DSWAP", parameters=parameters),), table.schema)[0]
        result = one.provider.swap(table, one.params, one.provider.stream(bytes(32)), no_progress)
        release = release_of_run(one.provider, one.params, table, result, 128)
        options = MeasureOptions(known_fields=("age",), sensitive_fields=("rent",))
        figures = [NEAR, CHANGED, RANKS, FIGURES["inference_risk"]]
        given = figures, release, options, measures_stream(bytes(32))
        groups, taken = take_row_groups(*given), take_figures(*given)
        assert groups is not None
        assert groups.rows == 200
        found = [interval_of(figure, [taken], groups, ["income"]) for figure in figures]
        widths[name] = [each["high"] - each["low"] for each in found if each]
    for single, repeated in zip(widths["once"], widths["often"], strict=True):
        assert repeated > 0.6 * single


def test_all_points_of_a_comparison_count_the_same_persons() -> None:
    """One combination names the unit: it is nobody's known field, and counts for the other one, too."""
    table = people(60).append_column("person", pa.array(np.arange(60) // 3))
    given = (
        Variation(service="DSWAP", parameters={"swap_fields": ["income"], "unit_id": "person"}),
        Variation(service="DSWAP", parameters={"swap_fields": ["income"]}),
    )
    combinations = combinations_of(given, table.schema)
    assert with_units(MeasureOptions(), combinations).unit_field == "person"
    roles = assumed_roles(MeasureOptions(), (each.params for each in combinations), table.schema)
    assert roles.known_fields == ("age", "rent")
