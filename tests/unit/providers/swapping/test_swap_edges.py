"""Edge cases of the swaps: no rows, few rows, equal rows, unusual names, huge numbers, suppression."""

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import UnswappableError
from providers.grouping.blocks import blocks
from providers.grouping.equivalence_classes import Breaks, class_keys
from providers.grouping.groups import BufferPool, Groups
from providers.grouping.shuffle import shuffle_groups
from providers.kernels.radix_sort import counted_runs
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.results import EVENTS_SHOWN, GroupSize
from providers.swapping.exchange import exchange
from tests.naive.agreement import SEED, assert_agree, swap

SERVICES: dict[str, dict[str, Any]] = {
    "DSWAP": {},
    "CDSWAP": {"control_field": "c"},
    "DDSWAP": {"control_field": "c", "block_size": 3},
}
EACH_SERVICE = pytest.mark.parametrize(("service", "extra"), SERVICES.items())


@EACH_SERVICE
def test_an_empty_table_is_a_valid_result(service: str, extra: dict[str, Any]) -> None:
    """An empty source gives an empty destination and no events."""
    table = pa.table(
        {"v": pa.array([], pa.int64()), "t": pa.array([], pa.string()), "c": pa.array([], pa.date32())}
    )
    result, _ = assert_agree(service, table, {"swap_fields": ["v", "t"], **extra})
    assert result is not None
    assert result.table.schema == table.schema
    assert result.summary.group_size == GroupSize(0, 0.0, 0)
    assert not result.events.counts


@EACH_SERVICE
def test_a_table_without_chunks(service: str, extra: dict[str, Any]) -> None:
    """Columns without chunks are columns without rows."""
    schema = pa.schema([("v", pa.int64()), ("c", pa.dictionary(pa.int8(), pa.date32()))])
    table = pa.Table.from_batches([], schema=schema)
    assert swap(service, table, {"swap_fields": ["v"], **extra}).table.schema == schema


@EACH_SERVICE
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_few_rows(service: str, extra: dict[str, Any], rows: int) -> None:
    """Every value moves in a group of two or more rows."""
    table = pa.table({"v": np.arange(rows), "c": [0] * rows})
    result, _ = assert_agree(
        service, table, {"swap_fields": ["v"], **extra, "suppression": {"policy": "keep"}}
    )
    assert result is not None
    moved = np.asarray(result.table["v"]) != np.arange(rows)
    if service == "DDSWAP" and rows == 5:
        assert moved.all()  # blocks of three and two
    assert moved.all() == (rows > 1)
    assert sorted(result.table["v"].to_pylist()) == list(range(rows))


@EACH_SERVICE
def test_all_rows_equal(service: str, extra: dict[str, Any]) -> None:
    """All rows take part, no value changes, and an event reports it."""
    table = pa.table({"v": [7] * 10, "t": ["x"] * 10, "c": [1] * 10})
    result, _ = assert_agree(service, table, {"swap_fields": ["v", "t"], **extra})
    assert result is not None
    assert result.table.equals(table)
    assert result.summary.took_part == 10
    assert result.summary.changed == {"v": 0, "t": 0}
    small = {"reversible_groups": 1} if service == "DDSWAP" else {}  # blocks of three
    assert result.events.counts == {"nothing_changed": 2, **small}


@EACH_SERVICE
@pytest.mark.parametrize("name", ["net income (€)", "🦊", "a/b~c", "", "é" * 300, "exchange"])
def test_any_field_name(service: str, extra: dict[str, Any], name: str) -> None:
    """Field names may be any text."""
    table = pa.table({name: np.arange(9), "c": [0] * 9})
    result, _ = assert_agree(service, table, {"swap_fields": [name], **extra})
    assert result is not None
    assert result.summary.changed == {name: 9}


