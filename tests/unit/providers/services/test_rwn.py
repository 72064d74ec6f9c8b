"""RWN: what is refused with which words, what the report says, and the space that distances are in."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from providers.errors import ParameterError, SourceError
from providers.neighbours.points import UNKNOWN, check_kinds, encode, level_positions
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.services.rwn import PROVIDER, RwnParams
from providers.tables.digest import DigestForm, table_digest
from tests.naive.agreement import swap

TABLE = pa.table(
    {
        "age": [20, 30, 40, 60],
        "size": ["small", "large", None, "medium"],
        "tags": pa.array([["a"], [], None, ["b"]], pa.list_(pa.string())),
    }
)
DISTANCES: dict[str, Any] = {"distance_fields": ["age", "size"]}


@pytest.mark.parametrize(
    ("parameters", "pointer", "words"),
    [
        ({}, "/parameters/distance_fields/2", "distance field 'tags' has type list"),
        ({"distance_fields": ["agee"]}, "/parameters/distance_fields/0", "did you mean 'age'"),
        ({"distance_fields": ["age", "age"]}, "/parameters/distance_fields/1", "named twice"),
        (
            {**DISTANCES, "perturb_fields": ["size", "Age"]},
            "/parameters/perturb_fields/1",
            "did you mean 'age'",
        ),
        (
            {"distance_fields": ["age"], "categorical_fields": ["size"]},
            "/parameters/categorical_fields/0",
            "not among the distance fields",
        ),
        (
            {"distance_fields": ["age"], "ordinal_fields": {"aeg": [1]}},
            "/parameters/ordinal_fields",
            "did you mean 'age'",
        ),
        (
            {**DISTANCES, "categorical_fields": ["size"], "ordinal_fields": {"size": ["small"]}},
            "/parameters/ordinal_fields",
            "both categorical and ordinal",
        ),
        (
            {**DISTANCES, "ordinal_fields": {"age": [20, "thirty"]}},
            "/parameters/ordinal_fields/age/1",
            "must be an integer",
        ),
        (
            {**DISTANCES, "ordinal_fields": {"size": ["small", "small"]}},
            "/parameters/ordinal_fields/size",
            "named twice",
        ),
    ],
)
def test_parameters_that_do_not_fit(parameters: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words) as raised:
        PROVIDER.check(RwnParams.model_validate(parameters), TABLE.schema)
    assert raised.value.pointer == pointer


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"k": 0}, "greater than or equal to 1"),
        ({"epsilon": -0.1}, "greater than or equal to 0"),
        ({"epsilon": math.inf}, "a finite number"),
        ({"q": 0}, "greater than 0"),
        ({"q": 1.5}, "less than or equal to 1"),
        ({"neighbours": "sample"}, "needs 'sample_size' of 2 or more"),
        ({"neighbours": "own_sample"}, "'own_sample' needs 'sample_size' of 2 or more"),
        ({"neighbours": "partition"}, "needs 'parts' of 1 or more"),
        ({"parts": 3}, "goes with neighbours 'partition', not 'exact'"),
        (
            {"neighbours": "partition", "parts": 2, "sample_size": 5},
            "'sample_size' goes with within 'sample', 'own_sample' or 'pairs', not 'exact'",
        ),
        ({"sample_size": 5}, "'sample_size' goes with neighbours 'sample', 'own_sample' or 'pairs', not"),
        ({"neighbours": "pairs"}, "neighbours 'pairs' needs 'sample_size' of 2 or more"),
        ({"neighbours": "partition", "parts": 2, "within": "pairs"}, "within 'pairs' needs 'sample_size'"),
        ({"within": "pairs", "sample_size": 5}, "'within' goes with neighbours 'partition', not 'exact'"),
        ({"epsilonn": 1}, "did you mean 'epsilon'"),
        ({"swap_fields": ["age"]}, "unknown name 'swap_fields'"),
    ],
)
def test_parameters_that_are_wrong_in_themselves(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RwnParams.model_validate(parameters)


@pytest.mark.parametrize(
    ("table", "parameters", "words"),
    [
        (TABLE.slice(0, 1), DISTANCES, "holds 1 row, which has no neighbour"),
        (TABLE, {**DISTANCES, "neighbours": "partition", "parts": 3}, "use at most 2 parts"),
        (pa.table({"x": [0.0, math.inf, -math.inf]}), {}, "field 'x' holds 2 infinite values"),
        (
            TABLE,
            {**DISTANCES, "ordinal_fields": {"size": ["small", "medium"]}},
            "field 'size' holds 1 values that are not among its levels",
        ),
    ],
)
def test_sources_that_cannot_be_used(table: pa.Table, parameters: dict[str, Any], words: str) -> None:
    """Said by the plan and by the run, in the same words."""
    params = PROVIDER.check(RwnParams.model_validate(parameters), table.schema)
    with pytest.raises(SourceError, match=words) as planned:
        PROVIDER.plan(table, params)
    with pytest.raises(SourceError, match=words) as swapped:
        PROVIDER.swap(table, params, Stream(bytes(32), "RWN", 1), no_progress)
    assert str(planned.value) == str(swapped.value)


def test_two_fields_of_one_name() -> None:
    twins = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    with pytest.raises(SourceError, match="2 fields named 'a'"):
        PROVIDER.check(RwnParams(), twins.schema)


def test_no_row_is_a_valid_source() -> None:
    """Nothing in, nothing out."""
    result = swap("RWN", TABLE.slice(0, 0), DISTANCES)
    assert result.table.equals(TABLE.slice(0, 0))
    assert (result.summary.rows, result.summary.groups, result.summary.took_part) == (0, 0, 0)
    assert result.provider["neighbourhood_size"]["largest"] == 0
    assert not result.events.counts


def test_two_rows_give_to_each_other() -> None:
    table = pa.table({"x": [1, 2], "t": pa.array(["a", None])})
    result = swap("RWN", table, {})
    assert result.table.to_pydict() == {"x": [2, 1], "t": [None, "a"]}
    assert result.provider["neighbourhood_size"] == {
        "smallest": 1, "median": 1.0, "mean": 1.0, "largest": 1, "rows_counted": 2,
    }  # fmt: skip
    assert result.provider["matching_bits"] == 0.0


def test_a_list_is_perturbed_though_it_has_no_distance() -> None:
    """Any type moves."""
    result = swap("RWN", TABLE, {**DISTANCES, "k": 1})
    assert result.table.schema == TABLE.schema
    assert all(row in TABLE["tags"].to_pylist() for row in result.table["tags"].to_pylist())


def test_effective_k_of_the_ways_to_scale_up() -> None:
    """k n / m and k u."""
    table = pa.table({"x": np.arange(100)})
    sample = swap("RWN", table, {"neighbours": "sample", "sample_size": 20})
    own = swap("RWN", table, {"neighbours": "own_sample", "sample_size": 20})
    parts = swap("RWN", table, {"neighbours": "partition", "parts": 4})
    assert swap("RWN", table, {}).provider["effective_k"] == 5
    assert sample.provider["effective_k"] == 25
    assert own.provider["effective_k"] == 25
    assert parts.provider["effective_k"] == 20
    assert len(set(sample.table["x"].to_pylist())) <= 20
    assert len(set(own.table["x"].to_pylist())) > 40
    for everyone in (("sample", 100), ("own_sample", 99)):
        parameters = dict(zip(("neighbours", "sample_size"), everyone, strict=True))
        assert swap("RWN", table, parameters).table.equals(swap("RWN", table, {}).table)


def _planned(table: pa.Table, params: RwnParams) -> int:
    return PROVIDER.plan(table, params).estimated_memory_bytes


def test_samples_of_single_rows_count_in_the_memory() -> None:
    """Each thread has one, with what it is searched by."""
    table = pa.table({"x": np.arange(1000)})
    own = PROVIDER.check(RwnParams(neighbours="own_sample", sample_size=500), table.schema)
    exact = PROVIDER.check(RwnParams(), table.schema)
    assert _planned(table, own) >= _planned(table, exact) + 500 * 24
    assert PROVIDER.scaling.memory(own, 1000, 8000) >= PROVIDER.scaling.memory(exact, 1000, 8000) + 500 * 24


@pytest.mark.parametrize("size", [2, 9, 10, 17])
def test_every_other_row_is_as_likely_in_an_own_sample(size: int) -> None:
    """All of a sample are neighbours, and give alike: so do all others, whether few or most are drawn."""
    table = pa.table({"x": np.arange(20)})
    given = np.zeros((20, 20))
    for seed in range(800):
        parameters = {"neighbours": "own_sample", "sample_size": size, "k": 20}
        moved = swap("RWN", table, parameters, seed.to_bytes(32, "big")).table["x"].to_numpy()
        given[np.arange(20), moved] += 1
    assert not given.diagonal().any()
    expected = 800 / 19
    chi = np.sum(np.square(given[~np.eye(20, dtype=bool)] - expected)) / expected
    assert abs(chi - 360) < 4 * math.sqrt(2 * 360)  # 20 times 18 degrees of freedom


def test_categories_that_do_not_change_are_reported() -> None:
    """Cells of more than k rows: neighbours agree on the category, whatever its values' owners do."""
    random = np.random.default_rng(1)
    table = pa.table(
        {"x": random.random(200), "c": random.integers(0, 3, 200).astype(str), "one": ["z"] * 200}
    )
    result = swap("RWN", table, {"q": 0.5})
    assert result.events.counts == {"category_kept": 1, "nothing_changed": 1, "rows_unchanged": 1}
    kept, nothing, rows = result.events.listed
    assert kept.field == "c"
    assert "0.00% of the values drawn" in kept.message
    assert "k = 5 rows" in kept.message
    assert nothing.field == "one"
    unchanged = result.provider["unchanged_rows"]
    assert rows.message.startswith(
        f"{unchanged} of 200 rows ({unchanged / 200:.1%}) are released with no value changed"
    )
    free = swap("RWN", table, {"categorical_weight": 0.001})
    assert "category_kept" not in free.events.counts
    assert free.summary.changed["c"] > 100


