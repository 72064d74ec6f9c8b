"""Interval disclosure by robust distances, against a twin that tries every subset of the rows."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.stats import chi2
from sklearn.covariance import MinCovDet, fast_mcd

from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.models import fast_mcd as search
from providers.measures.models.robust_covariance import (
    _RAW,
    _REWEIGHTED,
    _least_determinant,
    consistency_factor,
    independent_fields,
    robust_covariance,
    small_sample_factor,
)
from providers.measures.risk.interval_rmd import _fitted, _intervals, interval_rmd
from providers.measures.run_figures import measures_stream
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.repeats import share_interval
from providers.randomness.chacha20 import Stream
from tests.naive import mcd

Matrix = npt.NDArray[np.float64]


def outlying(rows: int, fields: int, seed: int = 3) -> Matrix:
    """Correlated numbers with one row of ten far away."""
    random = np.random.default_rng(seed)
    table = random.normal(size=(rows, fields)) @ random.normal(size=(fields, fields))
    table[: rows // 10] += 12
    return table


def scaled(table: Matrix) -> Matrix:
    return np.asarray((table - table.mean(axis=0)) / table.std(axis=0, ddof=1))


def test_the_covariance_is_that_of_all_subsets_tried() -> None:
    """With the rows that FAST-MCD finds, in most cases the best of 3432 subsets, all factors agree."""
    best = 0
    for seed in range(6):
        x = scaled(outlying(14, 2, seed))
        found = tuple(_least_determinant(x, 8).tolist())
        covariance, support, _ = robust_covariance(x)
        assert support == 0.5
        assert covariance == pytest.approx(mcd.reweighted(x, found), rel=1e-9)
        best += found == mcd.least_determinant(x, 8)
    assert best >= 4


@pytest.mark.parametrize(("rows", "fields"), [(400, 2), (700, 4), (2500, 5)])
def test_the_search_finds_no_greater_determinant_than_scikit_learn(rows: int, fields: int) -> None:
    """With one, two and five subsets the rows are about as good as theirs, and leave the far rows out."""
    x = scaled(outlying(rows, fields))
    size = (rows + fields + 1) // 2
    found = search.least_determinant(x, size, Stream(bytes(32), "fast_mcd", 1))
    assert len(np.unique(found)) == size
    assert found.min() >= rows // 10  # the others are far away
    theirs = fast_mcd(x, support_fraction=(size + 0.5) / rows, random_state=0)[2]
    ours, peer = (np.linalg.slogdet(np.cov(x[chosen], rowvar=False))[1] for chosen in (found, theirs))
    assert ours <= peer + 0.01


def test_a_plane_with_more_than_half_of_the_rows_is_found() -> None:
    """The determinant is 0 there, although most starts and subsets have rows outside the plane."""
    random = np.random.default_rng(5)
    x = random.normal(size=(900, 3))
    x[:520, 1] = 2 * x[:520, 0]
    found = search.least_determinant(scaled(x), 452, Stream(bytes(32), "fast_mcd", 1))
    assert len(found) == 452
    assert found.max() < 520


def test_robust_intervals_are_those_of_the_twin() -> None:
    """Shares agree row by row; the destination's own scale hides an unmodified cell."""
    source = outlying(400, 2)
    changed = source + 0.02 * np.random.default_rng(1).normal(size=source.shape)
    changed[:, 0] = source[:, 0]
    changed[200] += 40.0  # one row moves the means and deviations
    covariance, support, _ = robust_covariance(scaled(source))
    assert support == 0.5
    found = interval_rmd(source, changed)
    assert {name: found[name] for name in ("own", "source", "chance")} == pytest.approx(
        mcd.interval_rmd(source, changed, covariance)
    )
    assert found["source"] == pytest.approx(399 / 400)
    assert found["own"] < 0.5
    assert 0.001 < found["chance"] < 0.1


@pytest.mark.slow
def test_the_covariance_of_normal_rows_is_theirs() -> None:
    """Without the factor after reweighting, variances are some per cent too small."""
    random = np.random.default_rng(8)
    x = random.normal(size=(20_000, 3))
    covariance, _, _ = robust_covariance(x)
    assert np.diag(covariance) == pytest.approx(1.0, abs=0.03)
    assert 1 / consistency_factor(3, 0.975) == pytest.approx(chi2.cdf(chi2.ppf(0.975, 3), 5) / 0.975)
    peer = MinCovDet(random_state=1).fit(x).covariance_
    assert covariance == pytest.approx(peer, abs=0.02)


def test_factors_for_small_samples() -> None:
    """Factors of Pison, Van Aelst and Willems fall with the number of rows, towards 1."""
    for table in (_RAW, _REWEIGHTED):
        for fields in (1, 2, 3, 8):
            for alpha in (0.5, 0.75, 0.9):
                factors = [small_sample_factor(fields, rows, alpha, table) for rows in (200, 2000, 200_000)]
                assert factors == sorted(factors, reverse=True)
                assert factors[-1] == pytest.approx(1.0, abs=2e-3)
        assert small_sample_factor(3, 500, 1.0, table) == pytest.approx(1.0)
    assert small_sample_factor(2, 100, 0.5, _RAW) == pytest.approx(
        1 / (1 - np.exp(0.673292623522) / 100**0.69136586)
    )


