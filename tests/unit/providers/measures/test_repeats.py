"""Measures that depend on chance: mean and interval over several draws."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from app.report.measure_tables import measure
from app.report.small_counts import Discretion
from providers import PROVIDERS
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.run_figures import measures_stream, release_of_run
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.query_errors import relative_errors
from providers.measures.shared.repeats import DRAWS, intervals, mean_of_draws, share_interval
from providers.measures.utility.prediction import _split
from providers.measures.utility.range_averages import QUERIES
from tests.naive.agreement import swap

SEED = bytes(range(32))


def people(rows: int = 300) -> pa.Table:
    random = np.random.default_rng(3)
    age = random.integers(18, 80, rows)
    hours = random.normal(40, 5, rows)
    income = 900.0 * age + 300 * hours + random.normal(0, 4000, rows)
    return pa.table(
        {"age": age.astype(float), "hours": hours, "income": income, "size": income / 500 + hours}
    )


def judged(service: str, parameters: dict[str, Any], only: str, seed: int = 0, **options: Any) -> Assessment:
    provider, table = PROVIDERS[service], people()
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    released = release_of_run(provider, params, table, swap(service, table, parameters, SEED), 128)
    return assess(released, MeasureOptions(only=(only,), **options), measures_stream(bytes([seed]) * 32))


def test_the_interval_of_a_mean_is_students() -> None:
    """Intervals agree with scipy's for independent draws, are cut at the bounds, and need two draws."""
    values = [0.5, 0.7, 0.4, 0.9, 0.65]
    draws = [{"a": value, "b": 1.0} for value in values]
    found = intervals(draws, (0.0, 1.0))
    low, high = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
    assert found["a"] == pytest.approx({"low": low, "high": high})
    assert found["b"] == {"low": 1.0, "high": 1.0}
    assert mean_of_draws(draws) == pytest.approx({"a": np.mean(values), "b": 1.0})
    assert intervals(draws, (0.0, 0.7))["a"]["high"] == 0.7
    assert intervals(draws[:1], (0.0, 1.0)) == {}


def test_the_interval_of_splits_that_share_rows_is_wider() -> None:
    """Nadeau and Bengio's correction: 1/J + test rows / training rows in place of 1/J."""
    values = [{"a": value} for value in (0.5, 0.7, 0.4, 0.9, 0.65)]
    plain, corrected = (intervals(values, (-9.0, 9.0), share)["a"] for share in (0.0, 0.25))
    ratio = (corrected["high"] - corrected["low"]) / (plain["high"] - plain["low"])
    assert ratio == pytest.approx(np.sqrt((1 / 5 + 0.25) / (1 / 5)))


@pytest.mark.parametrize(("count", "rows"), [(0, 50), (3, 50), (500, 900), (50, 50)])
def test_the_interval_of_a_share_is_wilsons(count: int, rows: int) -> None:
    """Intervals of shares agree with those of statsmodels, also at 0 and 1."""
    from statsmodels.stats.proportion import proportion_confint  # takes a second to import

    low, high = proportion_confint(count, rows, method="wilson")
    assert share_interval(count / rows, rows) == pytest.approx({"low": low, "high": high}, abs=1e-12)


def test_the_interval_of_a_share_has_no_rounding_errors_at_its_ends() -> None:
    """None and all of the rows have the exact limits 0 and 1; every interval contains its share."""
    for rows in (*range(1, 400), 999.7, 12345, 10**7):
        assert share_interval(0.0, rows)["low"] == 0.0
        assert share_interval(1.0, rows)["high"] == 1.0
        for share in (1e-20, 0.3, 1 - 2.0**-53):
            interval = share_interval(share, rows)
            assert 0.0 <= interval["low"] <= share <= interval["high"] <= 1.0


def test_robust_intervals_say_how_sure_they_are() -> None:
    """Both shares have their interval, of the sampled rows, and the value by chance has none."""
    report = judged("MEDS", {"swap_fields": ["age"], "k": 10}, "interval_rmd", sample=200).measures[
        "interval_rmd"
    ]
    assert set(report["value"]) == {"own", "source", "chance", "support"}
    assert set(report["interval"]) == {"own", "source"}
    for part, interval in report["interval"].items():
        narrowest = share_interval(report["value"][part], 200)
        assert interval["low"] <= narrowest["low"] < narrowest["high"] <= interval["high"]
    shown = measure("interval_rmd", report, [], Discretion(1000))
    assert [name for name, _ in shown.pairs[-2:]] == [
        "each table scaled by itself, 95 % interval",
        "both scaled by the source, 95 % interval",
    ]


@pytest.mark.parametrize("key", ["prediction", "clustering_error"])
def test_a_figure_of_chance_says_how_sure_it_is(key: str) -> None:
    """Reports have the number of draws and an interval; another seed gives a similar mean."""
    reports = [
        judged("MEDS", {"swap_fields": ["age"], "k": 10}, key, seed, target="income").measures[key]
        for seed in (0, 1)
    ]
    values = []
    for report in reports:
        assert report["draws"] == DRAWS
        value, interval = report["value"], report["interval"]
        if key == "clustering_error":
            value, interval = {"": value}, {"": interval}
        assert set(interval) == set(value)
        for part, number in value.items():
            assert interval[part]["low"] <= number <= interval[part]["high"]
        values.append(value)
    for part in values[0]:
        assert values[0][part] == pytest.approx(values[1][part], abs=0.1)


