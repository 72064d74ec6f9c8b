"""The user's own relations and the selection of localities in LOCALITY: sampling, edge cases and errors."""

import datetime
import itertools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pydantic import ValidationError
from scipy import stats

from app.report.measure_tables import own_figures
from app.report.small_counts import Discretion
from providers import PROVIDERS
from providers.errors import ParameterError
from providers.services.locality import LocalityParams
from tests.naive.agreement import assert_agree, swap

Points = npt.NDArray[np.float64]

# ------------------------------------------------------------------------------------ sampling

VALUES = [0.0, 1.0, 3.0, 4.5, 9.0]
RELATIONS: list[dict[str, Any]] = [
    {"coefficients": {"mean": 1}, "at_most": 4},  # not homogeneous, and not invariant under shifts
    {"coefficients": {"max": 1, "min": -1}, "at_most": 9.0},  # with equality on the source
    {"coefficients": {"median": -2, "q:0.4": 1}, "at_most": -2},
]


def keeps(x: Points) -> npt.NDArray[np.bool_]:
    """Rows of x that keep every locality of VALUES and all RELATIONS."""
    kept = np.ones(len(x), np.bool_)
    for i, j, k in itertools.combinations(range(5), 3):
        sense = np.sign(VALUES[k] - 2 * VALUES[j] + VALUES[i])
        kept &= sense * (x[:, k] - 2 * x[:, j] + x[:, i]) >= 0
    kept &= x.mean(axis=1) <= 4
    kept &= x[:, 4] - x[:, 0] <= 9
    return kept & (x[:, 1] - 2 * x[:, 2] <= -2)


@pytest.fixture(scope="module")
def rejected() -> Points:
    """Uniform points of the polytope in [-3, 12]^5, by rejection."""
    random = np.random.default_rng(1)
    found = [np.sort(random.uniform(-3, 12, (400_000, 5)), axis=1) for _ in range(4)]
    return np.concatenate([points[keeps(points)] for points in found])


def sampled(copies: int, **parameters: Any) -> Points:
    """One point of each of many equal segments."""
    table = pa.table({"x": VALUES * copies})
    parameters = {
        "fields": ["x"], "segment_size": 5, "sigma": 1, "bounds": "column", "domain": {"x": [-3, 12]},
        "relations": RELATIONS, **parameters,
    }  # fmt: skip
    result = swap("LOCALITY", table, parameters, bytes([1]) * 32)
    assert result.provider["violations"] == result.provider["segments_repaired"] == 0
    assert [part["segments"] for part in result.provider["relations"].values()] == [copies] * 3
    return np.asarray(result.table["x"].to_numpy()).reshape(copies, 5)


@pytest.mark.parametrize(
    "parameters",
    [
        {"iterations": 60},
        {"iterations": 60, "start": "data"},
        {"iterations": 60, "duplicates": "spread"},
        {"iterations": 100, "walk": "hit_and_run"},
    ],
)
def test_points_are_uniform_among_those_that_keep_the_relations(
    rejected: Points, parameters: dict[str, Any]
) -> None:
    """Coordinates, span and slacks of all relations agree with rejection sampling (KS test at 1 %)."""
    points = sampled(3000, **parameters)
    assert len(rejected) > 3000
    assert keeps(points).all()
    critical = 1.628 * np.sqrt((len(points) + len(rejected)) / (len(points) * len(rejected)))
    figures: list[Callable[[Points], npt.NDArray[np.float64]]] = [
        *(lambda x, at=at: x[:, at] for at in range(5)),
        lambda x: x[:, 4] - x[:, 0],
        lambda x: x.mean(axis=1),
        lambda x: x[:, 1] - 2 * x[:, 2],
    ]
    for figure in figures:
        assert stats.ks_2samp(figure(points), figure(rejected)).statistic < critical


def test_points_between_kept_ends_are_uniform() -> None:
    """Bounds `keep`: its locality holds x_1 below the middle, and the relation at 1 or more."""
    table = pa.table({"x": [0.0, 1.25, 4.0] * 3000})
    relations = [{"coefficients": {"median": -1}, "at_most": -1}]
    for walk, law in (("rounded", stats.uniform), ("hit_and_run", stats.uniform), ("paper", stats.arcsine)):
        parameters = {"fields": ["x"], "segment_size": 3, "sigma": 1, "bounds": "keep", "walk": walk}
        x = swap("LOCALITY", table, {**parameters, "relations": relations}).table["x"].to_numpy()
        assert set(x[::3]) == {0.0}
        assert set(x[2::3]) == {4.0}
        assert stats.kstest(x[1::3], law(1, 1).cdf).statistic < 1.628 / np.sqrt(3000)