def test_a_field_that_follows_from_others_adds_nothing() -> None:
    """A dependent field changes no distance, and its values still count."""
    table = outlying(300, 3)
    together = np.column_stack([table, table[:, 0] - 2 * table[:, 1], table[:, 2]])
    assert independent_fields(scaled(together)) == [0, 1, 2]
    moved = together + 5.0
    moved[:10, 4] = together[:10, 4]
    found = interval_rmd(together, moved)
    assert found["source"] == pytest.approx(10 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("equal", [0.4, 0.49, 0.5, 0.51, 0.6, 0.9])
def test_the_figure_is_there_where_rows_lie_on_a_plane(equal: float) -> None:
    """If two fields are equal in many rows, more rows support the covariance and the measure applies."""
    random = np.random.default_rng(5)
    table = random.normal(size=(1000, 3))
    same = random.permutation(1000) < 1000 * equal
    table[same, 1] = table[same, 0]
    found = interval_rmd(table, table + 0.001)
    assert found["support"] == (0.5 if equal < 0.5 else 0.75 if equal < 0.75 else 1.0)
    assert 0 <= found["source"] <= 1


def judged(table: pa.Table, seed: int, sample: int) -> Assessment:
    options = MeasureOptions(only=("interval_rmd",), sample=sample)
    return assess(Release(table, table), options, measures_stream(bytes([seed]) * 32))


@pytest.mark.slow
def test_no_seed_decides_whether_there_is_a_figure() -> None:
    """The measure applies if one value has nearly half of the rows, or if two fields are nearly equal."""
    random = np.random.default_rng(6)
    rows = 2000
    wage = random.gamma(2, 1000, rows)
    total = np.where(random.random(rows) < 0.5, wage, wage + random.gamma(2, 500, rows))
    often = np.where(random.permutation(rows) < 0.495 * rows, 0.0, random.normal(size=rows))
    table = pa.table({"wage": wage, "total": total, "often": often, "age": random.normal(size=rows)})
    reports = [judged(table, seed, 300) for seed in range(8)]
    assert {tuple(one.measures["interval_rmd"]["fields"]) for one in reports} == {tuple(table.column_names)}
    whole = [judged(table, seed, rows).measures["interval_rmd"]["value"] for seed in range(3)]
    assert whole[0] == whole[1] == whole[2]


def test_as_many_fields_as_rows_of_a_subset_are_not_measured() -> None:
    """The search could draw no start of 300 fields of numbers: the job ended with an internal error."""
    table = np.random.default_rng(3).normal(size=(1500, 300))
    with pytest.raises(NotApplicable, match="fewer than 300 fields of numbers"):
        interval_rmd(table, table)


def test_numbers_whose_squares_float64_does_not_have() -> None:
    """The measure is left out with a reason."""
    huge = outlying(50, 2)
    huge[:, 0] *= 1e200
    with np.errstate(all="ignore"), pytest.raises(NotApplicable, match="too large"):
        interval_rmd(huge, huge)


def test_one_field() -> None:
    """The half with the least variance is found exactly."""
    random = np.random.default_rng(7)
    x = scaled(np.concatenate([random.normal(size=300), random.normal(50, 1, 40)])[:, np.newaxis])
    covariance, support, _ = robust_covariance(x)
    assert support == 0.5
    assert covariance[0, 0] == pytest.approx(np.var(x[:300], ddof=1), rel=0.1)


@pytest.mark.slow
def test_the_interval_of_a_share_is_as_wide_as_by_the_bootstrap() -> None:
    """The error of the covariance is in it: an interval of independent rows alone is too narrow."""
    random = np.random.default_rng(0)
    rows = 600
    source = outlying(rows, 3)
    destination = source + 0.01 * random.normal(size=source.shape)
    found = _fitted(source, destination)
    interval = _intervals(found, source, destination, Stream(bytes(32), "measures", 3))["source"]
    drawn = [random.integers(0, rows, rows) for _ in range(30)]
    replicates = [interval_rmd(source[chosen], destination[chosen])["source"] for chosen in drawn]
    bootstrap = 2 * 1.96 * np.std(replicates, ddof=1)
    width = interval["high"] - interval["low"]
    assert 0.65 < width / bootstrap < 1.5
    narrow = share_interval(found.shares["source"], rows)
    assert width > 1.2 * (narrow["high"] - narrow["low"])


def test_an_interval_of_few_rows_and_of_a_field_that_one_row_moves() -> None:
    """A group without which a field is constant is skipped; shares of 0 and 1 have an interval, too."""
    source = np.random.default_rng(2).normal(size=(12, 2))
    for moved, low, high in ((source, 0.7, 1.0), (source + 5.0, 0.0, 0.3)):
        found = _fitted(source, moved)
        assert found.shares["source"] in (0.0, 1.0)
        interval = _intervals(found, source, moved, Stream(bytes(32), "measures", 3))["source"]
        assert interval == pytest.approx(share_interval(found.shares["source"], 12))
        assert interval["low"] >= low - 0.1
        assert interval["high"] <= high + 0.1
    source[:, 1] = 0.0
    source[3, 1] = 1.0
    interval = _intervals(_fitted(source, source), source, source, Stream(bytes(32), "measures", 3))["own"]
    assert interval["high"] == 1.0
