"""MEDS is its twin, exactly, and keeps what it promises, over random tables of numbers."""

import contextlib
from collections import Counter
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from providers.binning.first_cut import PartRule, check_parts
from providers.binning.privacy import p_of_depths
from providers.errors import ParameterError, SourceError
from providers.results import SwapResult
from providers.services.meds import MedsParams, depth, method_used
from tests.naive.agreement import assert_agree, swap
from tests.naive.bins import BinsOutcome, assert_figures
from tests.property.bin_tables import bin_parameters, number_tables, selected_by_risk

SEEDS = st.binary(min_size=32, max_size=32)


def assert_meds_agrees(table: pa.Table, parameters: dict[str, Any], seed: bytes) -> SwapResult | None:
    fast, naive = assert_agree("MEDS", table, parameters, seed)
    assert isinstance(naive, BinsOutcome)
    if fast is not None:
        assert_figures(fast.provider, naive.figures)
        for field, figures in naive.of_others.items():
            assert fast.provider["others"][field].keys() == figures.keys()
            assert_figures(fast.provider["others"][field], figures)
    return fast


@given(st.data(), SEEDS)
def test_meds(data: st.DataObject, seed: bytes) -> None:
    """MEDS is its twin in every value and figure, or says that distances leave float64."""
    table, swap_fields, unusable = data.draw(number_tables())
    parameters = data.draw(bin_parameters(table, swap_fields, unusable))
    parameters |= data.draw(st.sampled_from([{"k": 2}, {"k": 3}, {"k": 7}, {"degree": 1}, {"degree": 4}]))
    parameters["standardise"] = data.draw(st.booleans())
    parameters["method"] = data.draw(st.sampled_from(["auto", "exact", "mdav", "partitioned", "partitioned"]))
    if parameters["method"] == "partitioned":
        parameters |= {"parts": data.draw(st.integers(2, 6)), "k": data.draw(st.sampled_from([2, 3]))}
        parameters.pop("degree", None)
    measurable = parameters["standardise"] and "parts" not in parameters  # which may be too many
    with contextlib.suppress(SourceError):
        swap("MEDS", table, {**parameters, "suppression": {"policy": "keep"}})
        measurable = True
    assume(measurable)
    assert_meds_agrees(table, parameters, seed)


@given(st.data(), SEEDS)
def test_selection_by_risk(data: st.DataObject, seed: bytes) -> None:
    """Rows selected by risk within the bins, and the report by decile, are those of the twin."""
    table, swap_fields, unusable = data.draw(number_tables())
    parameters = data.draw(bin_parameters(table, swap_fields, unusable))
    parameters["k"] = data.draw(st.sampled_from([2, 3, 7]))
    table, by_risk = data.draw(selected_by_risk(table))
    assert_meds_agrees(table, parameters | by_risk, seed)


@given(st.data(), st.integers(2, 9))
def test_every_bin_holds_k_rows(data: st.DataObject, k: int) -> None:
    """But for the remainder; swap fields stay together, others stay where they are, nobody sits out."""
    values = st.floats(-1e3, 1e3, allow_nan=False)
    rows = data.draw(st.integers(2, 60))
    x, y = (data.draw(st.lists(values, min_size=rows, max_size=rows)) for _ in "xy")
    table = pa.table({"x": x, "y": y, "row": range(rows)})
    result = swap("MEDS", table, {"swap_fields": ["x", "y"], "k": k})
    after = result.table.to_pydict()
    assert Counter(zip(after["x"], after["y"], strict=True)) == Counter(zip(x, y, strict=True))
    assert after["row"] == list(range(rows))
    assert result.summary.took_part == rows
    left = rows % (2 * k)
    sizes = result.summary.group_size
    assert result.summary.groups == result.provider["partition_degree"] == rows // (2 * k) * 2 + (left > 1)
    if rows >= 2 * k:
        assert sizes.smallest == result.provider["minimal_depth"] == min(k, left if left > 1 else k)
        assert sizes.largest == max(k + (left == 1), left)
    else:
        assert sizes.largest == rows


