"""Tables with few or no rows, equal rows, nulls, NaN, -0.0 and huge integers, as the pages state."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import SourceError
from providers.results import SwapResult
from tests.naive.agreement import swap

NAN = math.nan
HUGE = 2**63 - 1
FLOAT = pa.float64()

CALLS: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["x"]},
    "CDSWAP": {"swap_fields": ["x"], "control_field": "c"},
    "DDSWAP": {"swap_fields": ["x"], "control_field": "c", "block_size": 4},
    "MEWS": {"swap_fields": ["x"], "bins": 2},
    "MEDS": {"swap_fields": ["x"], "k": 2},
    "RWN": {"k": 2},
    "PABIDOT": {"fields": ["x", "y"]},
    "LOCALITY": {"fields": ["x"]},
    "RSWAP": {"hierarchy": ["c"], "swap_rate": 1},
}
EXCHANGES = ["DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS"]


def table(x: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    """Return a table with the values, numbers that differ, and one class."""
    rows = len(x)
    y = pa.array([float(row * row) for row in range(rows)], FLOAT)
    return pa.table(
        {"x": pa.array(x, kind or pa.int64()), "y": y, "c": pa.array(["one"] * rows, pa.string())}
    )


def of_control(service: str, values: list[Any], kind: pa.DataType, **parameters: Any) -> list[Any]:
    """Return the swapped numbers of the rows, by the values of a control field."""
    source = pa.table({"c": pa.array(values, kind), "v": list(range(len(values)))})
    given = {"swap_fields": ["v"], "control_field": "c", **parameters}
    return list(swap(service, source, given).table["v"].to_pylist())


@pytest.mark.parametrize("service", PROVIDERS)
def test_every_page_states_what_is_decided(service: str) -> None:
    """The page of each service says how it treats each of these tables and values."""
    text = " ".join(PROVIDERS[service].special_values).lower()
    for words in ("without rows", "nan", "-0.0", "integers"):
        assert words in text
    assert "null" in text or service == "RWN"  # whose first paragraphs describe it


@pytest.mark.parametrize("service", sorted(set(CALLS) - {"PABIDOT"}))
def test_a_table_without_rows_is_a_valid_result(service: str) -> None:
    """Nothing happens; PABIDOT, which has nothing to fit, refuses it like a table of one row."""
    result = swap(service, table([]), CALLS[service])
    assert result.table.num_rows == 0
    assert not result.events.counts


@pytest.mark.parametrize("rows", [0, 1])
def test_pabidot_needs_two_rows(rows: int) -> None:
    with pytest.raises(SourceError, match="needs two rows or more"):
        swap("PABIDOT", table([5] * rows), CALLS["PABIDOT"])


@pytest.mark.parametrize("service", EXCHANGES)
def test_suppression_decides_about_a_single_row(service: str) -> None:
    for policy, values in (("suppress", [None]), ("keep", [5]), ("drop", [])):
        parameters = {**CALLS[service], "suppression": {"policy": policy}}
        assert swap(service, table([5]), parameters).table["x"].to_pylist() == values
    if service == "MEWS":
        assert swap(service, table([5]), {**CALLS[service], "singletons": "keep"}).table["x"][0].as_py() == 5


def test_a_single_row_of_the_other_services() -> None:
    with pytest.raises(SourceError, match="has no neighbour"):
        swap("RWN", table([5]), CALLS["RWN"])
    assert swap("LOCALITY", table([5]), CALLS["LOCALITY"]).table["x"].to_pylist() == [5.0]
    assert swap("RSWAP", table([5]), CALLS["RSWAP"]).table.equals(table([5]))


@pytest.mark.parametrize("service", [*EXCHANGES, "RWN"])
def test_equal_values_take_part_and_nothing_changes(service: str) -> None:
    source = table([7] * 8).select(["x", "c"])
    result = swap(service, source, CALLS[service])
    assert result.table.equals(source)
    assert result.summary.took_part == 8
    assert result.events.counts["nothing_changed"] >= 1


@pytest.mark.parametrize("service", EXCHANGES)
def test_values_move_bit_by_bit(service: str) -> None:
    """Integers of any size keep every digit; the signs of zeros move and count as a change."""
    huge = [HUGE - row for row in range(8)]
    assert sorted(swap(service, table(huge), CALLS[service]).table["x"].to_pylist()) == sorted(huge)
    zeros = [0.0, *[-0.0] * 7]
    result = swap(service, table(zeros, FLOAT), CALLS[service])
    before, after = (np.signbit(found["x"].to_numpy()) for found in (table(zeros, FLOAT), result.table))
    assert before.sum() == after.sum()
    assert result.summary.changed["x"] == (before != after).sum() > 0


@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP"])
def test_nan_is_no_null(service: str) -> None:
    """With nulls `keep` the null stays, and NaN and infinity take part."""
    source = table([NAN, None, math.inf, 1.0], FLOAT)
    result = swap(service, source, {**CALLS[service], "nulls": "keep"})
    found = result.table["x"].to_pylist()
    assert found[1] is None
    assert result.summary.took_part == 3
    assert not math.isnan(found[0])


@pytest.mark.parametrize(
    "classifier",
    [
        "identity",
        {"breaks": [1]},
        {"groups": {"zero": [0]}, "other": "identity"},
        {"groups": {"zero": [0]}, "other": "one_class"},
        {"groups": {"zero": [0]}, "other": "fail"},
        {"quantiles": 2},
    ],
)
def test_nulls_and_nan_are_classes_of_their_own(classifier: Any) -> None:
    """With every classifier the two zeros are exchanged with each other, then NaN, then nulls."""
    values = [0.0, -0.0, NAN, NAN, None, None]
    assert of_control("CDSWAP", values, FLOAT, classifier=classifier) == [1, 0, 3, 2, 5, 4]


def test_classes_of_prefixes_and_of_huge_integers() -> None:
    texts = ["", "", None, None]
    assert of_control("CDSWAP", texts, pa.string(), classifier={"prefix": 2}) == [1, 0, 3, 2]
    huge = [HUGE, HUGE - 1, HUGE, HUGE - 1]
    assert of_control("CDSWAP", huge, pa.int64()) == [2, 3, 0, 1]


def test_order_of_the_control_field() -> None:
    """Blocks of two: -inf and 0.0, -0.0 and inf, both NaN, both nulls; huge integers and texts exactly."""
    values = [NAN, 0.0, None, -0.0, -math.inf, math.inf, NAN, None]
    assert of_control("DDSWAP", values, FLOAT, block_size=2) == [6, 4, 7, 5, 1, 3, 0, 2]
    huge = [HUGE, HUGE - 3, HUGE - 1, HUGE - 2]
    assert of_control("DDSWAP", huge, pa.int64(), block_size=2) == [2, 3, 0, 1]
    texts = ["b", "B", "é", "a", "", "😀"]
    assert of_control("DDSWAP", texts, pa.string(), block_size=2) == [3, 4, 5, 0, 1, 2]
    assert sorted(of_control("DDSWAP", [1, 2, 3], pa.int64(), block_size=9)) == [0, 1, 2]


def binned(service: str, x: list[Any], kind: pa.DataType | None = None, **change: Any) -> SwapResult:
    return swap(service, table(x, kind), CALLS[service] | change)


def test_bins_of_zeros_constants_and_huge_integers() -> None:
    assert binned("MEWS", [0.0, -0.0, 1.0, 1.0], FLOAT).summary.groups == 2
    assert binned("MEWS", [7] * 6).summary.groups == 1
    assert binned("MEDS", [7] * 6).summary.groups == 3
    one_bin = binned("MEDS", [1, 2, 3])
    assert one_bin.summary.groups == one_bin.events.counts["one_bin"] == 1
    one_float = [HUGE - 500 + row for row in range(6)]  # rows 0 and 1 take the next ones: 2, then 3
    found = binned("MEDS", one_float).table["x"].to_pylist()
    assert [one_float.index(value) for value in found] == [2, 3, 0, 1, 5, 4]
    with pytest.raises(SourceError, match="float64 can hold"):
        binned("MEWS", [1e308, -1e308, 0.0, 0.0], FLOAT)


@pytest.mark.parametrize("service", ["MEWS", "MEDS"])
@pytest.mark.parametrize("value", [None, NAN, math.inf])
def test_nulls_decides_about_numbers_without_a_bin(service: str, value: float | None) -> None:
    x = [value, 1.0, 1.0, 2.0, 2.0]
    with pytest.raises(SourceError, match="null, NaN or infinite"):
        binned(service, x, FLOAT)
    kept = binned(service, x, FLOAT, nulls="keep")
    assert kept.table["x"][0].equals(table(x, FLOAT)["x"][0]) or math.isnan(kept.table["x"][0].as_py())
    assert kept.summary.took_part == 4


def neighbours(x: list[Any], kind: pa.DataType | None = None, **parameters: Any) -> SwapResult:
    return swap("RWN", pa.table({"x": pa.array(x, kind or pa.int64())}), parameters)


def test_neighbours_of_special_values() -> None:
    """NaN is near to null alone, -0.0 to 0.0; huge integers have exact distances."""
    missing = neighbours([NAN, None, 1.0, 2.0, 3.0], FLOAT, k=1).table["x"].to_pylist()
    assert missing[0] is None
    assert math.isnan(missing[1])
    assert neighbours([0.0, -0.0, 5.0], FLOAT, k=1).table["x"].to_pylist()[:2] == [0.0, 0.0]
    huge = [HUGE, HUGE - 1, HUGE - 3, HUGE - 4]
    assert neighbours(huge, k=1).table["x"].to_pylist() == [HUGE - 1, HUGE, HUGE - 4, HUGE - 3]
    for ties, size in (("include", 5), ("index", 2)):
        assert neighbours([7] * 6, k=2, ties=ties).provider["neighbourhood_size"]["largest"] == size
    with pytest.raises(SourceError, match="infinite values"):
        neighbours([math.inf, 1.0, 2.0], FLOAT)
    source = pa.table({"x": pa.array([math.inf, 1.0, 2.0], FLOAT), "y": [1, 2, 3], "constant": [1, 1, 1]})
    moved = swap("RWN", source, {"distance_fields": ["y"], "k": 1}).table["x"].to_pylist()
    assert math.inf in moved
    without = swap("RWN", source, {"distance_fields": ["y", "constant"], "k": 1}).table
    assert without["x"].to_pylist() == moved


def test_rotation_of_constants_and_huge_integers() -> None:
    """A constant field keeps its values as float64; so do integers that are one float64."""
    numbers = {"y": [1, 2, 3, 4, 5, 6], "z": [1, 3, 2, 5, 4, 6]}
    for values in ([7] * 6, [HUGE - row for row in range(6)], [0.0, -0.0] * 3):
        result = swap("PABIDOT", pa.table({"x": values, **numbers}), {"shuffle": False})
        assert result.table["x"].to_pylist() == [float(value) for value in values]
        assert result.table.schema.field("x").type == FLOAT
        assert result.events.counts["constant"] == 1
    for wrong, message in (([NAN], "1 NaN"), ([None], "1 null"), ([math.inf], "1 infinite")):
        given = pa.table({"x": pa.array([1.0, 4.0, 2.0, 9.0, 5.0, *wrong], FLOAT), **numbers})
        with pytest.raises(SourceError, match=message):
            swap("PABIDOT", given, {})
    with pytest.raises(SourceError, match="two fields or more that are not constant"):
        swap("PABIDOT", table([7] * 6), CALLS["PABIDOT"])
    with pytest.raises(SourceError, match="does not fit float64"):
        swap("PABIDOT", pa.table({"x": [1e308, -1e308] * 3, **numbers}), {})


def redrawn(x: list[Any], kind: pa.DataType | None = None, **change: Any) -> SwapResult:
    return swap("LOCALITY", table(x, kind), CALLS["LOCALITY"] | change)


def test_segments_of_few_values() -> None:
    """Two values keep their order; one value moves within a given domain alone."""
    two = redrawn([1, 2, 2, 1])
    low, high = two.table["x"][0].as_py(), two.table["x"][1].as_py()
    assert two.table["x"].to_pylist() == [low, high, high, low]
    assert low < high
    assert two.events.counts["no_localities"] == 1
    for bounds in ("segment", "keep"):
        assert redrawn([7] * 6, bounds=bounds).table["x"].to_pylist() == [7.0] * 6
    moved = redrawn([7] * 6, bounds="column", domain={"x": [0, 10]})
    assert len(set(moved.table["x"].to_pylist())) == 1
    assert moved.summary.changed == {"x": 6}


def test_segments_of_special_values() -> None:
    passed = redrawn([1, None, 3, None, 8]).table["x"].to_pylist()
    assert [value is None for value in passed] == [False, True, False, True, False]
    for wrong in (NAN, math.inf):
        with pytest.raises(SourceError, match="not finite"):
            redrawn([1.0, wrong, 2.0], FLOAT)
    zeros = redrawn([0.0, -0.0, 1.0, 3.0], FLOAT).table["x"].to_pylist()
    assert zeros[0] == zeros[1] < zeros[2]
    huge = [HUGE - row * row for row in range(6)]
    assert set(redrawn(huge).table["x"].to_pylist()) == {2.0**63}
    whole = redrawn(huge, decimals=0).table["x"]
    assert whole.type == pa.int64()
    assert len(set(whole.to_pylist())) == 6


def test_areas_of_special_values() -> None:
    """Four areas: NaN, nulls, and a zero of each sign; households by integers of any size."""
    areas = table([NAN, NAN, 0.0, -0.0, None, None], FLOAT)
    result = swap("RSWAP", areas, {"hierarchy": ["x"], "swap_rate": 0})
    assert result.summary.groups == 4
    alone = swap("RSWAP", table([1, 2, 3]), {"hierarchy": ["c"], "risk_fields": ["x"], "swap_rate": 1})
    assert alone.table.equals(table([1, 2, 3]))
    assert set(alone.events.counts) == {"kept", "quota_not_met"}
    risks = areas.set_column(2, "c", pa.array(["a", "a", "a", "a", "b", "b"]))
    risky = swap("RSWAP", risks, {"hierarchy": ["c"], "risk_fields": ["x"], "k_anonymity": 2, "swap_rate": 0})
    assert risky.table["c"].to_pylist() == ["a", "a", "b", "b", "a", "a"]  # each zero is alone
    source = pa.table({"id": [HUGE, HUGE - 1, HUGE, HUGE - 1], "area": ["a", "b", "a", "b"]})
    moved = swap("RSWAP", source, {"household": "id", "hierarchy": ["area"], "swap_rate": 1})
    assert moved.provider["households"] == 2
    assert moved.table["area"].to_pylist() == ["b", "a", "b", "a"]
