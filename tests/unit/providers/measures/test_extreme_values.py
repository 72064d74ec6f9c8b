"""One extreme value: figures that it does not decide, and cautions about those that it does."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from app.report.measure_tables import measure
from app.report.small_counts import Discretion
from providers.measures import MEASURES
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.extremes import few_rows_decide
from providers.measures.run_figures import measures_stream
from providers.measures.shared.entropy import range_is_stretched
from providers.selection.figures import FIGURES, take_figures
from providers.selection.intervals import interval_of, take_row_groups
from providers.tables import ranks as ranking
from tests.naive import ranks as naive

ROWS = 400
EXTREME = 1e6


def related(extreme: bool, rows: int = ROWS) -> pa.Table:
    """Two fields that depend on a third one; the first value of `y` may be an extreme one."""
    random = np.random.default_rng(3)
    x = random.normal(size=rows)
    y, z = (x + 0.3 * random.normal(size=rows) for _ in range(2))
    if extreme:
        y[0] = EXTREME
    return pa.table({"x": x, "y": y, "z": z, "weight": random.uniform(1, 5, rows)})


def dealt(table: pa.Table, field: str = "y") -> pa.Table:
    """Deal the values of a field to the rows at random."""
    values = np.random.default_rng(5).permutation(table.column(field).to_numpy())
    return table.set_column(table.schema.get_field_index(field), field, pa.array(values))


def assessed(table: pa.Table, release: pa.Table, **options: Any) -> Assessment:
    given = MeasureOptions.model_validate({"target": "y", "weight_fields": ["weight"], **options})
    return assess(Release(table, release), given, measures_stream(bytes(32)), pictures=False)


NUMBERS = st.one_of(st.none(), st.sampled_from([-2.0, -0.0, 0.0, 1.0, 5.0]), st.floats(-1e6, 1e6, width=32))
FIELD = st.lists(NUMBERS, min_size=12, max_size=12)


def as_numbers(field: list[float | None]) -> Any:
    return np.array([np.nan if number is None else number for number in field])


@given(st.lists(NUMBERS, max_size=40))
def test_ranks_of_equal_numbers_are_their_mean(field: list[float | None]) -> None:
    numbers = as_numbers(field)
    present = ~np.isnan(numbers)
    found = ranking.doubled_ranks(numbers)
    assert found[present].tolist() == [2 * each for each in rankdata(numbers[present])]
    assert (found[~present] == ranking.MISSING).all()
    known = [number for number in field if number is not None]
    assert found[present].tolist() == [2 * naive.rank(known, number) for number in known]


def test_ranks_of_very_many_rows_are_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.array([3.0, np.nan, 1.0, 3.0])
    few = ranking.doubled_ranks(numbers)
    monkeypatch.setattr(ranking, "_INT32_ROWS", len(numbers))
    many = ranking.doubled_ranks(numbers)
    assert (few.dtype.name, many.dtype.name) == ("int32", "int64")
    assert few.tolist() == many.tolist() == [5, 0, 2, 5]


@settings(max_examples=60)
@given(st.tuples(FIELD, FIELD, FIELD), st.tuples(FIELD, FIELD, FIELD))
def test_changes_of_rank_correlations_are_those_of_the_twin(
    source: tuple[list[float | None], ...], destination: tuple[list[float | None], ...]
) -> None:
    """With ties, missing numbers, and fields that become constant."""
    before, after = (
        pa.table({name: pa.array(field, pa.float64()) for name, field in zip("abc", fields, strict=True)})
        for fields in (source, destination)
    )
    found = assess(
        Release(before, after), MeasureOptions(only=("delta_rho",)), measures_stream(bytes(32))
    ).measures
    if "delta_rho" in found:  # else no pair is defined
        expected = naive.change_of_ranks(source, destination)
        assert found["delta_rho"]["value"]["ranks"] == pytest.approx(expected, abs=1e-9)


def test_rank_correlations_of_several_blocks_are_scipys() -> None:
    table = related(False, 70_000).drop_columns(["weight"])
    release = dealt(table)
    found = assess(
        Release(table, release), MeasureOptions(only=("delta_rho",)), measures_stream(bytes(32))
    ).measures["delta_rho"]["value"]
    matrices = [
        spearmanr(np.column_stack([column.to_numpy() for column in each.columns])).statistic
        for each in (table, release)
    ]
    pairs = np.abs(matrices[1] - matrices[0])[np.triu_indices(3, 1)]
    assert found["ranks"] == pytest.approx({"mean": pairs.mean(), "sd": pairs.std()}, abs=1e-12)


def test_an_extreme_value_does_not_decide_the_change_of_ranks() -> None:
    """It sets the mean of Pearson's to nearly 0, although no relation of the field is left."""
    plain, extreme = (
        assessed(related(each), dealt(related(each))).measures["delta_rho"]["value"] for each in (False, True)
    )
    assert plain["mean"] > 0.55
    assert extreme["mean"] < 0.1
    assert plain["ranks"]["mean"] > 0.55
    assert extreme["ranks"]["mean"] == pytest.approx(plain["ranks"]["mean"], abs=0.01)