@pytest.mark.parametrize("method", ["exact", "mdav"])
def test_threads_chunks_and_encodings_change_no_byte(method: str) -> None:
    """Enough rows that kernels cut the work between threads; pieces, slices and dictionaries of numbers."""
    random = np.random.default_rng(5)
    rows = 70_001
    whole = pa.table({"x": random.integers(-99, 99, rows), "y": random.normal(size=rows), "z": range(rows)})
    parameters = {"swap_fields": ["x", "y"], "k": 50, "others": "univariate", "method": method}
    before = numba.get_num_threads()
    results = []
    for threads in {1, before}:
        numba.set_num_threads(threads)
        results.append(swap("MEDS", whole, parameters).table.to_pydict())
    numba.set_num_threads(before)
    padded = pa.concat_tables([whole.slice(7, 13), whole, whole.slice(0, 5)]).slice(13, rows)
    pieces = pa.concat_tables([padded.slice(0, 1000), padded.slice(1000, 0), padded.slice(1000)])
    encoded = whole.set_column(0, "x", whole["x"].dictionary_encode())
    results += [swap("MEDS", table, parameters).table.to_pydict() for table in (padded, pieces, encoded)]
    assert all(result == results[0] for result in results[1:])
    assert results[0] != whole.to_pydict()


def table_of(values: Any) -> pa.Table:
    return pa.table({"x": values, "y": np.arange(len(values))})


def test_k_and_degree() -> None:
    """`degree` is rows by k, rounded down, and at least 2."""
    for given_, k in (({"k": 5}, 5), ({"degree": 3}, 33), ({"degree": 70}, 2), ({"degree": 1000}, 2)):
        params = MedsParams.model_validate({"swap_fields": ["x"], **given_})
        assert depth(params, 100) == k


def test_auto_is_exact_where_that_is_quick() -> None:
    """Up to six fields, or while the square of the rows times the fields is small."""
    params = MedsParams.model_validate({"swap_fields": ["x"], "k": 2})
    assert method_used(params, 10**8, 6) == "exact"
    assert method_used(params, 100_000, 10) == "exact"
    assert method_used(params, 100_001, 10) == "mdav"
    assert method_used(params.model_copy(update={"method": "exact"}), 10**6, 50) == "exact"


def test_scale_matters_unless_standardised() -> None:
    """Raw, the field with the large numbers decides alone; standardised, units do not matter."""
    random = np.random.default_rng(5)
    x, y = random.normal(size=(2, 60))
    table = pa.table({"x": x, "y": 1000 * y, "row": range(60)})
    scaled = pa.table({"x": 1024 * x, "y": 1000 * y, "row": range(60)})
    parameters = {"swap_fields": ["x", "y"], "k": 6}
    one, other = (swap("MEDS", each, parameters).table["y"] for each in (table, scaled))
    assert one.equals(other)
    raw = {**parameters, "standardise": False}
    one, other = (swap("MEDS", each, raw).table["y"] for each in (table, scaled))
    assert not one.equals(other)


def test_one_bin_is_said() -> None:
    """An event reports that all rows form one bin."""
    result = swap("MEDS", table_of(np.arange(7.0)), {"swap_fields": ["x"], "k": 4})
    assert result.events.counts == {"one_bin": 1}
    assert "fewer than two bins of 4" in result.events.listed[0].message


def test_a_single_row_and_none() -> None:
    """A table of one row has a bin of one, which is suppressed; an empty one has no bin."""
    result = swap("MEDS", table_of([1.0]), {"swap_fields": ["x"], "k": 2})
    assert result.provider["singletons"] == result.summary.suppressed == 1
    assert result.table["x"].to_pylist() == [None]
    empty = swap("MEDS", table_of([]).cast(pa.schema({"x": pa.float64(), "y": pa.int64()})),
                 {"swap_fields": ["x"], "k": 2})  # fmt: skip
    assert (empty.table.num_rows, empty.provider["partition_degree"]) == (0, 0)


@pytest.mark.parametrize(("k", "chance"), [(7, 1 / 6), (2, 1.0)])
def test_privacy(k: int, chance: float) -> None:
    """P by eq. 2 as printed and by eq. 1; an intruder who knows k = 2 is certain, whatever they are."""
    result = swap("MEDS", table_of(np.arange(101.0)), {"swap_fields": ["x"], "k": k})
    found = result.measures["p_privacy"]
    q = 49  # depths 2 to 50
    assert found["p"] == pytest.approx((sum(1 / i for i in range(1, 25)) + q / (2 * (q + 2))) / q)
    assert found["p_eq1"] == p_of_depths(range(2, 51))
    smallest = result.provider["minimal_depth"]
    assert (found["minimal_depth"], found["chance"]) == (smallest, 1 / (smallest - 1))
    assert found["chance"] >= chance