def test_huge_and_odd_numbers() -> None:
    """Extreme integers, infinities, NaN and both zeros are ordered and moved unchanged."""
    table = pa.table(
        {
            "v": pa.array([2**63 - 1, -(2**63), 0, None, 5, -1], pa.int64()),
            "u": pa.array([2**64 - 1, 0, 2**63, None, 5, 2**63 - 1], pa.uint64()),
            "x": pa.array([np.nan, -np.inf, -0.0, 0.0, np.inf, None], pa.float64()),
        }
    )
    for control in ("v", "u", "x", ["v", "u"], ["u", "x"], ["x", "v"]):
        swapped = sorted({"v", "u", "x"} - set([control] if isinstance(control, str) else control))
        parameters = {"swap_fields": swapped, "control_field": control}
        assert_agree("DDSWAP", table, {**parameters, "block_size": 2})
        assert_agree("CDSWAP", table, {**parameters, "suppression": {"policy": "keep"}})


def test_breaks_are_exact() -> None:
    """A break that is no float separates the floats around it; among integers it is rounded up."""
    numbers = [2.0**53, 2.0**53 + 2]
    table = pa.table({"v": range(4), "x": numbers * 2})
    parameters = {"swap_fields": ["v"], "control_field": "x", "classifier": {"breaks": [2**53 + 1]}}
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    assert result.table["v"].to_pylist() == [2, 3, 0, 1]
    table = pa.table({"v": range(4), "x": [1, 2, 1, 2]})
    for breaks in ([1.5], [2], [1.0001, 1.9999], [-(10**30), 1.5, 10**30]):
        parameters["classifier"] = {"breaks": breaks}
        result, _ = assert_agree("CDSWAP", table, parameters)
        assert result is not None
        assert result.table["v"].to_pylist() == [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.decimal128(18, 2), ["-1.50", "0.00", "1.49", "1.50", None, "-9999999999999999.99"]),
        (
            pa.decimal128(38, 2),
            ["-1.50", "9" * 36 + ".99", None, "-" + "9" * 36 + ".99", "92233720368547758.08"],
        ),
        (pa.decimal256(60, 1), ["1.5", None, "1" + "0" * 50, "-1" + "0" * 50 + ".5", "1.4"]),
        (pa.decimal128(5, -2), ["100", "200", None, "-300"]),
        (pa.decimal128(18, 2), [None, None]),
    ],
)
@pytest.mark.parametrize(
    "breaks", [[1.5], [-1.505, 1.491, 1.5], [-(2**70), 0, 92233720368547758.08, 2**70], [-(10**60), 10**60]]
)
def test_breaks_of_decimals_are_exact(
    kind: pa.DataType, values: list[str | None], breaks: list[float]
) -> None:
    """A value is in the interval that the comparison of fractions gives, with up to 64 bits and with more."""
    exact = [None if value is None else Decimal(value) for value in values]
    padded = pa.chunked_array([pa.array([None, *exact, None], kind).slice(1, len(values))])
    [keys] = class_keys(padded, Breaks(breaks=tuple(breaks)), pa.field("x", kind))
    bounds = [Fraction(Decimal(str(each))) for each in breaks]
    expected = [
        None if value is None else sum(bound <= Fraction(value) for bound in bounds) for value in exact
    ]
    assert [key for key, value in zip(keys.tolist(), exact, strict=True) if value is not None] == [
        each for each in expected if each is not None
    ]
    absent = {key for key, value in zip(keys.tolist(), exact, strict=True) if value is None}
    assert len(absent) == 1
    assert not absent & {each for each in expected if each is not None}