def test_a_segment_without_relations_is_unaffected_by_those_of_others() -> None:
    """A relation of one segment changes no bit of other segments and fields."""
    random = np.random.default_rng(2)
    table = pa.table({"x": random.normal(size=200), "y": random.normal(size=200)})
    parameters = {"fields": ["x", "y"], "decimals": "off"}
    plain = swap("LOCALITY", table, parameters)
    assert "relations" not in plain.provider
    related = swap(
        "LOCALITY", table, {**parameters, "relations": [{"rows": {"45": 1}, "at_most": 10, "field": "x"}]}
    )
    assert related.table["y"].equals(plain.table["y"])
    differ = related.table["x"].to_numpy() != plain.table["x"].to_numpy()
    assert np.flatnonzero(differ).tolist() == list(range(40, 60))
    assert related.provider["relations"] == {"0": {"segments": 1, "violations": 0}}


# ------------------------------------------------------------------------------------ what relations mean


def published(values: Any, relations: list[dict[str, Any]], **parameters: Any) -> Any:
    """Redraw one segment, assert that provider and twin agree, and return the values."""
    table = pa.table({"x": values})
    parameters = {"fields": ["x"], "segment_size": 10, "relations": relations, **parameters}
    result, _ = assert_agree("LOCALITY", table, parameters)
    assert result is not None
    return result.table["x"].to_pylist()


TEN = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


@pytest.mark.parametrize(
    ("statistic", "value"),
    [("min", 1), ("max", 9), ("median", 3.5), ("mean", 3.9), ("q:0.3", 2), ("q:0.31", 3), ("q:0", 1)],
)
def test_a_limit_is_met_where_the_source_meets_it(statistic: str, value: float) -> None:
    """A limit equal to the source's sum is accepted; a slightly smaller one is refused."""
    published(TEN, [{"coefficients": {statistic: 1}, "at_most": value}])
    with pytest.raises(ParameterError, match="relation 0 does not hold on field 'x'"):
        published(TEN, [{"coefficients": {statistic: 1}, "at_most": value - 1e-9}])
    published(TEN, [{"coefficients": {statistic: -1}, "at_most": -value}])
    with pytest.raises(ParameterError, match="relation 0 does not hold"):
        published(TEN, [{"coefficients": {statistic: -1}, "at_most": -value - 1e-9}])


def test_the_mean_counts_records_not_distinct_values() -> None:
    """Each record counts once in the mean, also if duplicates collapse."""
    values = [1] * 9 + [11]
    x = published(values, [{"coefficients": {"mean": 1}, "at_most": 2}])
    assert float(9 * Fraction(x[0]) / 10 + Fraction(x[9]) / 10) <= 2
    spread = published(values, [{"coefficients": {"mean": 1}, "at_most": 2}], duplicates="spread")
    assert float(sum(map(Fraction, spread)) / 10) <= 2


def test_units_are_those_of_the_field() -> None:
    """Dates count in days, decimals by their value at any scale."""
    start = datetime.date(2024, 3, 1)
    days = [start + datetime.timedelta(days=5 * day) for day in TEN]
    x = published(days, [{"coefficients": {"max": 1, "min": -1}, "at_most": 40}], decimals=0)
    assert (max(x) - min(x)).days <= 40
    late = [{"coefficients": {"min": -1}, "at_most": -float((days[1] - datetime.date(1970, 1, 1)).days)}]
    assert min(published(days, late, decimals=0)) >= days[1]
    prices = [Decimal(value).scaleb(-2) for value in TEN]
    cents = published(prices, [{"coefficients": {"max": 1}, "at_most": 0.09}], decimals=2)
    assert max(cents) <= Decimal("0.09")


