"""Checks of rows: grammar, errors with their place, types, report, repair, and what does not go together."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from providers import PROVIDERS
from providers.errors import ParameterError, SourceError
from providers.swapping.check_expressions import broken_rows, check_expressions, names_of, parsed
from tests.naive.agreement import assert_agree, swap
from tests.property.out_of_core import swap_out_of_core

DATE = datetime.date


def people(rows: int = 400) -> pa.Table:
    """Births and deaths, of which half overlap; one row in ten breaks the check in the source."""
    random = np.random.default_rng(3)
    birth = random.integers(1900, 1980, rows)
    death = np.where(np.arange(rows) % 10 == 0, birth - 1, birth + random.integers(0, 60, rows))
    return pa.table(
        {"birth": birth, "death": death, "class": random.integers(0, 5, rows), "row": range(rows)}
    )


BASE = {"swap_fields": ["death"], "checks": ["birth <= death"]}


def broken(text: str, table: pa.Table) -> list[int]:
    check_expressions([text], table.schema)
    [expression] = parsed([text])
    columns = {name: table.column(name) for name in names_of(expression)}
    return np.flatnonzero(broken_rows(expression, columns, "")).tolist()


# ---------------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a < 2", [1, 2]),
        ("2 > a", [1, 2]),
        ("0 < a < 3", [0, 2]),
        ("a == 1 or b == 1", [0]),  # row 3: null or true; row 1: true
        ("a == 0 and b == 0", [1, 2]),  # row 3: null and null; row 0: true
        ("not (a == 0)", [0]),
        ("not a == 0 and not b == 1", [0, 1]),
        ("a >= -1.0", []),
        ("a != 2 or text == 'x'", [1]),
        ("text < 'y'", [1, 2]),
        ('field("a b") == False', [1]),
        ("(a) == (b)", [1]),
        ("a == 00 or a == 0x1 or b == 1_0", [2]),
    ],
)
def test_which_rows_break_a_check(text: str, rows: list[int]) -> None:
    """False breaks it, true and unknown do not."""
    table = pa.table(
        {
            "a": [0, 2, 3, None],
            "b": pa.array([0, 1, None, None], pa.float32()),
            "text": ["x", "y", "z", None],
            "a b": [False, True, None, False],
        }
    )
    table = table.set_column(0, "a", table["a"].cast(pa.int16()))
    if text == "a == 00 or a == 0x1 or b == 1_0":
        rows = [1]
    assert broken(text, table) == rows


@pytest.mark.parametrize(
    ("values", "text", "rows"),
    [
        (pa.array([DATE(2020, 1, 1), DATE(2021, 1, 1)]), "v < '2020-06-30'", [1]),
        (pa.array([Decimal("1.10"), Decimal("2.00")]), "v >= 1.5", [0]),
        (pa.array(["b", "a"]).dictionary_encode(), "v == 'a'", [0]),
        (pa.array([1.0, float("nan"), None]), "v > 2", [0]),
        (pa.array([2**64 - 1, 0], pa.uint64()), "v < n", [0]),
        (pa.array([2**53 + 1, -1], pa.int64()), "v == n", [0, 1]),
        (
            pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("ns")),
            "v > '2021-01-01T00:00:00'",
            [0],
        ),
        (pa.array([1.5, 2.5], pa.float16()), "v < 2", [1]),
        (pa.array(["a", "b"], pa.string_view()), "v != 'b'", [1]),
    ],
)
def test_types_are_compared_by_value(values: pa.Array, text: str, rows: list[int]) -> None:
    """Integers exactly, signed or not; encodings do not matter; NaN and null are unknown."""
    other = pa.array([2**53, 1, 0][: len(values)], pa.int64())
    assert broken(text, pa.table({"v": values, "n": other})) == rows


def test_names_are_those_of_the_table_not_normalised_ones() -> None:
    """Python's parser normalises the ligature; the field is the one that the table names."""
    table = pa.table({"ﬁrst": [1, 5], "first": [5, 1], "é": [3, 3]})
    assert broken("é < ﬁrst", table) == [0]
    assert broken("é < first", table) == [1]


