"""A figure of sampled rows has its interval, which covers the figure of all rows as often as it promises."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.repeats import jackknife_interval, mean_interval, quantile_interval
from providers.measures.utility.clustering_error import _scaled_samples, clustering_error, interval_of_sample
from providers.randomness.chacha20 import Stream

RANDOM = np.random.default_rng(5)
ROWS = 2000
SOURCE = RANDOM.normal(size=(ROWS, 2))
TABLES = [
    pa.table({"a": table[:, 0], "b": table[:, 1]})
    for table in (SOURCE, SOURCE + RANDOM.choice([0.0, 0.05], (ROWS, 1)))
]
KEYS = ("pscr", "record_linkage", "dcr", "relations_kept")
STATE = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = STATE


def reports(sample: int) -> dict[str, Any]:
    options = MeasureOptions(only=KEYS, sample=sample, known_fields=["a"])
    found = assess(Release(*TABLES), options, Stream(bytes(32), "measures", 1), pictures=False)
    return {key: dict(found.measures[key]) for key in KEYS}


@pytest.mark.parametrize("key", KEYS)
def test_a_sampled_figure_is_within_its_interval(key: str) -> None:
    report = reports(500)[key]
    value, interval = report["value"], report["interval"]
    values, intervals = ({"": value}, {"": interval}) if "low" in interval else (dict(value), dict(interval))
    if key == "dcr":
        assert intervals.pop("ranks").keys() == values["ranks"].keys()
    assert intervals
    for part, bounds in intervals.items():
        assert 0 <= bounds["low"] <= values[part] <= bounds["high"] < math.inf
        assert bounds["low"] < bounds["high"] or part == "p05"  # half of the distances are 0


def test_a_figure_of_all_rows_has_no_sampling_error() -> None:
    whole = reports(ROWS)
    assert not any("interval" in whole[key] for key in ("pscr", "record_linkage", "dcr"))
    wide, narrow = (each["relations_kept"]["interval"] for each in (reports(500), whole))  # drawn triples
    assert narrow["high"] - narrow["low"] < wide["high"] - wide["low"]


def test_samples_are_scaled_by_the_whole_source() -> None:
    """One extreme row, in the sample or not, scales every distance and cluster; so does the median."""
    random = np.random.default_rng(3)
    numbers = random.normal(size=(400, 2))
    numbers[7] = [1000.0, -3000.0]
    source = pa.table({"a": pa.array(numbers[:, 0], mask=random.random(400) < 0.2), "b": numbers[:, 1]})
    moved = pa.table({"a": source["a"], "b": numbers[random.permutation(400), 1]})
    gaps = np.isnan(source["a"].to_numpy())
    low, high = (
        np.array([of(numbers[~gaps, 0]), of(numbers[:, 1])]) for of in (np.min, np.max)
    )  # fmt: skip
    middle = float(np.median(numbers[~gaps, 0]))
    extreme = set()
    for seed in range(8):
        case = Comparison(
            Release(source, moved), MeasureOptions(sample=100), Stream(bytes([seed]) * 32, "m", 1)
        )
        rows = case.sample.source
        extreme.add(7 in rows)
        before, after = case.points(["a", "b"])
        for points, table, scaled in zip(
            (before, after), (source, moved), _scaled_samples(case), strict=True
        ):
            values = np.column_stack([table[name].to_numpy()[rows] for name in ("a", "b")])
            values[np.isnan(values)] = middle
            assert points.numbers == pytest.approx((values - low) / (high - low), rel=1e-12)
            assert scaled == pytest.approx((values - low) / (high - low), rel=1e-12)
    assert extreme == {True, False}


def test_a_sample_beyond_the_table_draws_no_more_triples_than_a_million() -> None:
    """Two hundred million triples of two fields would take 10 GB."""
    few = [table.slice(0, 40) for table in TABLES]
    found = []
    for sample in (10**6, 2 * 10**8):
        options = MeasureOptions(only=["relations_kept"], sample=sample)
        measured = assess(Release(*few), options, Stream(bytes(32), "measures", 1), pictures=False).measures
        found.append(dict(measured["relations_kept"]))
    assert found[0] == found[1]
    assert 10**6 < found[0]["triples"] <= 2 * 10**6


def test_intervals_cover_what_they_promise() -> None:
    """About 20 intervals of 400 samples may miss: between 6 and 36 with a probability of .999."""
    generator = np.random.default_rng(7)
    draws = generator.exponential(size=(400, 200))
    missed = {"mean": 0, "p05": 0, "jackknife": 0}
    for values in draws:
        mean, low = mean_interval(values), quantile_interval(values, 0.05)
        without = [float(np.delete(values, np.s_[group::10]).mean()) for group in range(10)]
        jackknife = jackknife_interval(float(values.mean()), without, (-math.inf, math.inf))
        missed["mean"] += not mean["low"] <= 1 <= mean["high"]
        missed["p05"] += not low["low"] <= -math.log(0.95) <= low["high"]
        missed["jackknife"] += not jackknife["low"] <= 1 <= jackknife["high"]
    assert all(6 <= count <= 36 for count in missed.values()), missed


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.75])
def test_the_ends_of_a_quantile_have_binomial_ranks(share: float) -> None:
    for rows in (*range(1, 200), 1000, 4177):
        low, high = binom.ppf([0.025, 0.975], rows, share)
        found = quantile_interval(np.arange(float(rows)), share)
        assert found == {"low": max(low - 1, 0), "high": min(high, rows - 1)}


def test_the_interval_of_a_sampled_clustering_error_covers_other_samples() -> None:
    """Starts alone covered the mean over samples in a tenth of the cases; 2 of 25 may miss."""
    random = np.random.default_rng(8)
    numbers = random.uniform(size=(8, 3))[random.integers(0, 8, 2000)] + random.normal(size=(2000, 3)) / 20
    moved = numbers.copy()
    moved[:, 0] = random.permutation(moved[:, 0])

    def error(rows: Any) -> float:
        return clustering_error(numbers[rows], moved[rows], int(random.integers(2**31)))

    samples = [random.choice(2000, 300, replace=False) for _ in range(25)]
    draws = [[error(rows) for _ in range(3)] for rows in samples]
    halves = [[error(random.permutation(rows)[:150]) for _ in range(10)] for rows in samples]
    mean = float(np.mean(draws))
    found = [interval_of_sample(one, two) for one, two in zip(draws, halves, strict=True)]
    assert sum(each["low"] <= mean <= each["high"] for each in found) >= 22


def test_a_sampled_clustering_error_has_a_wider_interval_than_its_starts() -> None:
    source, moved = (table.slice(0, 600) for table in TABLES)
    moved = moved.set_column(0, "a", source["a"].take(pa.array(RANDOM.permutation(600))))
    found = {}
    for sample in (600, 200):
        options = MeasureOptions(only=["clustering_error"], sample=sample)
        measured = assess(Release(source, moved), options, Stream(bytes(32), "measures", 1), pictures=False)
        report = measured.measures["clustering_error"]
        bounds = report["interval"]
        assert 0 <= bounds["low"] <= report["value"] <= bounds["high"] <= 1
        found[sample] = bounds["high"] - bounds["low"]
    assert found[200] > max(0.05, 2 * found[600])


def test_halves_of_a_sample_that_stay_as_they_were_have_no_error() -> None:
    """Two different rows of 20, in few halves both: a half has as many clusters as different rows."""
    source = pa.table({"a": [0.0] * 39 + [1.0], "b": [0.0] * 39 + [1.0]})
    reports = []
    for seed in range(6):
        options = MeasureOptions(only=["clustering_error"], sample=20)
        stream = Stream(bytes([seed]) * 32, "measures", 1)
        measured = assess(Release(source, source), options, stream, pictures=False)
        if "clustering_error" in measured.measures:  # the sample has both rows
            reports.append(measured.measures["clustering_error"])
    assert reports
    for report in reports:
        assert (report["value"], report["interval"]) == (0, {"low": 0, "high": 0})


def test_pscr_stands_next_to_its_value_by_chance() -> None:
    """Released rows that are dealt at random have this value on average, ties included."""
    small = SOURCE[:12].round()
    values = []
    for _ in range(25):
        dealt = RANDOM.permutation(small)
        tables = [pa.table({"a": rows[:, 0], "b": rows[:, 1]}) for rows in (small, dealt)]
        options = MeasureOptions(only=("pscr",))
        found = assess(Release(*tables), options, Stream(bytes(32), "measures", 1), pictures=False)
        values.append(found.measures["pscr"]["value"])
        assert found.measures["pscr"]["chance"] == 1 / 12
    sampled = MeasureOptions(only=("pscr",), sample=50)
    found = assess(Release(*TABLES), sampled, Stream(bytes(32), "measures", 1), pictures=False)
    assert found.measures["pscr"]["chance"] == 1 / 50
    assert abs(np.mean(values) - 1 / 12) < 4 * np.std(values) / math.sqrt(len(values))