def test_named_records_keep_their_relation() -> None:
    """The relation holds also if the records have equal values that are spread in a random order."""
    values = [10, 20, 20, 35, 60, 61, 61, 90, 20, 10]
    relations = [
        {"rows": {"1": 1, "2": -1}, "at_most": 5},
        {"rows": {"3": 2, "8": -1, "0": 1}, "at_most": 60},
    ]
    for seed in range(20):
        table = pa.table({"x": values})
        parameters = {"fields": ["x"], "relations": relations, "duplicates": "spread", "decimals": 0}
        x = swap("LOCALITY", table, parameters, bytes([seed]) * 32).table["x"].to_pylist()
        assert x[1] - x[2] <= 5
        assert 2 * x[3] - x[8] + x[0] <= 60


@pytest.mark.parametrize("start", ["centre", "data"])
@pytest.mark.parametrize("walk", ["rounded", "hit_and_run", "paper"])
def test_relations_with_equality_do_not_freeze_the_walk(walk: str, start: str) -> None:
    """A limit that the source meets with equality lets values move, and the relation holds."""
    table = pa.table({"x": TEN * 10})
    relations = [
        {"coefficients": {"mean": 1}, "at_most": 3.9},
        {"coefficients": {"max": -1, "median": 1}, "at_most": -5.5},
    ]
    parameters = {"fields": ["x"], "segment_size": 10, "walk": walk, "start": start, "relations": relations}
    result = swap("LOCALITY", table, parameters)
    assert result.summary.changed["x"] == 100
    assert result.provider["violations"] == result.provider["segments_unchanged"] == 0
    x = np.array(result.table["x"].to_pylist()).reshape(10, 10)
    assert (x.mean(axis=1) <= 3.9 + 1e-12).all()


def test_relations_that_leave_nothing_are_reported() -> None:
    """Limits that leave no other values: the segment is unchanged and counted in an event."""
    relations: list[dict[str, Any]] = [
        {"coefficients": {"max": 1, "min": -1}, "at_most": 8},
        {"coefficients": {"max": -1}, "at_most": -9},
        {"coefficients": {"min": 1}, "at_most": 1},
    ]
    table = pa.table({"x": TEN})
    parameters = {"fields": ["x"], "segment_size": 10, "relations": relations}
    for change in ({}, {"walk": "paper"}, {"walk": "hit_and_run", "start": "data"}):
        result, _ = assert_agree("LOCALITY", table, {**parameters, **change})
        assert result is not None
        assert result.table["x"].to_pylist() == TEN
        assert result.events.counts["relations_leave_nothing"] == 1
        assert result.provider["segments_unchanged"] == 1
        assert result.provider["violations"] == 0
    whole, _ = assert_agree("LOCALITY", table, {**parameters, "decimals": 0})  # some may move on the grid
    assert whole is not None
    assert (min(whole.table["x"].to_pylist()), max(whole.table["x"].to_pylist())) == (1, 9)
    loose = [{**relation, "at_most": relation["at_most"] + 0.5} for relation in relations]
    moved = swap("LOCALITY", table, {**parameters, "relations": loose})
    assert moved.summary.changed["x"] == 10


# ------------------------------------------------------------------------------------ invariance


def people(rows: int = 900) -> pa.Table:
    random = np.random.default_rng(4)
    whole = random.integers(0, 60, rows)
    return pa.table({"a": pa.array(whole, mask=whole == 7), "b": pa.array(random.normal(size=rows))})


SPREAD = [
    {"coefficients": {"max": 1, "min": -1}, "at_most": 60, "field": "a"},
    {"coefficients": {"mean": -1, "q:0.75": 1}, "at_most": 30, "field": "a"},
    {"rows": {"301": 1, "311": -2}, "at_most": 40, "field": "b"},
]