def test_times_of_different_units_that_do_not_fit() -> None:
    table = pa.table(
        {"far": pa.array([2**62], pa.timestamp("s")), "near": pa.array([1], pa.timestamp("ns")), "v": [1]}
    )
    with pytest.raises(SourceError, match="does not fit 64 bits") as raised:
        swap("DSWAP", table, {"swap_fields": ["v"], "checks": ["v == 1", "near < far"]})
    assert raised.value.pointer == "/parameters/checks/1"


MOMENTS = {
    "a": pa.array([1, 2, 3, None], pa.timestamp("s", "UTC")),
    "b": pa.array([10**9, 10**9, 3 * 10**9 + 1, 1], pa.timestamp("ns", "Europe/Dublin")),
}


@pytest.mark.parametrize(("text", "rows"), [("a <= b", [1]), ("b == a", [1, 2]), ("a != b", [0])])
def test_moments_of_two_zones_and_units_are_compared(text: str, rows: list[int]) -> None:
    assert broken(text, pa.table(MOMENTS)) == rows


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (pa.decimal128(38, 10), pa.decimal128(38, 0)),
        (pa.decimal128(5, 2), pa.decimal256(70, 0)),
        (pa.decimal128(5, -2), pa.decimal32(5, 2)),
        (pa.decimal128(5, -2), pa.decimal128(5, -2)),
        (pa.decimal64(9, 2), pa.decimal64(9, 2)),
    ],
)
def test_decimals_of_two_types_are_compared_exactly(one: pa.DataType, two: pa.DataType) -> None:
    values = [Decimal(100), Decimal(300), Decimal(200), None]
    table = pa.table({"a": pa.array(values, one), "b": pa.array([*reversed(values[:3]), Decimal(100)], two)})
    assert broken("a <= b", table) == [2]
    assert broken("a >= 200", table) == [0]


def test_a_comparison_beyond_the_widest_decimal_is_refused() -> None:
    table = pa.table({"a": pa.array([1], pa.decimal256(76, 0)), "b": pa.array([1], pa.decimal256(76, 50))})
    with pytest.raises(ParameterError, match="takes 126 digits, and a decimal has at most 76") as raised:
        broken("a <= b", table)
    assert raised.value.pointer == "/parameters/checks/0"
    low = pa.table({"a": pa.array([None], pa.decimal128(38, -40))})
    with pytest.raises(ParameterError, match="takes 78 digits"):
        broken("a >= 0", low)