def test_a_category_of_one_value_is_not_said_to_be_kept() -> None:
    """An entry that no row uses makes no second category."""
    column = pa.DictionaryArray.from_arrays(pa.array([1] * 20), ["unused", "used"])
    result = swap("RWN", pa.table({"x": np.arange(20), "c": column}), {"categorical_fields": ["c"]})
    assert result.events.counts["nothing_changed"] == 1
    assert "category_kept" not in result.events.counts


def test_unswapped_rows_were_not_drawn() -> None:
    table = pa.table({"x": np.arange(1000), "y": np.arange(1000)})
    summary = swap("RWN", table, {"q": 0.5}).summary
    assert summary.unswapped_reasons == {"rate": summary.unswapped}
    assert summary.achieved_rate == pytest.approx(0.5, abs=0.05)
    assert summary.groups == summary.rows == 1000


@pytest.mark.parametrize(
    ("parameters", "digest"),
    [
        ({}, "sha256:6a63543b1c7b6eb689e21d90fbb1fc4cc3e215f98a98958ce17fd6dfd90defbc"),
        (
            {"epsilon": 0.6, "q": 0.7},
            "sha256:5d4a8ad7ef713f132c28990cea8a188af8faa8395568397416dc54f7a2e87865",
        ),
        (
            {"k": 1500, "ties": "index", "neighbours": "partition", "parts": 2},
            "sha256:70c8adb1becd0d1177749417e7b2ca8e79d7955b51fa1185a452939007513bb0",
        ),
    ],
)
def test_what_revision_2_gives(parameters: dict[str, Any], digest: str) -> None:
    """A change of the tree, of covers or of addresses changes outputs, and raises the revision."""
    at = np.arange(4000)
    table = pa.table(
        {
            "x": at * 7919 % 4001,
            "y": pa.array((at * 104729 % 997) / 8, mask=at % 31 == 0),
            "c": [f"level {place}" for place in at * at % 3],
        }
    )
    result = swap("RWN", table, {"categorical_weight": 0.5, **parameters})
    assert PROVIDER.revision == 3  # which differs from 2 for decimals alone
    assert PROVIDER.draws_revision == 2
    assert table_digest(result.table, DigestForm.WHOLE) == digest