def test_the_change_of_ranks_has_the_interval_of_the_jackknife() -> None:
    figure = FIGURES["delta_rho.ranks.mean"]
    table = related(True)
    release = Release(table, dealt(table))
    given = [figure], release, MeasureOptions(weight_fields=("weight",)), measures_stream(bytes(32))
    taken = take_figures(*given)
    found = interval_of(figure, [taken], take_row_groups(*given), ["y"])
    assert found is not None
    assert 0.3 < found["low"] < taken.values[figure.name] < found["high"] < 1
    assert found["high"] - found["low"] < 0.3


@given(st.lists(NUMBERS, max_size=30), st.integers(0, 300), st.booleans())
def test_few_rows_decide_as_in_the_twin(field: list[float | None], more: int, weighted: bool) -> None:
    field = field + [float(row % 7) for row in range(more)]
    weights = [float(1 + row % 3) * (row % 5 > 0) for row in range(len(field))] if weighted else None
    given = None if weights is None else np.array(weights)
    assert few_rows_decide(as_numbers(field), given) == naive.few_rows_decide(field, weights)


@given(st.lists(NUMBERS, max_size=60), st.sampled_from([None, 0.0, 1e6, -1e30]), st.integers(0, 3))
def test_a_range_is_stretched_as_in_the_twin(
    field: list[float | None], extreme: float | None, times: int
) -> None:
    field = [number and number % 7 for number in field] + [extreme] * times
    assert range_is_stretched(as_numbers(field)) == naive.range_is_stretched(field)


def test_criteria_of_single_fields() -> None:
    """A frequent value is no stretched range: there is no difference that the bins could show."""
    spread = np.arange(1000.0)
    assert not few_rows_decide(spread)
    assert not range_is_stretched(spread)
    assert few_rows_decide(np.append(spread, 1e6))
    assert range_is_stretched(np.append(spread, 1e6))
    for few in (2, 3, 4):  # none of them alone has half
        assert few_rows_decide(np.append(spread, [1e6, -1e6, 1e6, -1e6][:few]))
    assert not few_rows_decide(np.append(spread, [1e6, -1e6] * 5))
    assert not few_rows_decide(np.append(spread[:150], [1e6, 1e6]))  # 1 % is a single row
    assert few_rows_decide(np.append(spread[:150], 1e6))
    assert range_is_stretched(np.append(spread, [1e6, -1e6]))
    rare = np.zeros(1000)
    rare[:40] = 100.0
    rare[:30] = np.arange(30)
    assert not range_is_stretched(rare)
    for empty in (np.array([]), np.full(9, np.nan), np.full(9, 2.0)):
        assert not few_rows_decide(empty)
        assert not range_is_stretched(empty)