@pytest.mark.parametrize(
    "texts",
    [
        [["x", None], ["y", None]],  # each chunk holds a null of its own
        [["x", *map(str, range(99))], [f"b{i}" for i in range(100)]],  # more than 8 bits can number
    ],
    ids=["nulls", "full"],
)
def test_a_repair_reads_any_dictionary(texts: list[list[str | None]]) -> None:
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), pa.array(values))
        for values in texts
    ]
    column = pa.chunked_array(chunks)
    table = pa.table({"a": column, "n": range(len(column))})
    check = "a != 'x' or n < 1"
    result = swap("DSWAP", table, {"swap_fields": ["n"], "checks": [check], "on_broken": "repair"})
    assert result.provider["checks"]["by_check"][check] == {"before": 0, "after": 0, "newly_broken": 0}
    assert result.table.schema == table.schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("birth <= ", "this is no expression"),
        ("birth = death", "this is no expression"),
        ("birth", "character 1: a comparison is expected"),
        ("birth < death and row", "character 19: a comparison is expected"),
        ("birth + 1 < death", "character 1: a field, a number"),
        ("birth < death ** 9 ** 9", "character 9: a field, a number"),
        ("__import__('os').system('true') == 1", "character 1: the only function is field"),
        ("field(death) < 3", "the only function is field"),
        ("field('death', 'birth') < 3", "the only function is field"),
        ("field(name='death') < 3", "the only function is field"),
        ("death.real < 3", "character 1: a field, a number"),
        ("death[0] < 3", "a field, a number"),
        ("death in (1, 2)", "character 10: a field, a number"),
        ("death is birth", "character 10: compare with =="),
        ("death < None", "character 9: a field, a number"),
        ("death < b'x'", "a field, a number"),
        ("death < f'{birth}'", "a field, a number"),
        ("death < 1j", "a field, a number"),
        ("(lambda: 1) < death", "a field, a number"),
        ("1 < 2", "two values are compared"),
        ("death < -True", "only a number can be negative"),
        ("death < '\\x41'", "character 10: this character is not allowed"),
        ("death <\n3", "character 8: this character is not allowed"),
        (" death < 3", "character 1: a check begins with"),
        ("(" * 199 + "1", "this"),
        ("deth < birth", "unknown field 'deth'; did you mean 'death'"),
        ("death < 'x'", "must be an integer"),
        ("death < 2.5", "must be an integer"),
        ("death < " + "9" * 30, "must be an integer from"),
        ("death < 1e999", "must be an integer"),
        ("name < death", r"'name' \(text\) and 'death' \(number\) are of different kinds"),
        ("flag < True", "compare 'flag', a boolean, with == or !="),
        ("list == 3", "cannot be compared"),
    ],
)
def test_faults_are_explained_with_their_place(text: str, message: str) -> None:
    """Nothing of Python but the grammar is accepted, and the error points at the check."""
    table = people(3).append_column("name", pa.array(["a", "b", "c"]))
    table = table.append_column("flag", pa.array([True] * 3)).append_column("list", pa.array([[1]] * 3))
    provider = PROVIDERS["DSWAP"]
    params = provider.params.model_validate(BASE | {"checks": ["birth <= death", text]})
    with pytest.raises(ParameterError, match=message) as raised:
        provider.check(params, table.schema)
    assert raised.value.pointer == "/parameters/checks/1"


# --------------------------------------------------------------------------------- report and repair


@pytest.mark.parametrize(
    ("service", "extra"),
    [
        ("DSWAP", {}),
        ("CDSWAP", {"control_field": "class"}),
        ("DDSWAP", {"control_field": "birth", "block_size": 20}),
    ],
)
def test_a_repair_leaves_no_row_broken_by_an_exchange(service: str, extra: dict[str, Any]) -> None:
    """Without one, events list the rows; with it values are the source's, nearly all rows moved."""
    table = people()
    reported, _ = assert_agree(service, table, BASE | extra)
    repaired, _ = assert_agree(service, table, BASE | extra | {"on_broken": "repair"})
    assert reported is not None
    assert repaired is not None
    before = reported.provider["checks"]
    assert before["by_check"]["birth <= death"]["before"] == 40
    assert before["rows_newly_broken"] == reported.events.counts["check_broken"] > 10
    after = repaired.provider["checks"]
    assert after["rows_newly_broken"] == 0
    assert after["rows_broken_by_exchange"] == before["rows_newly_broken"]
    assert after["rows_drawn_again"] >= after["rows_broken_by_exchange"]
    assert "check_broken" not in repaired.events.counts
    assert sorted(repaired.table["death"].to_pylist()) == sorted(table["death"].to_pylist())
    assert after["rows_restored"] == repaired.events.counts.get("check_restored", 0)
    assert repaired.summary.took_part == 400 - after["rows_restored"] > 360
    assert repaired.summary.unswapped_reasons.get("check", 0) == after["rows_restored"]
    met = table["birth"].to_numpy() <= table["death"].to_numpy()
    assert (table["birth"].to_numpy() <= repaired.table["death"].to_numpy())[met].all()


def test_an_exchange_that_no_partner_saves_is_undone() -> None:
    """Each row has the only value that it may have; locked fields are restored together."""
    table = pa.table({"a": range(30), "b": range(30), "c": range(30), "rest": range(30)})
    parameters = {"swap_fields": ["b", "c"], "checks": ["a == b"], "on_broken": "repair"}
    locked, _ = assert_agree("DSWAP", table, parameters | {"locked": True})
    assert locked is not None
    assert locked.table.equals(table)
    assert locked.summary.took_part == 0
    assert locked.events.counts["check_restored"] == 60
    assert locked.summary.unswapped_reasons == {"check": 30}
    free, _ = assert_agree("DSWAP", table, parameters)
    assert free is not None
    assert free.table["b"].equals(table["b"])
    assert free.summary.took_part_by_field == {"b": 0, "c": 30}


