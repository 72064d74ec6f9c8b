"""Experiments of source 000 on small tables."""

import numpy as np
import pytest

from benchmarks.papers.experiments import Cell, Figures, Table
from benchmarks.papers.mews import correlations, privacy, scaling
from benchmarks.papers.peers.literal_meds import literal_meds
from benchmarks.papers.runs import matrix, swap
from tests.naive.measures import delta_rho, p_mews_binormal


def test_changes_of_correlations_are_those_of_the_measure() -> None:
    """Mean and standard deviation over the pairs, as `delta_rho` has them."""
    source, destination = (np.random.default_rng(seed).standard_normal((60, 4)) for seed in (1, 2))
    found, measured = correlations.changes(source, destination), delta_rho(source, destination)
    assert found.mean() == pytest.approx(measured["mean"])
    assert found.std() == pytest.approx(measured["sd"])


def test_correlation_of_the_swap_fields_does_not_change() -> None:
    """The first pair keeps its correlation under both services; a permutation loses it."""
    table = correlations.synthetic(400)
    first, second = matrix(table, ["x1", "x2"]).T
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.5, abs=0.08)
    for service in ("MEWS", "MEDS"):
        found = correlations.measured(table, service, 20, "univariate", runs=2)
        assert found[0] == pytest.approx(0, abs=1e-12)
        assert found[1:].min() > 0
    assert correlations.permuted(table, runs=2)[0] > 0.3


def test_table_2_needs_means_that_a_swap_can_reach() -> None:
    """The verdict depends on the paper's unit, then on both conclusions."""
    columns = ("table", "method", "d", "paper, mean", "ours, mean", "others kept, mean")

    def judged(unit: float, meds: float) -> str:
        rows = [
            [table, method, degree, unit, (1.0 if method == "MEWS" else meds) / degree, 0.1]
            for table, method in correlations.PAPER
            for degree in correlations.DEGREES
        ]
        lost = [[table, 0.5] for table in ("Syn100k", "Abalone", "MagicTele")]
        figures = {
            "tables": [
                {"name": "changes", "caption": "", "columns": columns, "rows": rows},
                {"name": "permuted", "caption": "", "columns": ("table", "mean"), "rows": lost},
            ],
            "charts": [],
        }
        return correlations.judge(Figures.of_json(figures))[0]

    assert judged(0.6, 2.0) == "cannot be reproduced"
    assert judged(0.4, 2.0) == "reproduced"
    assert judged(0.4, 0.5) == "differs"


@pytest.mark.parametrize("rho", privacy.RHOS)
def test_expected_chance_is_that_of_the_twin(rho: float) -> None:
    """P of Table 1 by another integration; the twin has none if no row is expected."""
    for widest in privacy.WIDTHS:
        assert privacy.expected_chance(10_000, rho, widest) == p_mews_binormal(10_000, rho, widest)
    assert np.isnan(privacy.expected_chance(10, rho, 0.1))


def test_chance_of_a_drawn_sample() -> None:
    """Four corners with three, four, five and six rows: minimal depth 3 by two cells a side, 18 by one."""
    corners = np.array([(x, y) for x in (-1.5, 1.5) for y in (-1.5, 1.5)])
    values = np.repeat(corners, (3, 4, 5, 6), axis=0)
    assert privacy.sampled_chance(values, 4.0) == pytest.approx((1 / 2 + 1 / 17) / 2)
    assert privacy.sampled_chance(values, 2.0) == pytest.approx(1 / 2)
    assert privacy.sampled_chance(corners, 2.0) == 1.0


def test_table_1_has_to_agree_to_four_decimals() -> None:
    """One number that is off makes a difference."""
    columns = ("paper", "ours, expected rows", "drawn samples")
    for ours, verdict in ((0.34664, "reproduced"), (0.3468, "differs")):
        figures = Figures([Table("chance", "", columns, [[0.3466, ours, 0.9]])])
        assert privacy.judge(figures)[0] == verdict


def test_literal_bins_hold_the_neighbours_of_the_most_distant_rows() -> None:
    """Two rounds on a line of nine rows, computed by hand; the rest is the last bin."""
    points = np.array([0.0, 10.0, 1.0, 9.0, 2.0, 8.5, 3.0, 8.0, 5.0])[:, None]
    assert literal_meds(points, 2) == [[0, 2], [1, 3], [4, 6], [5, 7], [8]]


def test_literal_bins_are_those_of_the_service() -> None:
    """Rows of a bin are those among which MEDS swaps: each value comes from a row of the bin."""
    table = correlations.synthetic(60)
    fields, k = ["x1", "x2"], 4
    parameters = {"swap_fields": fields, "k": k, "method": "exact", "standardise": False}
    source = matrix(table, fields)
    released = matrix(swap("MEDS", table, parameters).table, fields)
    for rows in literal_meds(source, k):
        assert sorted(map(tuple, source[rows])) == sorted(map(tuple, released[rows]))


def test_exponent_of_a_power() -> None:
    """Exact for a power, and the verdict needs both exponents."""
    assert scaling.exponent([1, 2, 4], [3.0, 24.0, 192.0]) == pytest.approx(3)
    for literal, verdict in ((3.0, "reproduced"), (2.0, "differs")):
        rows: list[list[Cell]] = [["MEWS", 1.0], ["MEDS", 1.3], ["MEDS, literal", literal]]
        figures = Figures([Table("exponents", "", ("method", "exponent"), rows)])
        assert scaling.judge(figures)[0] == verdict
