"""Numbers whose squares or sums float64 cannot represent: a measure is left out, and never wrong."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.risk.interval_sd import share_near
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable
from providers.measures.shared.survey_design import Design
from providers.measures.utility.range_averages import RangeAverages
from providers.measures.utility.relations_kept import nearness_kept
from providers.randomness.chacha20 import Stream

ROWS = 120
RANDOM = np.random.default_rng(8)
X, Z, W = RANDOM.normal(size=ROWS), RANDOM.normal(size=ROWS), RANDOM.random(ROWS) + 0.5
MOVED = X[RANDOM.permutation(ROWS)]
GROUPS = np.array(["a", "b", "c"])[RANDOM.integers(0, 3, ROWS)]

OF_SQUARES = (
    "interval_sd", "interval_rmd", "delta_rho", "il2", "il3", "r_squared", "outlier_exposure", "marginals",
    "association", "weighted_marginals", "weighted_correlations", "weighted_regression", "domain_totals",
)  # fmt: skip
"""Measures that take deviations of the numbers."""


def taken(factor: float, **options: Any) -> Assessment:
    tables = [pa.table({"x": numbers * factor, "z": Z, "group": GROUPS, "w": W}) for numbers in (X, MOVED)]
    given = MeasureOptions(weight_fields=("w",), domain_fields=("group",), target="x", **options)
    return assess(Release(*tables), given, Stream(bytes(32), "measures", 1))


@pytest.mark.parametrize("factor", [1e155, 1e200, 1e300])
@pytest.mark.filterwarnings("error")
def test_deviations_that_overflow_are_left_out(factor: float) -> None:
    """The report of huge numbers is complete, with the reason in place of each measure of squares."""
    found = taken(factor)
    reasons = {key: found.left_out.get(key) for key in OF_SQUARES}
    assert reasons == dict.fromkeys(OF_SQUARES, BEYOND_FLOAT64)
    assert {"pscr", "dcr", "changed_share", "relations_kept", "total_correlation"} <= set(found.measures)


def test_the_same_numbers_in_other_units_have_the_same_figures() -> None:
    """A factor that no square overflows by changes no figure that is free of units."""
    ordinary, large = (taken(factor) for factor in (1.0, 2.0**480))
    assert set(OF_SQUARES) <= set(ordinary.measures)
    for key in ("interval_sd", "interval_rmd", "delta_rho", "il3", "association", "relations_kept"):
        assert large.measures[key]["value"] == ordinary.measures[key]["value"], key


@pytest.mark.parametrize("factor", [1e-170, 1e-300])
def test_an_interval_that_vanishes_is_none(factor: float) -> None:
    """Different numbers whose squares vanish have no deviation: their intervals would hold nothing."""
    found = taken(factor, only=("interval_sd", "interval_rmd"))
    assert found.left_out["interval_sd"] == found.left_out["interval_rmd"] == BEYOND_FLOAT64


def test_chance_of_a_near_value_is_unknown_beyond_float64() -> None:
    assert share_near(np.array([0.0, 1e200]), 1.0) is None
    assert share_near(np.array([0.0, 1e-200]), 1.0) is None
    assert share_near(np.array([1e200, 1e200]), 1.0) == 1.0


@pytest.mark.parametrize("strata", [None, np.array([0, 0, 1, 1])])
def test_a_variance_that_overflows_is_refused(strata: npt.NDArray[np.int64] | None) -> None:
    """All scores, or some of them; one stratum, or several."""
    design = Design(4, None, strata)
    for scores, rows in ((np.array([1e200, 0, 1, 2]), None), (np.array([1e200]), np.array([1]))):
        with pytest.raises(NotApplicable, match="too large"):
            design.variance(scores, rows)
    assert design.variance(np.array([1.0, 2.0, 3.0, 4.0])) > 0


def test_differences_and_sums_that_overflow_are_refused() -> None:
    huge, small = np.array([[-1.7e308, 1.0, 1.7e308]]), np.array([[1.0, 2.0, 4.0]])
    for tables in ((np.array([[-1.7e308, 1.6e308, 1.7e308]]), small), (small, huge[:, [0, 2, 1]])):
        with pytest.raises(NotApplicable, match="too large"):
            nearness_kept(*tables)
    with pytest.raises(NotApplicable, match="too large"):
        RangeAverages(np.arange(3.0)).averages(np.full(3, 1.7e308), [(0.0, 1.0)])