@pytest.mark.parametrize("walk", ["rounded", "paper"])
def test_threads_and_slices_of_work_change_nothing(walk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes result from one thread or two, and from time slices of any size."""
    table = people()
    parameters = {"fields": ["a", "b"], "segment_size": 30, "walk": walk, "relations": SPREAD}
    whole = swap("LOCALITY", table, parameters)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert swap("LOCALITY", table, parameters).table.equals(whole.table)
    finally:
        numba.set_num_threads(before)
    monkeypatch.setattr("providers.localities.redraw._WORK", 1.0)
    monkeypatch.setattr("providers.localities.segments._VARIABLES", 100)
    again = swap("LOCALITY", table, parameters)
    assert again.table.equals(whole.table)
    assert {**again.provider, "mixing": None} == {**whole.provider, "mixing": None}


# ------------------------------------------------------------------------------------ selection


@pytest.mark.parametrize("values", [[0, 1, 3, 7, 8, 12, 13, 20], [0.0, 0.25, 1.0, 1.125, 7.0, 7.5]])
def test_nearest_and_widest_select_by_reach(values: list[Any]) -> None:
    """Kept localities have the smallest, or the largest, reaches of all, and all of them hold."""
    from tests.naive.localities import Draws, localities, select

    found = localities(values, "free")
    for selection in ("nearest", "widest"):
        kept = select(found, values, 0.3, selection, Draws([0] * 8, 0, 0))
        left = [row for row in found if row not in kept]
        reaches = [[values[k] - values[i] for i, _, k, _ in rows] for rows in (kept, left)]
        if selection == "nearest":
            assert max(reaches[0]) <= min(reaches[1])
        else:
            assert min(reaches[0]) >= max(reaches[1])
        parameters = {"fields": ["x"], "sigma": 0.3, "selection": selection, "segment_size": len(values)}
        result, _ = assert_agree("LOCALITY", pa.table({"x": values}), parameters)
        assert result is not None
        x = result.table["x"].to_pylist()
        for i, j, k, sense in kept:
            assert sense * (Fraction(x[k]) - 2 * Fraction(x[j]) + Fraction(x[i])) >= 0


def test_reaches_beyond_float64_are_compared() -> None:
    """Reaches that overflow float64 are compared by the difference of the halves."""
    values = [-1.7e308, -1.6e308, -1e300, 0.0, 5e307, 1.5e308, 1.65e308, 1.7e308]
    for selection in ("nearest", "widest"):
        parameters = {"fields": ["x"], "sigma": 0.4, "selection": selection, "bounds": "keep"}
        assert_agree("LOCALITY", pa.table({"x": values}), parameters)


def test_selection_by_reach_does_not_depend_on_the_seed() -> None:
    """Selection by reach draws nothing, and keeps every locality at sigma 1."""
    table = people()
    chosen = {}
    for selection in ("uniform", "nearest", "widest"):
        parameters = {"fields": ["a"], "sigma": 1, "selection": selection, "segment_size": 30}
        results = [swap("LOCALITY", table, parameters, bytes([seed]) * 32) for seed in (1, 2)]
        assert all(result.provider["violations"] == 0 for result in results)
        chosen[selection] = swap("LOCALITY", table, parameters).table
    assert chosen["uniform"].equals(chosen["nearest"])
    assert chosen["uniform"].equals(chosen["widest"])


# ------------------------------------------------------------------------------------ refused

ONE = {"coefficients": {"max": 1}, "at_most": 100}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"relations": [{**ONE, "coefficients": {"q:1.5": 1}}]},
        "/coefficients/q:1.5",
        "unknown order statistic",
    ),
    ({"relations": [{**ONE, "coefficients": {"maximum": 1}}]}, "/coefficients/maximum", "'q:0.9'"),
    ({"relations": [{**ONE, "coefficients": {"max": 0}}]}, "/coefficients/max", "leave out"),
    ({"relations": [{**ONE, "coefficients": {"max": 1e10}}]}, "/coefficients/max", "1e-9 to 1e9"),
    ({"relations": [{**ONE, "at_most": 1e301}]}, "/at_most", "1e-200 to 1e300"),
    ({"relations": [{**ONE, "field": "aa"}]}, "/field", "did you mean 'a'"),
    ({"relations": [ONE], "fields": ["a", "b"]}, "/field", "name the relation's field"),
    ({"relations": [{"rows": {"-1": 1}, "at_most": 1}]}, "/rows/-1", "not a record number"),
    ({"relations": [{"rows": {"900": 1}, "at_most": 1}]}, "/rows/900", "the table has 900"),
    ({"relations": [{"rows": {"1": 1, "21": -1}, "at_most": 1}]}, "/rows/21", "different segments of 20"),
    ({"relations": [{"coefficients": {"max": 1}, "at_most": 7}]}, "", "does not hold on field 'a'"),
]


@pytest.mark.parametrize(("parameters", "pointer", "words"), REFUSED)
def test_relations_that_cannot_be_kept_are_refused(
    parameters: dict[str, Any], pointer: str, words: str
) -> None:
    """The error names the fault and points to the parameter."""
    with pytest.raises(ParameterError) as caught:
        swap("LOCALITY", people(), {"fields": ["a"], **parameters})
    assert caught.value.pointer == f"/parameters/relations/0{pointer}"
    assert words in caught.value.message


def test_an_equality_is_refused() -> None:
    """Two relations that form an equality are refused, also if one is a multiple of the other."""
    relations = [
        {"coefficients": {"mean": 1, "max": -0.5}, "at_most": 3},
        {"coefficients": {"max": 1, "mean": -2}, "at_most": -6},
    ]
    with pytest.raises(ParameterError, match="relations 0 and 1 together require an equality") as caught:
        swap("LOCALITY", people(), {"fields": ["a"], "relations": relations})
    assert caught.value.pointer == "/parameters/relations/1/at_most"


def test_a_record_without_a_value_is_refused() -> None:
    """A relation that names a record with a null is refused."""
    with pytest.raises(ParameterError, match="record 2 holds no value in field 'x'") as caught:
        published([1, 2, None, 4], [{"rows": {"1": 1, "2": -1}, "at_most": 9}])
    assert caught.value.pointer == "/parameters/relations/0/rows/2"


def test_errors_report_the_excess_and_no_value() -> None:
    """The excess is a share of the field's range: with a limit of 0 the excess would be a value."""
    table = pa.table({"x": [1000.0, 1123.0, 1234.5, 1300.0, 1350.0, 1517.0] * 10})
    relations = [{"rows": {"2": 1}, "at_most": 0}]
    with pytest.raises(ParameterError) as caught:
        swap("LOCALITY", table, {"fields": ["x"], "segment_size": 6, "relations": relations})
    assert "in segment 0 (from record 0 on) by 240 % of the field's range" in caught.value.message
    assert "1234" not in caught.value.message
    several = [{"coefficients": {"max": 1, "min": -1}, "at_most": 500}]
    with pytest.raises(ParameterError, match=r"in 10 segments, the farthest segment 0 .*by 3\.3 %"):
        swap("LOCALITY", table, {"fields": ["x"], "segment_size": 6, "relations": several})


@pytest.mark.parametrize(
    "relation",
    [
        {"at_most": 3},
        {"coefficients": {"max": 1}},
        {"coefficients": {"max": 1}, "rows": {"1": 1}, "at_most": 1},
        {"coefficients": {"max": float("nan")}, "at_most": 1},
        {"coefficients": {"max": 1}, "at_most": float("inf")},
        {"coefficients": {"max": 1}, "atmost": 1},
    ],
)
def test_incomplete_relations_are_refused(relation: dict[str, Any]) -> None:
    """A relation without statistics and records, with both, or without numbers is refused."""
    with pytest.raises(ValidationError):
        LocalityParams.model_validate({"fields": ["a"], "relations": [relation]})


def test_ties_equal_take_no_relations() -> None:
    """Ties `equal` and relations of the user's own exclude each other."""
    with pytest.raises(ParameterError, match="'one_sided' or 'free'") as caught:
        swap("LOCALITY", people(), {"fields": ["a"], "ties": "equal", "relations": [ONE]})
    assert caught.value.pointer == "/parameters/ties"


def test_the_plan_checks_named_records() -> None:
    """The plan checks named records."""
    table, provider = people(), PROVIDERS["LOCALITY"]
    relations = [{"rows": {"900": 1}, "at_most": 1}]
    params = LocalityParams.model_validate({"fields": ["a"], "relations": relations})
    with pytest.raises(ParameterError, match="the first is record 0"):
        provider.plan(table, provider.check(params, table.schema))


def test_the_reports_page_shows_relations() -> None:
    """The report page shows segments and violations by the number of the relation."""
    relations = [{"coefficients": {"max": 1, "min": -1}, "at_most": 60}]
    figures = swap("LOCALITY", people(), {"fields": ["a"], "relations": relations}).provider
    _, tables = own_figures(figures, ["a"], Discretion(900))
    (table,) = [table for table in tables if table.caption == "relations"]
    assert list(table.rows) == [("segments", "45"), ("violations", "0")]
