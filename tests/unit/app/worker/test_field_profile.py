"""Profiles agree with counts of plain Python, whatever the type, the batches and their encodings."""

import datetime as dt
import decimal
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from app.worker.field_profile import BINS, MOST_DISTINCT, profile_fields, shown_texts
from app.worker.row_comparison import MOST_CATEGORIES, Wanted, compare_rows
from providers.errors import ParameterError

DAY = dt.date(2024, 2, 20)
COLUMNS: dict[str, pa.Array] = {
    "int": pa.array([row * 37 % 91 - 40 for row in range(300)]),
    "widest": pa.array([-(2**63), 2**63 - 1, *range(298)]),
    "unsigned": pa.array([2**64 - 1 - row * row for row in range(300)], pa.uint64()),
    "float": pa.array([None if row % 7 == 0 else row / 8 for row in range(300)]),
    "decimal": pa.array([decimal.Decimal(row % 50) / 4 for row in range(300)]),
    "narrow": pa.array([decimal.Decimal(row % 50) / 4 for row in range(300)], pa.decimal64(12, 2)),
    "thousands": pa.array([decimal.Decimal(row % 50) * 1000 for row in range(300)], pa.decimal128(10, -3)),
    "date": pa.array([DAY + dt.timedelta(days=row % 40) for row in range(300)]),
    "stamp": pa.array([dt.datetime(2024, 1, 1) + dt.timedelta(hours=row) for row in range(300)]),
}


def profiled(table: pa.Table, batch_rows: int = 37) -> list[dict[str, Any]]:
    return profile_fields(table.schema, lambda: table.to_batches(max_chunksize=batch_rows))


@pytest.mark.parametrize("name", COLUMNS)
def test_bins_count_every_value_once(name: str) -> None:
    column = COLUMNS[name]
    (profile,) = profiled(pa.table({"x": column}))
    values = [value for value in column.to_pylist() if value is not None]
    assert profile["nulls"] == len(column) - len(values)
    assert profile["distinct"] == len(set(values))
    assert [profile["minimum"], profile["maximum"]] == shown_texts(
        pa.array([min(values), max(values)], column.type)
    )
    counts, edges = profile["histogram"]["counts"], profile["histogram"]["edges"]
    assert len(edges) == len(counts) + 1 <= BINS + 1
    assert sum(counts) == len(values)
    if name in ("int", "widest", "unsigned"):  # also where float64 has not all integers
        ends = [int(edge) for edge in edges]
        for low, high, count in zip(ends[:-1], ends[1:], counts, strict=True):
            assert count == sum(low <= value < high for value in values)


def test_values_are_listed_with_their_counts() -> None:
    texts = [f"t{row % 5}" if row % 11 else None for row in range(300)]
    flags = [row % 3 == 0 for row in range(300)]
    floats = [float("nan") if row % 2 else float("inf") for row in range(300)]
    columns = {"text": pa.array(texts).dictionary_encode(), "flag": flags, "float": floats}
    text, flag, odd = profiled(pa.table(columns))
    counted = Counter(value for value in texts if value is not None)
    assert {each["value"]: each["count"] for each in text["values"]} == counted
    assert [each["count"] for each in text["values"]] == sorted(counted.values(), reverse=True)
    assert flag["values"] == [{"value": "false", "count": 200}, {"value": "true", "count": 100}]
    assert "minimum" not in odd
    assert "histogram" not in odd


def test_runs_show_a_table_that_is_grouped() -> None:
    sizes = [1, 3, 2, 4] * 20
    grouped = [household for household, size in enumerate(sizes) for _ in range(size)]
    table = pa.table({"household": grouped, "member": [row % 2 for row in range(len(grouped))]})
    household, member = profiled(table, 3)
    assert household["runs"] == household["distinct"] == len(sizes)
    assert household["largest_count"] == 4
    assert member["runs"] == len(grouped)


def test_counting_stops_at_its_limit() -> None:
    (profile,) = profiled(pa.table({"x": [f"p{row}" for row in range(MOST_DISTINCT + 10)]}), 9_000)
    assert not profile["distinct_is_exact"]
    assert profile["distinct"] == MOST_DISTINCT
    assert "values" not in profile