def test_both_zeros_and_all_nan_are_one_class_under_every_classifier() -> None:
    """0.0 and -0.0 are one value of a control field; NaN and null are one class each."""
    x = [0.0, -0.0, np.nan, -np.nan, None, None, 7.0, 7.0]
    table = pa.table({"v": range(8), "x": pa.array(x, pa.float64())})
    for classifier in (
        "identity",
        {"breaks": [5]},
        {"groups": {"one": [7]}},
        {"groups": {"one": [0]}},
        {"groups": {"one": [0], "two": [7.0]}, "other": "one_class"},
        {"groups": {"one": [0], "two": [7.0]}, "other": "fail"},
    ):
        parameters = {"swap_fields": ["v"], "control_field": "x", "classifier": classifier}
        result, _ = assert_agree("CDSWAP", table, parameters)
        assert result is not None
        assert result.table["v"].to_pylist() == [1, 0, 3, 2, 5, 4, 7, 6]


def test_many_control_fields() -> None:
    """Each of many control fields distinguishes classes and orders blocks."""
    random = np.random.default_rng(1)
    names = [f"c{at}" for at in range(7)]
    table = pa.table({"v": np.arange(900)} | {name: random.integers(0, 3, 900) for name in names})
    for count in range(3, 8):
        shared = {"swap_fields": ["v"], "control_field": names[:count]}
        assert_agree("CDSWAP", table, shared)
        assert_agree("DDSWAP", table, {**shared, "block_size": 4})
    wide = table.cast(pa.schema([(name, pa.float64()) for name in table.column_names]))
    assert_agree("DDSWAP", wide, {"swap_fields": ["v"], "control_field": names, "block_size": 4})