def test_checks_of_two_fields_that_move_on_their_own() -> None:
    """An undone exchange of one field can break a check of another field's exchange, which is undone too."""
    random = np.random.default_rng(8)
    low = random.integers(0, 100, 120)
    table = pa.table({"low": low, "high": low + random.integers(0, 3, 120), "row": range(120)})
    parameters = {"swap_fields": ["low", "high"], "checks": ["low <= high"], "on_broken": "repair"}
    result, _ = assert_agree("DSWAP", table, parameters)
    assert result is not None
    assert broken("low <= high", result.table) == []
    assert result.provider["checks"]["rows_restored"] > 0


def test_a_replacement_that_breaks_a_check_is_reported() -> None:
    """No exchange caused it, so that no repair can help: the event and the figure say so."""
    table = pa.table({"class": [1, 1, 2], "low": [1, 2, 3], "high": [5, 6, 7]})
    parameters = {
        "swap_fields": ["high"],
        "control_field": "class",
        "checks": ["low <= high"],
        "on_broken": "repair",
        "suppression": {"policy": "replace", "replacement": {"high": 0}},
    }
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    assert result.provider["checks"]["rows_newly_broken"] == 1
    assert [(e.code, e.row) for e in result.events.listed if e.code == "check_broken"] == [
        ("check_broken", 2)
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"risk": {"key_fields": ["class"]}, "rate": 0.4},
        {"mechanism": "permutation", "rate": 0.4},
        {"household": "class"},
    ],
)
def test_every_selection_and_mechanism_is_reported(change: dict[str, Any]) -> None:
    """Checks change no byte of the run; a repair of it is refused."""
    table = people()
    plain = swap("DSWAP", table, {"swap_fields": ["death"], **change})
    checked = swap("DSWAP", table, BASE | change)
    assert checked.table.equals(plain.table)
    after = (checked.table["birth"].to_numpy() > checked.table["death"].to_numpy()).sum()
    assert checked.provider["checks"]["by_check"]["birth <= death"]["after"] == after
    with pytest.raises(ValidationError, match="random pairs of single rows"):
        PROVIDERS["DSWAP"].params.model_validate(BASE | change | {"on_broken": "repair"})


def test_limits_and_stored_form() -> None:
    """A repair needs checks; their number and length are bounded; runs without them are stored as before."""
    model = PROVIDERS["DSWAP"].params
    with pytest.raises(ValidationError, match="give at least one"):
        model.model_validate({"swap_fields": ["death"], "on_broken": "repair"})
    with pytest.raises(ValidationError, match="at most 20 items"):
        model.model_validate(BASE | {"checks": ["a < 1"] * 21})
    with pytest.raises(ValidationError, match="at most 200 characters"):
        model.model_validate(BASE | {"checks": ["a < " + "1" * 197]})
    plain = model.model_validate({"swap_fields": ["death"]}).model_dump(mode="json")
    assert {"checks", "on_broken"}.isdisjoint(plain)
    stored = model.model_validate(BASE).model_dump(mode="json")
    assert (stored["checks"], stored["on_broken"]) == (["birth <= death"], "report")


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_table_and_one_row(rows: int) -> None:
    result, _ = assert_agree("DSWAP", people(rows), BASE | {"on_broken": "repair"})
    assert result is not None
    assert result.table.num_rows == rows


def test_a_run_with_checks_reads_their_fields_and_is_not_cut() -> None:
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate(BASE), people().schema)
    assert not provider.scaling.can_cut(params)
    assert set(provider.scaling.reads(params, people().schema)) == {"birth", "death"}
    with pytest.raises(ParameterError, match="does not run out of core") as raised:
        swap_out_of_core("DSWAP", people(), BASE, 10**6, 100)
    assert raised.value.pointer == "/parameters/checks"