def test_privacy_of_bins_of_two() -> None:
    """1 / (k - 1) at k = 2 is 1, next to a P that is small."""
    result = swap("MEDS", table_of(np.arange(100.0)), {"swap_fields": ["x"], "k": 2})
    found = result.measures["p_privacy"]
    assert found["p"] < found["p_eq1"] < 0.1
    assert found["chance"] == 1.0


@pytest.mark.parametrize("values", [[0.0, 1e200, 3e200, 4e200], [0.0, 1e-200, 2e-200, 4e-200]])
def test_distances_beyond_float64(values: list[float]) -> None:
    """Standardised they are fine; raw they are an error that says what to do, and names no value."""
    swap("MEDS", table_of(values), {"swap_fields": ["x"], "k": 2})
    with pytest.raises(SourceError, match="set 'standardise' to true") as error:
        swap("MEDS", table_of(values), {"swap_fields": ["x"], "k": 2, "standardise": False})
    assert "200" not in error.value.message


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("values", [[0, 2, 2, 2], [0, 0, 2, 4, 4, 4], [2, 4, 4, 6, 6, 6, 6]])
def test_variance_of_large_numbers_whose_mean_is_rounded(values: list[int], standardise: bool) -> None:
    table = table_of([2.0**53 + value for value in values])
    parameters = {"swap_fields": ["x"], "k": 2, "standardise": standardise}
    found = assert_meds_agrees(table, parameters, bytes(32))
    assert found is not None
    assert found.provider["within_bin_variance"] > 0


def test_progress_is_reported() -> None:
    """Fractions of the whole grow to the end, and stages have names."""
    from providers import PROVIDERS
    from providers.randomness.chacha20 import Stream

    table = table_of(np.random.default_rng(1).normal(size=50_000))
    provider = PROVIDERS["MEDS"]
    params = provider.check(MedsParams.model_validate({"swap_fields": ["x"], "k": 20}), table.schema)
    reported: list[tuple[float, str]] = []
    provider.swap(table, params, Stream(bytes(32), "MEDS", 1), lambda *each: reported.append(each))
    fractions = [fraction for fraction, _ in reported]
    assert fractions == sorted(fractions)
    assert {"measuring fields", "making bins", "exchanging x"} <= {stage for _, stage in reported}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"swap_fields": ["x"]}, "give one of 'k' and 'degree'.* given: none"),
        ({"swap_fields": ["x"], "k": 3, "degree": 5}, "given: k, degree"),
        ({"swap_fields": ["x"], "k": 1}, "greater than or equal to 2"),
        ({"swap_fields": ["x"], "k": 3, "standardize": True}, "did you mean 'standardise'"),
    ],
)
def test_parameters_are_explained(parameters: dict[str, Any], message: str) -> None:
    """The error names the fault and the remedy."""
    with pytest.raises(ValueError, match=message):
        MedsParams.model_validate(parameters)


def test_fields_are_checked() -> None:
    """A field that is no number, and every field at once, are refused with their place."""
    table = pa.table({"x": [1.0, 2.0], "name": ["a", "b"]})
    with pytest.raises(ParameterError, match="MEDS computes with numbers") as error:
        swap("MEDS", table, {"swap_fields": ["name"], "k": 2})
    assert error.value.pointer == "/parameters/swap_fields/0"
    with pytest.raises(ParameterError, match="leave at least one field out"):
        swap("MEDS", table.select(["x"]), {"swap_fields": ["x"], "k": 2})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "partitioned"}, "method 'partitioned' needs 'parts'"),
        ({"method": "partitioned", "parts": 1}, "greater than or equal to 2"),
        ({"method": "exact", "parts": 2}, "'parts' goes with method 'partitioned', not 'exact'"),
    ],
)
def test_parts_are_explained(parameters: dict[str, Any], message: str) -> None:
    """Parts go with one method, and the method with parts."""
    with pytest.raises(ValueError, match=message):
        MedsParams.model_validate({"swap_fields": ["x"], "k": 3, **parameters})


