"""The measures of a release against scipy, scikit-learn, statsmodels, pandas, or the plain formula."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import contingency, entropy, ks_2samp
from sklearn.cluster import KMeans

from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.models.linear_model import regress
from providers.measures.risk.entropy_increase import entropy_increase
from providers.measures.risk.record_linkage import by_chance
from providers.measures.shared.block_sums import correlations, spread
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.query_errors import errors_of_answers, relative_errors
from providers.measures.shared.record_distance import share_linked
from providers.measures.shared.repeats import share_interval
from providers.measures.utility.association import correlation_ratio, cramers_v, mean_change
from providers.measures.utility.clustering_error import clustering_error
from providers.measures.utility.delta_rho import change_of_correlations
from providers.measures.utility.marginals import marginal_of_categories, marginal_of_numbers, total_variation
from providers.measures.utility.range_averages import RangeAverages, drawn_queries
from providers.measures.utility.relations_kept import nearness_kept, share_kept_by_chance
from providers.neighbours.closest_record import closest
from providers.neighbours.points import Points
from providers.params import SwapParams
from providers.randomness.chacha20 import Stream
from tests.naive.measures import interval_sd, linked_by_best_fields, linked_share, paired_points

Matrix = npt.NDArray[np.float64]
RANDOM = np.random.default_rng(21)
NUMBERS = RANDOM.normal(size=(300, 3)) @ RANDOM.normal(size=(3, 3)) + [0, 5, -3]
MOVED = NUMBERS + 0.4 * RANDOM.normal(size=NUMBERS.shape)
STATE = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = STATE


def with_gaps(table: Matrix, share: float) -> Matrix:
    return np.where(RANDOM.random(table.shape) < share, np.nan, table)


def in_pieces(table: Matrix) -> Any:
    return lambda: np.array_split(table, [1, 7, 100])


def test_record_linkage_is_the_share_of_nearest_that_are_ones_own() -> None:
    """The rate agrees with all distances between min-max scaled rows."""
    names = ["a", "b", "c"]
    source, destination = (
        pa.table({name: table[:, at] for at, name in enumerate(names)}) for table in (NUMBERS, MOVED)
    )
    low, high = NUMBERS.min(axis=0), NUMBERS.max(axis=0)
    nearest = cdist((NUMBERS - low) / (high - low), (MOVED - low) / (high - low)).argmin(axis=1)
    found = share_linked(closest(*paired_points(source, destination, names)))
    assert found == np.mean(nearest == np.arange(300))
    assert by_chance(300) == 1 / 300


def linkage(
    before: Matrix, after: Matrix, known: str, units: list[int] | None = None, **options: Any
) -> dict[str, Any]:
    """Return the report of record linkage; the columns are named a, b, c, ..."""
    source, destination = (
        pa.table({name: side[:, at] for at, name in enumerate("abcd"[: side.shape[1]])})
        for side in (before, after)
    )
    parameters = None
    if units is not None:
        source, destination = (
            table.append_column("person", pa.array(units)) for table in (source, destination)
        )
        parameters = SwapParams.model_validate({"swap_fields": ["a"], "unit_id": "person"})
    release = Release(source, destination, parameters=parameters)
    chosen = MeasureOptions(known_fields=tuple(known), only=("record_linkage",), **options)
    return assess(release, chosen, Stream(bytes(32), "measures", 1)).measures["record_linkage"]


@pytest.mark.parametrize("changed_rows", [0, 3, 60])
@pytest.mark.parametrize("sizes", [None, 1, 4])
def test_an_intruder_leaves_out_the_known_fields_that_were_changed_most(
    changed_rows: int, sizes: int | None
) -> None:
    """The rate, its fields and the rate by all of them agree with the plain twin, with and without units."""
    before = np.round(NUMBERS, 1)
    after = before.copy()
    after[:, 0] = RANDOM.permutation(after[:, 0])  # dealt at random
    rows = RANDOM.choice(300, changed_rows, replace=False)
    after[rows, 1] += 0.5
    units = [row // (sizes or 1) for row in range(300)]
    found = linkage(before, after, "abc", None if sizes is None else units)
    rate, columns = linked_by_best_fields(before, after, units)
    assert found["value"]["rate"] == pytest.approx(rate)
    assert found["fields"] == ["abc"[column] for column in columns]
    assert found["all_known"] == {
        "fields": ["a", "b", "c"],
        "rate": pytest.approx(linked_share(before, after, units)),
    }
    if sizes != 4:
        assert found["value"]["rate"] > 0.5 > found["all_known"]["rate"]
    assert found["value"]["chance"] == pytest.approx((sizes or 1) / 300)
    assert found.get("unit") == (None if sizes is None else "person")


def test_who_knows_a_swapped_field_in_addition_finds_no_fewer_rows() -> None:
    """A field that is noise in the distance would make an intruder with more knowledge look weaker."""
    before = np.round(NUMBERS, 1)
    after = before.copy()
    after[:, 2] = RANDOM.permutation(after[:, 2])
    without, with_swapped = linkage(before, after, "ab"), linkage(before, after, "abc")
    assert without["value"] == with_swapped["value"]
    assert with_swapped["fields"] == ["a", "b"]
    assert "all_known" not in without
    alone = linkage(before, after, "c")
    assert alone["fields"] == ["c"]
    assert alone["value"]["rate"] < 0.05


@pytest.mark.parametrize("extreme", [None, 1e9, -1e9])
def test_an_extreme_value_does_not_hide_the_numbers_of_others(extreme: float | None) -> None:
    """It makes all other numbers of its field equal in a distance that the range scales, not their ranks."""
    before = NUMBERS.copy()
    before[0, 1] = extreme or before[0, 1]
    after = before + RANDOM.normal(size=before.shape) * [0.5, 0.001, 0.5]
    after[0, 1] = before[0, 1]
    found = linkage(before, after, "abc")
    rate, columns = linked_by_best_fields(before, after, range(300))
    assert found["value"]["rate"] == pytest.approx(rate)
    assert found["fields"] == ["abc"[column] for column in columns]
    assert found.get("by_ranks") == (None if extreme is None else True)
    assert found["value"]["rate"] > 0.3
    assert (linked_share(before, after, range(300)) < 0.2) == (extreme is not None)


def test_a_person_is_found_by_any_of_the_rows() -> None:
    """A person in thirty equal rows is found with certainty, and a sample's interval counts persons."""
    persons = np.repeat(RANDOM.permutation(5_000)[:10].astype(float), 30)[:, None]
    units = [row // 30 for row in range(300)]
    assert linkage(persons, persons, "a", units)["value"] == {"rate": 1.0, "chance": pytest.approx(0.1)}
    assert linkage(persons, persons, "a")["value"]["rate"] == pytest.approx(1 / 30)
    sampled = linkage(persons, persons, "a", units, sample=100)
    assert sampled["interval"]["rate"] == share_interval(1.0, len({units[row] for row in range(300)}))


@pytest.mark.parametrize(("missing_before", "missing_after"), [(0.4, 0.0), (0.0, 0.4), (0.3, 0.3)])
def test_distances_in_own_units_use_all_complete_rows(missing_before: float, missing_after: float) -> None:
    """The mean agrees with all pairs of complete rows, however many each table has."""
    before, after = NUMBERS.copy(), MOVED.copy()
    before[:, 0] = np.where(RANDOM.random(300) < missing_before, np.nan, before[:, 0])
    after[:, 1] = np.where(RANDOM.random(300) < missing_after, np.nan, after[:, 1])
    tables = [pa.table({name: side[:, at] for at, name in enumerate("abc")}) for side in (before, after)]
    found = assess(Release(*tables), MeasureOptions(only=("dcr",)), Stream(bytes(32), "measures", 1))
    complete = [side[~np.isnan(side).any(axis=1)] for side in (before, after)]
    expected = cdist(*complete).min(axis=1).mean()
    assert found.measures["dcr"]["value"]["raw_mean"] == pytest.approx(expected)


def test_the_closest_of_fewer_or_more_records() -> None:
    """Distances and ties agree with all pairs; a row without a record of its number is not its own."""
    for rows in (1, 40, 299):
        for one, two in ((NUMBERS, NUMBERS[:rows]), (NUMBERS[:rows], NUMBERS)):
            left, right = (
                Points(np.ascontiguousarray(side), np.zeros((len(side), 0), np.int32), 0, 0.0)
                for side in (one, two)
            )
            found = closest(left, right)
            expected = cdist(one, two).min(axis=1)
            assert found.distances == pytest.approx(expected)
            assert found.own.tolist() == (np.arange(len(one)) < rows).tolist()
            assert (found.ties == 1).all()


def test_interval_disclosure_of_what_is_missing() -> None:
    """A missing value in the source cannot be disclosed; one in the release discloses nothing."""
    nan = math.nan
    source = np.array([[0.0, nan], [0.0, 1.0], [0.0, 1.0], [nan, nan]])
    released = np.array([[0.0, 9.0], [0.0, nan], [0.0, 1.0], [0.0, 1.0]])
    found = interval_sd(source, released)
    assert found["by_field"] == [1.0, 0.5]
    assert found["share"] == pytest.approx(2 / 3)


def test_correlations_over_the_rows_that_have_both() -> None:
    """Correlations agree with pandas, with gaps and in blocks; constant and empty fields have none."""
    table = np.column_stack([with_gaps(NUMBERS, 0.2), np.full(300, 2.5), np.full(300, np.nan)])
    found = correlations(in_pieces(table), 5)
    assert found[:3, :3] == pytest.approx(pd.DataFrame(table[:, :3]).corr().to_numpy())
    assert np.isnan(found[3:]).all()
    of = spread(in_pieces(table), 5)
    assert of.mean[:3] == pytest.approx(np.nanmean(table[:, :3], axis=0))
    assert of.deviation[:3] == pytest.approx(np.nanstd(table[:, :3], axis=0, ddof=1))
    assert of.count.tolist() == np.count_nonzero(~np.isnan(table), axis=0).tolist()


def test_a_correlation_that_is_lost_counts_as_none() -> None:
    """A field that became constant counts as uncorrelated; one that was constant is left out."""
    before = np.array([[1.0, 0.6, np.nan], [0.6, 1.0, np.nan], [np.nan] * 3])
    assert change_of_correlations(before, np.full((3, 3), np.nan)) == {"mean": 0.6, "sd": 0.0}
    with pytest.raises(NotApplicable, match="vary together"):
        change_of_correlations(np.full((2, 2), np.nan), before[:2, :2])


def test_regression_in_blocks() -> None:
    """The fit agrees with a pseudo-inverse and statsmodels; a duplicated field shares its coefficient."""
    from statsmodels.api import OLS  # takes a second to import

    table = np.column_stack([NUMBERS, 2 * NUMBERS[:, 1], NUMBERS[:, 2] > -3])
    found = regress(in_pieces(table), 4)
    z = (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)
    assert found.coefficients == pytest.approx(np.linalg.pinv(z[:, 1:]) @ z[:, 0])
    assert found.coefficients[0] == pytest.approx(found.coefficients[2])
    whole = OLS(z[:, 0], z[:, [1, 2, 4]]).fit()
    assert found.r_squared == pytest.approx(whole.rsquared)
    assert found.cooks_distances == pytest.approx(whole.get_influence().cooks_distance[0])


def test_what_cannot_be_explained() -> None:
    """A constant or missing target is refused; a target that equals a field is explained fully."""
    with pytest.raises(NotApplicable, match="constant"):
        regress(lambda: [np.ones((5, 2))], 1)
    with pytest.raises(NotApplicable, match="missing"):
        regress(lambda: [np.zeros((0, 2))], 1)
    exact = np.column_stack([NUMBERS[:, 0] * 2, NUMBERS[:, 0]])
    assert regress(lambda: [exact], 1).r_squared == pytest.approx(1.0)


@pytest.mark.parametrize("column", [0, 1])
def test_numbers_beyond_float64_have_no_regression(column: int) -> None:
    """Their deviation overflows, and a decomposition of what is left would not converge."""
    table = np.column_stack([NUMBERS[:20, 0], NUMBERS[:20, 1]])
    table[:2, column] = 1e300, -1e308
    with (
        np.errstate(all="ignore"),
        pytest.raises(NotApplicable, match="too large, or too close to each other"),
    ):
        regress(lambda: [table], 1)


def test_cramers_v() -> None:
    """Cramer's V agrees with scipy's for few and many levels; it is None for a single level."""
    one, two = RANDOM.integers(0, 4, 500), RANDOM.integers(0, 3, 500)
    two = np.where(RANDOM.random(500) < 0.4, one % 3, two)
    codes = one.astype(np.int32), two.astype(np.int32)
    expected = contingency.association(contingency.crosstab(one, two).count, method="cramer")
    assert cramers_v(*codes) == pytest.approx(expected)
    many = (codes[0] * 1000, codes[1] * 2000)
    assert cramers_v(*many) == pytest.approx(expected)
    assert cramers_v(codes[0], np.zeros(500, np.int32)) is None
    assert cramers_v(codes[0], codes[0]) == pytest.approx(1.0)


def test_correlation_ratio() -> None:
    """The ratio is the variance between groups by the total variance, over rows with a number."""
    codes = RANDOM.integers(0, 4, 400).astype(np.int32)
    numbers = with_gaps(codes + RANDOM.normal(size=400), 0.1)
    there = ~np.isnan(numbers)
    mean = numbers[there].mean()
    between = sum(
        (there & (codes == level)).sum() * (numbers[there & (codes == level)].mean() - mean) ** 2
        for level in range(4)
    )
    total = ((numbers[there] - mean) ** 2).sum()
    assert correlation_ratio(codes, numbers) == pytest.approx(math.sqrt(between / total))
    assert correlation_ratio(codes, np.full(400, 3.0)) is None
    assert correlation_ratio(np.zeros(400, np.int32), numbers) is None
    assert mean_change([0.5, None, 0.2], [0.1, 0.9, None]) == pytest.approx(0.3)
    assert mean_change([None], [0.5]) is None


def test_marginals() -> None:
    """Kolmogorov-Smirnov agrees with scipy's, total variation with counting; order has no effect."""
    before, after = NUMBERS[:, 0], MOVED[:, 1]
    found = marginal_of_numbers(before, after, 100.0, 5)
    assert found["distance"] == pytest.approx(ks_2samp(before, after).statistic)
    assert not found["identical"]
    assert found["mean"]["after"] == pytest.approx(after.mean() + 100)
    assert found["sd"]["before"] == pytest.approx(before.std(ddof=1))
    assert found["quartiles"]["after"] == pytest.approx(np.quantile(after + 100, [0.25, 0.5, 0.75]).tolist())
    same = marginal_of_numbers(before, before[::-1], 0.0, 5)
    assert same["identical"]
    assert same["distance"] == 0
    half = np.where(np.arange(300) % 2, before, np.nan)
    assert marginal_of_numbers(before, half, 0.0, 5)["distance"] >= 0.5
    few = marginal_of_numbers(before[:19], after[:19], 0.0, 5)
    assert "quartiles" not in few
    assert "mean" not in marginal_of_numbers(before[:4], after[:4], 0.0, 5)
    codes = np.array([0, 0, 1, 2], np.int32), np.array([0, 1, 1, 1], np.int32)
    assert total_variation(*codes) == pytest.approx(0.5)
    assert not marginal_of_categories(*codes, 5)["identical"]
    assert marginal_of_categories(codes[0], codes[0][::-1], 5)["identical"]


def test_clustering_error() -> None:
    """The error agrees with trying all matchings of clusters; it is 0 if nothing changed."""
    random = np.random.default_rng(2)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    source = np.repeat(centres, 30, axis=0) + random.normal(size=(120, 2)) * 0.4
    destination = source.copy()
    destination[:12] = source[60:72]
    first = KMeans(4, n_init=10, random_state=1).fit(source)
    second = KMeans(4, init=first.cluster_centers_, n_init=1).fit(destination)
    agree = max(
        np.mean(np.array(matching)[first.labels_] == second.labels_)
        for matching in itertools.permutations(range(4))
    )
    assert clustering_error(source, destination, 1, 4) == pytest.approx(1 - agree)
    assert 1 - agree == pytest.approx(0.1)
    assert clustering_error(source, source, 1, 4) == 0


def test_clusters_of_an_unchanged_table_have_no_error() -> None:
    """K-means that goes on from its own centres moves a few rows, of which none is an error."""
    for seed in range(8):
        numbers = np.random.default_rng(seed).normal(size=(300, 1))
        assert clustering_error(numbers, numbers.copy(), seed) == 0


def test_range_averages() -> None:
    """Averages agree with filtering the rows, with gaps; a range holds the requested share of rows."""
    by, of = with_gaps(NUMBERS[:, 0], 0.1), with_gaps(NUMBERS[:, 1], 0.1)
    averages = RangeAverages(by)
    ranges = [averages.range_at(start, width) for start, width in ((0.0, 0.2), (0.7, 0.5), (0.99, 0.05))]
    known = [one for one in ranges if one is not None]
    for (low, high), found, width in zip(known, averages.averages(of, known), (0.2, 0.5, 0.05), strict=True):
        inside = (by >= low) & (by <= high)
        assert found == pytest.approx(np.nanmean(of[inside]))
        assert inside.sum() / np.count_nonzero(~np.isnan(by)) == pytest.approx(width, abs=0.01)
    assert RangeAverages(np.full(3, np.nan)).range_at(0.5, 0.5) is None


@pytest.mark.parametrize("value", [0.0, None])
def test_range_averages_without_an_answer_are_left_out(value: float | None) -> None:
    """If every average is 0 or missing, no query has a relative error; all other measures are taken."""
    column = pa.array([value] * 30, pa.float64())
    table = pa.table({"a": column, "b": column})
    found = assess(Release(table, table), MeasureOptions(), Stream(bytes(32), "measures", 1))
    assert found.left_out["range_averages"] == "no query has an answer other than 0 in the source"
    assert "changed_share" in found.measures


def test_errors_of_answers() -> None:
    """An unanswered query has error 1; queries with the answer 0 or none in the source are left out."""
    source, released = np.array([2.0, 4.0, 0.0, np.nan, 1.0]), np.array([3.0, 4.0, 1.0, 1.0, np.nan])
    errors = relative_errors(source, released)
    assert errors.tolist() == [0.5, 0.0, 1.0]
    found = errors_of_answers(errors)
    assert found == {"bounded": 0.5, "mean": 0.5, "q25": 0.25, "median": 0.5, "q75": 0.75}
    assert errors_of_answers(np.array([0.0, 0.5, 40.0]))["bounded"] == 0.5
    queries = drawn_queries(np.random.default_rng(1).random((500, 4)), 3)
    assert {(one, two) for one, two, _, _ in queries} == set(itertools.permutations(range(3), 2))
    assert all(0.05 <= width <= 0.5 for _, _, _, width in queries)


def test_entropy_increase() -> None:
    """The increase agrees with scipy's entropies of histograms; it is 0 for equal values."""
    before, after = NUMBERS[:, 0], with_gaps(3 * NUMBERS[:, 0], 0.1)
    edges = np.linspace(min(before.min(), np.nanmin(after)), max(before.max(), np.nanmax(after)), 7)
    expected = [entropy(np.histogram(side[~np.isnan(side)], edges)[0], base=2) for side in (before, after)]
    assert entropy_increase(before, after) == pytest.approx(expected[1] - expected[0])
    assert entropy_increase(before, before[::-1]) == 0
    assert entropy_increase(before, np.full(300, np.nan)) is None


def test_nearness_kept() -> None:
    """Counts agree with comparing the distances of each triple one by one."""
    source, released = (
        RANDOM.integers(0, 8, (200, 3)).astype(float),
        RANDOM.integers(0, 8, (200, 3)).astype(float),
    )
    released[::17, 1] = np.nan
    found = held = 0
    for triple, after in zip(source, released, strict=True):
        i, j, k = sorted(range(3), key=lambda at: triple[at])
        left, right = triple[j] - triple[i], triple[k] - triple[j]
        if left > 0 and right > 0 and left != right:
            found += 1
            now = abs(after[j] - after[i]), abs(after[k] - after[j])
            held += (left < right and now[0] < now[1]) or (left > right and now[0] > now[1])
    assert nearness_kept(source, released) == (found, held)
    assert nearness_kept(source, source) == (found, found)


@pytest.mark.parametrize("levels", [3, 10, 10**6])
def test_relations_that_chance_keeps(levels: int) -> None:
    """The chance agrees with all triples of a small table, and with a permuted release."""
    random = np.random.default_rng(levels)
    released = np.sort(random.integers(0, levels, 12).astype(float))
    released[0] = np.nan
    triples = np.array(list(itertools.permutations(released, 3)))
    kept = sum(abs(i - j) < abs(j - k) for i, j, k in triples) / len(triples)
    assert share_kept_by_chance(triples) == pytest.approx(kept)
    skewed = np.floor(np.minimum(random.exponential(size=3000) ** 2, 50) * levels / 50)
    table, moved = (pa.table({"a": numbers}) for numbers in (skewed, skewed[random.permutation(3000)]))
    options = MeasureOptions(only=("relations_kept",), fields=("a",))
    found = assess(Release(table, moved), options, Stream(bytes(32), "m", 1)).measures["relations_kept"]
    assert found["value"] == pytest.approx(found["chance"], abs=0.04)
    assert found["interval"]["low"] <= found["chance"] <= found["interval"]["high"]
    assert (found["chance"] < 0.45) == (levels < 10**6)