def test_queries_say_how_sure_their_quartiles_are() -> None:
    """The quartiles have an interval and the mean has none, as single queries decide it."""
    reports = [
        judged("MEDS", {"swap_fields": ["age"], "k": 10}, "range_averages", seed).measures["range_averages"]
        for seed in (0, 1)
    ]
    for report in reports:
        value, interval = report["value"], report["interval"]
        assert report["queries"] == QUERIES
        assert set(interval) == {"bounded", "q25", "median", "q75"} == set(value) - {"mean"}
        for part, bounds in interval.items():
            assert bounds["low"] <= value[part] <= bounds["high"]
    for part, number in reports[0]["value"].items():
        assert number == pytest.approx(reports[1]["value"][part], abs=0.1)


def test_intervals_of_queries_cover_the_quartiles_of_all_queries() -> None:
    """Averages on both sides of 0: of 150 intervals at least 132 cover, with a probability of .999."""
    random = np.random.default_rng(6)
    table = pa.table({name: random.normal(size=400) for name in "abcd"})
    moved = table.set_column(0, "a", pa.array(random.permutation(table["a"].to_numpy())))
    found = [
        assess(
            Release(table, moved),
            MeasureOptions(only=("range_averages",)),
            measures_stream(bytes([seed]) * 32),
        ).measures["range_averages"]
        for seed in range(150)
    ]
    for part in ("bounded", "q25", "median", "q75"):
        target = float(np.mean([report["value"][part] for report in found]))
        covered = [
            report["interval"][part]["low"] <= target <= report["interval"][part]["high"] for report in found
        ]
        assert sum(covered) >= 132, part


def test_each_draw_has_its_own_split() -> None:
    """A split has disjoint parts of four fifths and one fifth; each draw has another split."""
    case = Comparison(Release(people(), people()), MeasureOptions(), measures_stream(SEED))
    splits = [_split(case, 300, None, draw) for draw in range(3)]
    for split in splits:
        assert len(split.test) == 60
        assert sorted([*split.training, *split.test]) == list(range(300))
    assert len({tuple(split.test) for split in splits}) == 3
    units = np.repeat(np.arange(100), 3)
    split = _split(case, 100, units, 0)
    assert len(split.test) == 60
    assert not set(units[split.test]) & set(units[split.training])


def test_a_rotation_is_judged_within_its_release() -> None:
    """Forests tested on released rows score well; tested on the source's rows they fail."""
    random = np.random.default_rng(9)
    rows = 600
    numbers = random.normal(size=(rows, 4))
    group = np.array(["a", "b", "c"])[np.digitize(numbers @ [1.0, -1.0, 0.5, 0.2], [-0.6, 0.6])]
    table = pa.table({**{name: numbers[:, i] for i, name in enumerate("wxyz")}, "group": group})
    parameters = {"label_fields": ["group"], "sigma": 0.05}
    provider = PROVIDERS["PABIDOT"]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    result = swap("PABIDOT", table, parameters, SEED)
    options = MeasureOptions(only=("prediction",), target="group")
    released = release_of_run(provider, params, table, result, 128)
    found = assess(released, options, measures_stream(SEED)).measures["prediction"]["value"]
    assert found["destination"] > 0.7
    assert found["source"] - found["destination"] < 0.2

    def perturb(training: pa.Table, stream: Any) -> pa.Table:
        return provider.swap(training, params, stream, lambda fraction, stage: None).table

    unrotated = Release(table, result.table, result.origin, perturb=perturb)  # as another service's
    wrong = assess(unrotated, options, measures_stream(SEED)).measures["prediction"]["value"]
    assert wrong["destination"] < found["destination"] - 0.1


def test_unanswered_queries_are_no_error_of_the_source() -> None:
    """Queries without an answer in the source, or with the answer 0, are left out."""
    asked, answered = np.array([np.nan, 0.0, 2.0]), np.array([np.nan, 1.0, np.nan])
    assert relative_errors(asked, answered).tolist() == [1.0]


def test_the_page_shows_the_interval() -> None:
    """The page shows the interval of a single value or of each part, and the number of draws."""
    report = {"value": 0.25, "draws": 10, "interval": {"low": 0.2, "high": 0.3}}
    shown = measure("clustering_error", report, [], Discretion(1000))
    assert shown.pairs == [("95 % interval", "0.2 to 0.3")]
    assert shown.sample == "the mean of 10 random draws"
    report = {"value": 0.25, "triples": 900, "chance": 0.125, "interval": {"low": 0.2, "high": 0.3}}
    shown = measure("relations_kept", report, [], Discretion(1000))
    assert shown.pairs == [("by chance alone", "0.125"), ("95 % interval", "0.2 to 0.3")]
    parts = {"source": {"low": 0.9, "high": 0.95}, "destination": {"low": 0.5, "high": 0.6}}
    report = {"value": {"source": 0.92, "destination": 0.55}, "draws": 10, "interval": parts, "sample": 500}
    shown = measure("prediction", report, [], Discretion(1000))
    assert shown.pairs[2:] == [
        ("trained on the source, 95 % interval", "0.9 to 0.95"),
        ("trained on the destination, 95 % interval", "0.5 to 0.6"),
    ]
    assert shown.sample == "on a random sample of 500 rows; the mean of 10 random draws"