# ------------------------------------------------------------------------------------------ the space


def test_numbers_are_scaled_dates_among_them() -> None:
    """(x - min) / (max - min); large integers and moments keep their differences."""
    days = pa.array([0, 10, 5], pa.date32())
    moments = pa.array([10**18, 10**18 + 4, 10**18 + 1], pa.timestamp("ns"))
    table = pa.table({"n": [2**62, 2**62 + 8, 2**62 + 2], "d": days, "m": moments, "f": [-1.0, 3.0, 0.0]})
    points = encode(table, table.column_names)
    assert points.numbers.tolist() == [[0, 0, 0, 0], [1, 1, 1, 1], [0.25, 0.5, 0.25, 0.25]]
    assert points.codes.shape == (3, 0)


def test_what_is_the_same_everywhere_is_left_out() -> None:
    table = pa.table({"x": [1, 1], "t": ["a", "a"], "n": pa.nulls(2, pa.float64()), "y": [0, 1]})
    points = encode(table, table.column_names)
    assert points.numbers.tolist() == [[0], [1]]
    assert points.codes.shape == (2, 0)


def test_missing_numbers_are_the_median_and_a_flag() -> None:
    table = pa.table(
        {"x": pa.array([0.0, None, 1.0, math.nan, 0.5, 1.0]), "t": ["a", "b", "a", "b", "a", "b"]}
    )
    points = encode(table, ["x", "t"], categorical_weight=0.5)
    assert points.numbers[:, 0].tolist() == [0, 0.75, 1, 0.75, 0.5, 1]
    assert points.codes.tolist() == [[0, 0], [1, 1], [0, 0], [1, 1], [0, 0], [1, 0]]
    assert (points.flags, points.weight) == (1, 0.5)