SQUARES = (
    "delta_rho", "il2", "il3", "regression", "r_squared", "weighted_correlations", "weighted_regression",
)  # fmt: skip
RANGE = ("total_correlation", "clustering_error", "pscr", "dcr")


def test_figures_that_an_extreme_value_decides_have_a_caution() -> None:
    table = related(True)
    found = assessed(table, dealt(table)).measures
    for key in SQUARES:
        assert "more than half of the squared deviations from the mean of 'y'." in found[key]["caution"], key
    for key in RANGE:
        assert "the range of 'y': more than 95 % of the values" in found[key]["caution"], key
    assert found["delta_rho"]["caution"].endswith(
        "Read `ranks`, or bound the extreme values and measure again."
    )
    assert "Read `delta_rho.ranks`, or bound" in found["il2"]["caution"]
    cautioned = {key for key, report in found.items() if "caution" in report}
    assert cautioned == {*SQUARES, *RANGE}
    plain = related(False)
    assert not any("caution" in each for each in assessed(plain, dealt(plain)).measures.values())


def test_a_caution_needs_the_extreme_value_in_a_table_that_decides() -> None:
    """Clusters are scaled by the source; a caution of the target alone ignores other fields."""
    plain, extreme = related(False), related(True)
    found = assessed(plain, extreme, only=["delta_rho", "total_correlation", "clustering_error"]).measures
    assert {key for key, each in found.items() if "caution" in each} == {"delta_rho", "total_correlation"}
    other = assessed(extreme, dealt(extreme), target="x", only=["r_squared"]).measures["r_squared"]
    assert "of 'y'." in other["caution"]
    assert MEASURES["prediction"].extremes is not None
    assert MEASURES["prediction"].extremes.target_alone


def test_a_weight_of_0_takes_the_extreme_value_out_of_the_weighted_measures() -> None:
    table = related(True)
    weights = table.column("weight").to_numpy().copy()
    weights[0] = 0.0
    table = table.set_column(3, "weight", pa.array(weights))
    found = assessed(table, table, only=list(SQUARES)).measures
    assert "caution" in found["delta_rho"]
    assert "caution" not in found["weighted_correlations"]
    assert "caution" not in found["weighted_regression"]


def test_a_category_has_a_caution_for_numbers_alone() -> None:
    table = related(True).append_column("c", pa.array([f"v{row % 3}" for row in range(ROWS)]))
    found = assessed(table, dealt(table), only=["association", "r_squared", "total_correlation"]).measures
    assert all("'y'" in each["caution"] for each in found.values())
    assert not any("'c'" in each["caution"] for each in found.values())
    of_category = assessed(table, dealt(table), only=["association"], categorical_fields=["y"]).measures
    assert "caution" not in of_category.get("association", {})


def test_a_caution_shows_neither_the_value_nor_its_share_nor_all_names() -> None:
    """The value would follow from the share of the squares, mean and deviation; two sizes have one text."""
    texts = []
    for size in (1e4, 1e6):
        table = related(False)
        many = {f"f{at}": table.column("y").to_numpy() * (1 + at) for at in range(8)}
        for numbers in many.values():
            numbers[17] = size
        source = pa.table(many)
        texts.append(assessed(source, source, target="f0", only=["delta_rho", "total_correlation"]).measures)
    for key in ("delta_rho", "total_correlation"):
        assert texts[0][key]["caution"] == texts[1][key]["caution"]
        assert "'f4', 3 more" in texts[0][key]["caution"]
        digits = set("".join(char for char in texts[0][key]["caution"] if char.isdigit()))
        assert digits <= set("0123495")  # names of fields, the number of others, and the criterion


def test_the_page_shows_the_caution() -> None:
    table = related(True)
    report = assessed(table, dealt(table), only=["il2"]).measures["il2"]
    shown = measure("il2", report, table.column_names, Discretion(ROWS))
    assert shown.caution == report["caution"].replace("`", "")
    assert measure("il2", report | {"caution": None}, [], Discretion(ROWS)).caution == ""