def test_a_class_without_values_keeps_the_others_names() -> None:
    """With `nulls: keep` a class of nulls moves nothing, and the draws of other classes stay the same."""
    numbers = list(range(30))
    classes = [number // 10 for number in numbers]
    table = pa.table({"v": [None] * 10 + numbers[10:], "w": numbers, "c": classes})
    parameters = {"swap_fields": ["v", "w"], "control_field": "c", "nulls": "keep"}
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    assert result.summary.unswapped_reasons == {"null": 10}
    assert not result.events.counts


def test_remainders_of_blocks() -> None:
    """A remainder of one row joins the block before it; any other remainder is a block."""
    sizes = {
        (rows, size): blocks(np.arange(rows, dtype=np.int32), size).sizes.tolist()
        for rows, size in [(0, 3), (1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (7, 3), (3, 2), (10, 4)]
    }
    assert sizes == {
        (0, 3): [],
        (1, 3): [1],
        (2, 3): [2],
        (3, 3): [3],
        (4, 3): [4],
        (5, 3): [3, 2],
        (7, 3): [3, 4],
        (3, 2): [3],
        (10, 4): [4, 4, 2],
    }


def test_unlocked_nulls_that_are_kept_suppress_only_their_field() -> None:
    """A row whose only partner is null in a field is nulled in that field only."""
    table = pa.table({"a": [1, None], "b": [1, 2]})
    result, _ = assert_agree("DSWAP", table, {"swap_fields": ["a", "b"], "nulls": "keep"})
    assert result is not None
    assert result.table.to_pydict() == {"a": [None, None], "b": [2, 1]}
    found = [(event.code, event.row, event.field) for event in result.events.listed]
    assert found == [("suppressed", 0, "a"), ("reversible_groups", None, None)]


def test_events_are_capped_and_counted_in_full() -> None:
    """At most `EVENTS_SHOWN` events are listed, in the order of rows; the counts are exact."""
    rows = 3 * EVENTS_SHOWN
    table = pa.table({"a": np.arange(rows), "b": np.arange(rows), "c": np.arange(rows)})
    result = swap("CDSWAP", table, {"swap_fields": ["a", "b"], "control_field": "c"})
    assert result.events.counts == {"suppressed": 2 * rows}
    assert len(result.events.listed) == EVENTS_SHOWN
    listed = [(event.row, event.field) for event in result.events.listed]
    assert listed == [(row, name) for row in range(EVENTS_SHOWN // 2) for name in ("a", "b")]
    assert result.summary.suppressed == rows


def test_fail_says_how_many_and_changes_nothing() -> None:
    """Policy `fail` names the number of rows and groups before anything is exchanged."""
    table = pa.table({"v": np.arange(7), "c": list("aabbcde")})
    provider = PROVIDERS["CDSWAP"]
    params = provider.check(
        provider.params.model_validate(
            {"swap_fields": ["v"], "control_field": "c", "suppression": {"policy": "fail"}}
        ),
        table.schema,
    )
    stages: list[str] = []
    with pytest.raises(UnswappableError, match=r"^3 rows of 3 groups cannot be swapped"):
        provider.swap(table, params, Stream(SEED, "CDSWAP", 1), lambda _, stage: stages.append(stage))
    assert not any("exchanging" in stage for stage in stages)


REPLACEMENTS = [
    (pa.int8(), 5, 5),
    (pa.float32(), 1, 1.0),
    (pa.bool_(), True, True),
    (pa.string(), "?", "?"),
    (pa.string_view(), "a text longer than a view", "a text longer than a view"),
    (pa.dictionary(pa.int8(), pa.string()), "?", "?"),
    (pa.run_end_encoded(pa.int32(), pa.string()), "?", "?"),
    (pa.date32(), "2024-02-29", datetime.date(2024, 2, 29)),
    (pa.time64("us"), "08:30", datetime.time(8, 30)),
    (pa.timestamp("ms"), "2024-02-29T08:30", datetime.datetime(2024, 2, 29, 8, 30)),
    (pa.duration("s"), 90, datetime.timedelta(seconds=90)),
    (pa.binary(), "AP8=", b"\x00\xff"),
    (pa.decimal128(5, 2), "1.25", Decimal("1.25")),
]


@pytest.mark.parametrize(
    ("kind", "given", "expected"), REPLACEMENTS, ids=[str(kind) for kind, _, _ in REPLACEMENTS]
)
def test_replacements_of_every_type(kind: pa.DataType, given: Any, expected: Any) -> None:
    """A JSON value is converted to the field's type, including encoded types."""
    table = pa.table({"v": pa.nulls(3, kind), "c": [1, 2, 3]})
    suppression = {"policy": "replace", "replacement": {"v": given}}
    found = swap("CDSWAP", table, {"swap_fields": ["v"], "control_field": "c", "suppression": suppression})
    assert found.table.schema == table.schema
    assert found.table["v"].to_pylist() == [expected] * 3
    assert found.events.counts == {"replaced": 3}


@EACH_SERVICE
def test_progress_rises(service: str, extra: dict[str, Any]) -> None:
    """Fractions never decrease, and each stage has a name."""
    table = pa.table({"a": np.arange(9), "b": np.arange(9), "c": [0] * 9})
    provider = PROVIDERS[service]
    params = provider.check(
        provider.params.model_validate({"swap_fields": ["a", "b"], **extra}), table.schema
    )
    reported: list[tuple[float, str]] = []
    provider.swap(
        table, params, Stream(SEED, service, 1), lambda fraction, stage: reported.append((fraction, stage))
    )
    fractions = [fraction for fraction, _ in reported]
    assert fractions == sorted(fractions)
    assert all(0 <= fraction <= 1 and stage for fraction, stage in reported)


@EACH_SERVICE
def test_plan_draws_nothing_and_agrees(service: str, extra: dict[str, Any]) -> None:
    """The plan agrees with the run."""
    table = pa.table({"v": np.arange(10), "c": list("aaabbbbcde")})
    provider = PROVIDERS[service]
    params = provider.check(
        provider.params.model_validate({"swap_fields": ["v"], "min_group_size": 3, **extra}), table.schema
    )
    plan = provider.plan(table, params)
    summary = provider.swap(table, params, Stream(SEED, service, 1), no_progress).summary
    assert (plan.rows, plan.groups, plan.group_size) == (summary.rows, summary.groups, summary.group_size)
    assert plan.unswappable_rows == summary.unswapped
    assert plan.estimated_memory_bytes > table.nbytes


@EACH_SERVICE
@pytest.mark.parametrize("mechanism", ["pairs", "permutation"])
@pytest.mark.parametrize("locked", [True, False])
def test_a_plan_expects_the_rows_that_take_part(
    service: str, extra: dict[str, Any], mechanism: str, locked: bool
) -> None:
    """The mean over 400 seeds is within 4 standard errors of the plan."""
    columns = {"v": np.arange(23), "w": [None, *range(22)], "c": [*"aaabbbbcccccccc", *"d" * 8]}
    table = pa.table(columns | {"stays": np.arange(23)})
    provider = PROVIDERS[service]
    given = {"swap_fields": ["v", "w"], "nulls": "keep", "rate": 0.3, "mechanism": mechanism, **extra}
    params = provider.check(provider.params.model_validate(given | {"locked": locked}), table.schema)
    expected = provider.plan(table, params).expected_part_by_field
    assert expected.keys() == {"v", "w"}
    drawn: dict[str, list[int]] = {"v": [], "w": []}
    for seed in range(400):
        stream = Stream(seed.to_bytes(32, "big"), service, 1)
        summary = provider.swap(table, params, stream, no_progress).summary
        for name, rows in summary.took_part_by_field.items():
            drawn[name].append(rows)
    for name, counts in drawn.items():
        error = float(np.std(counts)) / math.sqrt(len(counts))
        assert abs(np.mean(counts) - expected[name]) <= 4 * error + 1e-9


@pytest.mark.slow
def test_working_memory_that_served_another_field_changes_nothing() -> None:
    """Buffers left by earlier fields of other widths and groups do not affect later ones."""
    generator = np.random.default_rng(5)
    workspace = BufferPool()
    for number, kind in enumerate([np.float64, np.int8, np.int32, np.float64, np.int16]):
        rows = 30_000 + 7_000 * (number % 3)
        values = generator.integers(0, 100, rows).astype(kind)
        groups = Groups(rows, None, np.array([0, 10, 20_000, rows], np.int64), np.arange(3, dtype=np.uint64))
        key = Stream(bytes(32), "DSWAP", 1).key(f"exchange/{number}")
        alone = exchange(values, shuffle_groups(groups, key, 0.9))
        shared = exchange(values, shuffle_groups(groups, key, 0.9, workspace=workspace), workspace=workspace)
        assert shared[0].tobytes() == alone[0].tobytes()
        assert shared[1] == alone[1]
        assert sorted(shared[0]) == sorted(values)


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("nulls", ["swap", "keep"])
@pytest.mark.parametrize("policy", [{}, {"policy": "keep"}, {"policy": "drop"}])
@pytest.mark.parametrize("sorted_by_class", [False, True])
def test_classes_that_are_counted_agree(
    locked: bool, nulls: str, policy: dict[str, str], sorted_by_class: bool
) -> None:
    """Table with few classes: one of a single row, two that are too small, and large ones."""
    generator = np.random.default_rng(11)
    classes = np.repeat(np.arange(7), [1, 2, 3, 90, 400, 1100, 300])
    if not sorted_by_class:
        generator.shuffle(classes)
    assert counted_runs(classes.astype(np.uint64)) is not None
    absent = generator.random(len(classes)) < 0.2
    table = pa.table(
        {
            "class": pa.array(classes),
            "x": pa.array(generator.random(len(classes)), mask=absent),
            "name": pa.array(generator.integers(0, 50, len(classes)).astype(str)),
            "rest": pa.array(np.arange(len(classes))),
        }
    )
    for rate, least in ((1.0, 2), (0.6, 4)):
        parameters: dict[str, Any] = {
            "swap_fields": ["x", "name"], "control_field": "class", "locked": locked, "nulls": nulls,
            "rate": rate, "min_group_size": least,
        }  # fmt: skip
        if policy:
            parameters["suppression"] = policy
        assert_agree("CDSWAP", table, parameters)