def test_ordinals_are_places_of_levels() -> None:
    levels = {"size": ("small", "medium", "large")}
    points = encode(TABLE, ["size"], ordinal=levels)
    assert points.numbers[:, 0].tolist() == [0, 1, 0.5, 0.5]
    assert points.codes[:, 0].tolist() == [0, 0, 1, 0]


DAY = "1970-01-01"


@pytest.mark.parametrize(
    ("kind", "far", "levels"),
    [
        (pa.timestamp("s"), 2**40, [DAY, f"{DAY}T00:00:01"]),
        (pa.timestamp("ns"), 1, [DAY, f"{DAY}T00:00:01"]),
        (pa.timestamp("us", "Mars/Olympus"), 2**62, [f"{DAY}T00:00Z", f"{DAY}T00:00:01Z"]),
        (pa.time64("ns"), 999, ["00:00", "00:00:01"]),
        (pa.duration("ns"), 1, [0, 1]),
        (pa.duration("s"), 2**60, [0, 1]),
    ],
)
def test_levels_are_compared_with_times_to_the_nanosecond(
    kind: pa.DataType, far: int, levels: list[Any]
) -> None:
    """Times beyond Python's are none of the levels, and none is rounded to one."""
    second = {"s": 1, "us": 10**6, "ns": 10**9}[kind.unit]
    field = pa.field("a", kind)
    column = pa.chunked_array([pa.array([0, second, None, far, far], pa.int64()).cast(kind)])
    positions = level_positions(column, field, levels)
    np.testing.assert_array_equal(positions, [0, 1, math.nan, UNKNOWN, UNKNOWN])
    with pytest.raises(ParameterError, match="named twice"):
        check_kinds([], {"a": [*levels, levels[0]]}, pa.schema([field]))


def test_dates_beyond_those_of_python_are_none_of_the_levels() -> None:
    column = pa.chunked_array([pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())])
    assert level_positions(column, pa.field("a", pa.date32()), [DAY]).tolist() == [0, UNKNOWN]


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (pa.array([-0.0, 1.5, None, math.nan]), [0, 1.5]),
        (pa.array([Decimal("0.0"), Decimal("1.5"), None, Decimal("9.0")], pa.decimal64(9, 1)), ["0", 1.5]),
        (pa.array(["0", "1", None, "9"]).dictionary_encode(), ["0", "1"]),
        (pa.array([b"0", b"1", None, b"9"], pa.binary(1)), ["MA==", "MQ=="]),
    ],
)
def test_levels_of_other_types(values: pa.Array, levels: list[Any]) -> None:
    positions = level_positions(pa.chunked_array([values]), pa.field("a", values.type), levels)
    np.testing.assert_array_equal(positions, [0, 1, math.nan, UNKNOWN])


def test_codes_that_look_like_numbers_are_categories_when_named() -> None:
    table = pa.table({"code": [300, 7, 300, None]})
    assert encode(table, ["code"], ["code"]).codes[:, 0].tolist() == [1, 0, 1, 2]
    assert encode(table, ["code"], ["code"], categorical_weight=0).codes.shape == (4, 0)


@pytest.mark.parametrize("parameters", [{"k": 5}, {"k": 5, "ties": "index"}, {"k": 2, "epsilon": 0.4}])
def test_a_plan_has_the_sizes_of_the_run(parameters: dict[str, Any]) -> None:
    """Ties and rows within epsilon make neighbourhoods larger than k; preview and report agree on them."""
    generator = np.random.default_rng(3)
    table = pa.table({"x": generator.integers(0, 12, 300), "c": generator.choice(list("abc"), 300)})
    params = PROVIDER.check(RwnParams.model_validate(parameters), table.schema)
    plan = PROVIDER.plan(table, params)
    size = PROVIDER.swap(table, params, Stream(bytes(32), "RWN", 1), no_progress).summary.group_size
    assert plan.group_size_is_exact
    assert plan.group_size == size
    assert (size.largest > size.smallest) == (parameters.get("ties") != "index")
    assert plan.expected_part_by_field == {"x": 300.0, "c": 300.0}


def test_a_plan_without_a_search_states_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": [0] * 30})
    params = PROVIDER.check(RwnParams(k=5, q=0.5), table.schema)
    monkeypatch.setattr("providers.services.rwn.SEARCHED_ROWS", 29)
    plan = PROVIDER.plan(table, params)
    assert not plan.group_size_is_exact
    assert (plan.group_size.smallest, plan.group_size.largest) == (5, 5)
    assert plan.expected_part_by_field == {"x": 15.0}