@given(st.integers(1, 20), st.integers(2, 12))
def test_parts_that_no_number_of_rows_fills_are_refused_at_once(degree: int, parts: int) -> None:
    """Twice as many wanted bins as parts are never refused, which is what the message advises."""
    fits = []
    for rows in range(4 * parts, 12 * max(degree, parts)):
        rule = PartRule(max(2, rows // degree), parts, "exact")
        try:
            check_parts(rows, rule, ["x"])
        except SourceError:
            continue
        fits.append(rows)
    parameters = {"swap_fields": ["x"], "degree": degree, "method": "partitioned", "parts": parts}
    if fits:
        MedsParams.model_validate(parameters)
        return
    assert parts > degree // 2
    with pytest.raises(ValueError, match=f"give a 'degree' of {2 * parts} or more"):
        MedsParams.model_validate(parameters)
    MedsParams.model_validate(parameters | {"degree": 2 * parts})


@pytest.mark.parametrize(
    ("rows", "advice"), [(59, "use at most 5 parts"), (19, "use another method, which does not cut")]
)
def test_parts_smaller_than_two_bins_are_refused(rows: int, advice: str) -> None:
    """The error points to `parts`, and the number that it advises runs."""
    parameters: dict[str, Any] = {"swap_fields": ["x"], "k": 5, "method": "partitioned", "parts": 6}
    with pytest.raises(SourceError, match=advice) as error:
        swap("MEDS", table_of(np.arange(float(rows))), parameters)
    assert error.value.pointer == "/parameters/parts"
    sparse = table_of(np.arange(100.0)).append_column("z", pa.array([1.0] * rows + [None] * (100 - rows)))
    with pytest.raises(SourceError, match=f"6 parts of the {rows} rows that have numbers in 'z' hold fewer"):
        swap("MEDS", sparse, parameters | {"others": "univariate", "nulls": "keep"})
    result = swap("MEDS", table_of(np.arange(59.0)), parameters | {"parts": 5})
    assert result.provider["parts"] == 5


@given(st.integers(2, 60), st.sampled_from([2, 3, 5]), st.data())
def test_every_bin_of_parts_holds_k_rows(pairs: int, k: int, data: st.DataObject) -> None:
    """Bins have the sizes that they have without parts: only the last part has a remainder."""
    rows = pairs * 2 * k + data.draw(st.integers(0, 2 * k - 1))
    table = table_of(np.random.default_rng(rows).normal(size=rows))
    parameters: dict[str, Any] = {"swap_fields": ["x"], "k": k}
    whole = swap("MEDS", table, parameters)
    parameters |= {"method": "partitioned", "parts": data.draw(st.integers(2, pairs))}
    found = swap("MEDS", table, parameters)
    assert found.summary.group_size == whole.summary.group_size
    assert found.summary.groups == whole.summary.groups


def test_parts_are_neighbours() -> None:
    """Two clusters are cut apart, and no bin has rows of both; the report says what was done."""
    random = np.random.default_rng(3)
    x = np.concatenate([random.normal(size=40), random.normal(100.0, 1.0, 40)])[random.permutation(80)]
    table = pa.table({"x": x, "y": random.normal(size=80), "row": range(80)})
    parameters = {"swap_fields": ["x", "y"], "k": 5, "standardise": False}
    whole = swap("MEDS", table, parameters)
    result = swap("MEDS", table, parameters | {"method": "partitioned", "parts": 2})
    assert ((result.table["x"].to_numpy() > 50) == (x > 50)).all()
    assert (result.provider["method"], result.provider["method_in_parts"]) == ("partitioned", "exact")
    assert 0 < whole.provider["within_bin_variance"] < 1
    assert result.provider["within_bin_variance"] == pytest.approx(
        whole.provider["within_bin_variance"], rel=0.5
    )


def test_older_versions_can_run_jobs_without_parts() -> None:
    """The stored parameters do not name a parameter that they do not have."""
    params = MedsParams.model_validate({"swap_fields": ["x"], "k": 3})
    assert "parts" not in params.model_dump()
    given_ = MedsParams.model_validate({"swap_fields": ["x"], "k": 3, "method": "partitioned", "parts": 4})
    assert MedsParams.model_validate(given_.model_dump()) == given_