def test_types_without_an_order_are_counted_or_left() -> None:
    table = pa.table({
        "none": pa.nulls(4),
        "list": [[1], [1], None, [2]],
        "bytes": [b"a", b"a", None, b"b"],
        "time": [dt.time(1), dt.time(1), None, dt.time(2)],
        "half": pa.array([1.0, 1.0, None, 2.0], pa.float16()),
    })  # fmt: skip
    none, listed, raw, clock, half = profiled(table, 2)
    assert (none["nulls"], none["distinct"]) == (4, 0)
    assert (listed["nulls"], listed["distinct_is_exact"]) == (1, False)
    assert raw["values"][0] == {"value": "YQ==", "count": 2}
    assert clock["values"][0] == {"value": "01:00:00.000000", "count": 2}
    assert (half["minimum"], half["maximum"]) == ("1.0", "2.0")


def test_long_texts_are_cut() -> None:
    assert [len(text or "") for text in shown_texts(pa.array(["x" * 200, "x" * 201, "x" * 5000]))] == [
        200
    ] * 3


def compared(source: pa.Table, release: pa.Table, wanted: Wanted) -> dict[str, Any]:
    """Compare tables whose batches do not end at the same rows."""
    return compare_rows(
        source.schema,
        lambda: source.to_batches(max_chunksize=7),
        lambda: release.to_batches(max_chunksize=5),
        wanted,
    )


def test_nulls_and_nan_are_equal_to_themselves() -> None:
    nan = float("nan")
    source = pa.table(
        {"x": [1.0, None, nan, 2.0, None], "y": [1, 2, 3, 4, 5], "z": [[1.0], [nan], None, [None], [5.0]]}
    )
    release = pa.table({"x": [1.0, None, nan, None, 3.0], "y": [1.0, 2.0, 3.5, 4.0, 5.0], "z": source["z"]})
    found = compared(source, release, Wanted(True, 5, True, None, None))
    assert [field["changed"] for field in found["fields"]] == [2, 1, 0]
    assert [row["row"] for row in found["rows"]] == [2, 3, 4]
    assert found["rows"][1] == {"row": 3, "before": ["2.0", "4", "[None]"], "after": [None, "4.0", "[None]"]}


@pytest.mark.parametrize(
    "kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(9, -2), pa.decimal256(75, -2)], ids=str
)
def test_decimals_that_arrow_cannot_compare_are_profiled_and_compared(kind: pa.DataType) -> None:
    """Fields of 32 or 64 bits, or of a negative scale, failed with 500."""
    values = [decimal.Decimal(300), None, decimal.Decimal(500), decimal.Decimal(300)]
    source, release = (pa.table({"x": pa.array(order, kind)}) for order in (values, values[::-1]))
    (profile,) = profiled(source)
    assert (profile["nulls"], profile["distinct"], profile["largest_count"]) == (1, 2, 2)
    found = compared(source, release, Wanted(True, 5, True, "x", "x"))
    assert [field["changed"] for field in found["fields"]] == [2]


def test_extension_types_over_lists_are_compared() -> None:
    """Geometries and tensors failed with 500."""
    kind = pa.fixed_shape_tensor(pa.int32(), [2])
    source, release = (
        pa.table({"x": pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))})
        for rows in ([[1, 2], None], [[1, 2], [3, 4]])
    )
    found = compared(source, release, Wanted(True, 5, True, None, None))
    assert [field["changed"] for field in found["fields"]] == [1]
    assert found["categories"] == []


def test_a_cross_table_counts_pairs_with_nulls() -> None:
    sex = ["f", "m", None, "f", "m"] * 20
    town = [f"t{row % 4}" for row in range(100)]
    source = pa.table({"sex": sex, "town": town, "id": list(range(100))})
    release = source.set_column(0, "sex", pa.array(sex[::-1]))
    found = compared(source, release, Wanted(True, 0, False, "sex", "town"))
    assert found["categories"] == ["sex", "town"]
    table = found["crosstab"]
    assert table["values"] == ["f", "m", None]
    for side, values in (("before", sex), ("after", sex[::-1])):
        pairs = Counter(zip(values, town, strict=True))
        assert table[side] == [[pairs[one, other] for other in table["by_values"]] for one in table["values"]]
    assert len(set(range(100))) > MOST_CATEGORIES
    with pytest.raises(ParameterError, match="more than 24 different values"):
        compared(source, release, Wanted(True, 0, False, "sex", "id"))
    with pytest.raises(ParameterError, match="there is no field 'six'; did you mean 'sex'"):
        compared(source, release, Wanted(True, 0, False, "six", "town"))
