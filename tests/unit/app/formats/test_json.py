"""JSON: inferred types, declared types, and the structure of a document."""

import io
import re
import sys
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from app.formats.errors import FormatError
from app.formats.json_input import declared_types, table_from_columns, table_from_rows
from app.formats.json_output import fields_of, json_with_rows
from app.formats.media_types import JSON
from providers.tables.type_names import type_name
from tests.whole_tables import read_json, read_table, write_table

MANY = [f"a{number}" for number in range(2000)]


def body(media_type: str, table: pa.Table) -> bytes:
    return b"".join(write_table(media_type, table))


def pieces_of(table: pa.Table, before: bytes = b"", after: bytes = b"") -> list[bytes]:
    return list(json_with_rows(before, table.schema, table.to_batches(), after))


def rows_of(table: pa.Table) -> bytes:
    return b"".join(pieces_of(table))


def column(values: list[Any], type_text: str | None = None) -> pa.ChunkedArray:
    rows = [{"field": value} for value in values]
    return table_from_rows(rows, None if type_text is None else {"field": type_text}).column("field")


# --------------------------------------------------------------------------------------------------- inferred


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([None, None], "null"),
        ([True, None], "bool"),
        ([1, None, -(2**63)], "int64"),
        ([1, 2**64 - 1], "uint64"),
        ([1, 2.5], "float64"),
        ([2**53, 2.5], "float64"),
        (["2024-02-29", None], "string"),
        ([[1, None], None, []], "list<int64>"),
        ([[1], [2.5]], "list<float64>"),
        ([{"b": 1}, {"a": "x"}], "struct<b: int64, a: string>"),
        ([[{"a": [None]}]], "list<struct<a: list<null>>>"),
        ([{}], "struct<>"),
    ],
)
def test_types_are_inferred_from_json_values(values: list[Any], name: str) -> None:
    assert type_name(column(values).type) == name


@pytest.mark.parametrize(
    ("values", "pointer", "words"),
    [
        ([1, None, "x"], "/rows/2/field", "(counting from 0): text where the rows before have an integer"),
        ([True, 1], "/rows/1/field", "an integer where the rows before have a boolean"),
        ([1, 2.5, True], "/rows/2/field", "a boolean where"),
        (["x", {}], "/rows/1/field", "an object where the rows before have text"),
        ([2.5, 2**53 + 1], "/rows/1/field", "beyond 2**53"),
        ([1, 2**64], "/rows/1/field", "decimal(38,0)"),
        ([-1, 2**63], "/rows/1/field", "does not fit int64"),
        ([-(2**63) - 1], "/rows/0/field", "does not fit int64"),
        ([[1], None, [2, "x"]], "/rows/2/field/1", "row 2 (counting from 0)"),
        ([{"a/b": 1}, {"a/b": "x"}], "/rows/1/field/a~1b", "row 1 (counting from 0)"),
        ([object()], "/rows/0/field", "not a JSON value"),
    ],
)  # fmt: skip
def test_mixed_types_are_refused_at_the_first_row_at_fault(
    values: list[Any], pointer: str, words: str
) -> None:
    with pytest.raises(FormatError) as caught:
        column(values)
    assert caught.value.pointer == pointer
    assert words in caught.value.message


def test_fields_keep_the_order_of_first_appearance_and_a_missing_key_is_a_null() -> None:
    table = table_from_rows([{"b": 1}, {"a": 2, "b": 3}, {"c": 4}])
    assert table.column_names == ["b", "a", "c"]
    assert table.to_pydict() == {"b": [1, 3, None], "a": [None, 2, None], "c": [None, None, 4]}
    same_number_of_keys = table_from_rows([{"a": 1, "b": 2}, {"b": 3, "a": 4}, {"a": 5, "c": 6}])
    assert same_number_of_keys.to_pydict() == {"a": [1, 4, 5], "b": [2, 3, None], "c": [None, None, 6]}


# --------------------------------------------------------------------------------------------------- declared


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("int8", [-128, 127, None]),
        ("uint64", [2**64 - 1]),
        ("float64", [2**60, 1.5, None]),
        ("float32", [0.1, 2**24]),
        ("float16", [65504]),
        ("bool", [True, None]),
        ("string", ["", "Zürich \U0001f600"]),
        ("null", [None]),
        ("duration[ms]", [5, None]),
        ("list<int8>", [[1, None], None]),
        ("map<string, int64>", [[["a", 1], ["b", None]], []]),
        ("struct<a: int8, b: string>", [{"a": 1}, {"b": "x", "a": None}, None]),
    ],
)
def test_declared_types_take_what_fits(name: str, values: list[Any]) -> None:
    found = column(values, name)
    assert type_name(found.type) == name
    assert len(found) == len(values)


def test_declared_types_take_their_text_forms() -> None:
    assert column(["12.5", 3, "-1e-2"], "decimal(5,2)").to_pylist() == [Decimal("12.50"), 3, Decimal("-0.01")]
    assert column(["9" * 60], "decimal(60,0)").to_pylist() == [Decimal("9" * 60)]
    assert column(["NaN", "Infinity", "-Infinity", 1], "float64").to_pylist()[1:] == [
        float("inf"),
        float("-inf"),
        1,
    ]
    assert column(["AAH/", ""], "binary").to_pylist() == [b"\x00\x01\xff", b""]
    assert column(["2024-02-29", "-0001-01-01", "+12345-06-07"], "date").cast(pa.int32()).to_pylist() == [
        19782,
        -719893,
        3_789_548,
    ]
    assert column(["23:59:59", "00:00:00.25"], "time[ms]").cast(pa.int32()).to_pylist() == [86_399_000, 250]
    instants = ["2024-02-29T13:00:00+01:00", "2024-02-29 12:00:00.000Z", "+2024-02-29T06:30:00-05:30"]
    assert set(column(instants, "timestamp[ms, UTC]").cast(pa.int64()).to_pylist()) == {1_709_208_000_000}
    assert column(["1677-09-21T00:12:43.145224192"], "timestamp[ns]").cast(pa.int64())[0].as_py() == -(2**63)


REFUSED: list[tuple[str, list[Any], str]] = [
    ("int64", ["31"], "text where int64 is declared; write whole numbers as JSON numbers"),
    ("int64", [31.0], "a number with a fraction or exponent where int64 is declared"),
    ("int64", [True], "a boolean where int64"),
    ("int8", [1, 128], "int8 holds -(2**7) to 2**7 - 1"),
    ("uint8", [-1], "uint8 holds 0 to 2**8 - 1"),
    ("int64", [2**70], "int64 holds"),
    ("float64", [2**53 + 1], "beyond what float64 holds exactly"),
    ("float64", [10**400], "beyond what float64 holds exactly"),
    ("float64", ["nan"], '"NaN", "Infinity", "-Infinity"'),
    ("float64", [True], "a boolean where float64"),
    ("float32", [1e39], "beyond the range of float32"),
    ("float32", [2**24 + 1], "beyond what float32 holds exactly"),
    ("decimal(5,2)", [1.5], "to keep its digits"),
    ("decimal(5,2)", ["1.234"], "at most 5 digits, 2 of them after the point"),
    ("decimal(5,2)", ["1,5"], "at most 5 digits"),
    ("decimal(5,2)", [1000], "at most 5 digits"),
    ("decimal(5,2)", ["1e999999"], "at most 5 digits"),
    (
        "decimal(38,0)",
        ["355311234567891234567891234567891234567"],
        "at most 38 digits",
    ),  # Arrow takes it modulo 2**128
    ("decimal(38,2)", ["1" * 300], "at most 38 digits"),
    ("decimal(76,0)", ["8" * 300], "at most 76 digits"),
    ("string", [1], "an integer where string is declared"),
    ("string", ["\ud800"], "not text"),
    ("bool", ["true"], "text where bool"),
    ("null", [0], "an integer where null"),
    ("date", ["2024-02-30"], "2024-02-29"),
    ("date", ["29.02.2024"], "2024-02-29"),
    ("date", ["+10000-02-30"], "2024-02-29"),
    ("date", ["+9999999-01-01"], "in range"),
    ("time", ["24:00:00"], "12:30:00.250000"),
    ("time[s]", ["12:00:00.5"], "12:30:00"),
    ("timestamp", ["2024-02-29T12:00:00Z"], "without a zone"),
    ("timestamp", ["2024-02-29"], "2024-02-29T12:30:00.250000, without a zone"),
    ("timestamp[us, UTC]", ["2024-02-29T12:00:00"], "Z or with an offset such as +01:00"),
    ("timestamp[us, UTC]", ["2024-02-29T12:00:00+01:75"], "in range"),
    ("timestamp[us, UTC]", ["+2024-02-29T25:00:00Z"], "in range"),
    ("timestamp[ns]", ["2500-01-01T00:00:00"], "in range"),
    ("timestamp[ms]", ["2024-02-29T12:00:00.1234"], "12:30:00.250"),
    ("duration[us]", [1.5], "a whole number of us"),
    ("duration[us]", [2**63], "out of range"),
    ("binary", ["?"], "base64"),
    ("fixed_binary(2)", ["AAAA"], "base64 of 2 bytes"),
    ("list<int8>", [1], "write it as an array"),
    ("struct<age: int8>", [{"agee": 1}], "unknown member 'agee'; did you mean 'age'?"),
    ("struct<age: int8>", [[1]], "write it as an object"),
    ("map<string, int8>", [{"a": 1}], "[key, value] pairs"),
    ("map<string, int8>", [[["a"]]], "[key, value] pairs"),
    ("map<string, int8>", [[[None, 1]]], "no key null"),
    ("interval", [[1, 2, 3]], "cannot carry an interval"),
]


@pytest.mark.parametrize(("name", "values", "words"), REFUSED)
def test_declared_types_refuse_what_does_not_fit(name: str, values: list[Any], words: str) -> None:
    with pytest.raises(FormatError) as caught:
        column([None, *values], name)
    row = len(values) if len(values) > 1 else 1
    assert words in caught.value.message
    if name != "interval":
        assert f"row {row} (counting from 0)" in caught.value.message
        assert caught.value.pointer.startswith(f"/rows/{row}/field")


def test_the_types_stated_for_fields_are_checked_themselves() -> None:
    rows = [{"age": 1}]
    cases: list[tuple[Any, str, str]] = [
        ({"agee": "int64"}, "/fields/agee", "unknown field 'agee'; did you mean 'age'?"),
        ({"age": "integer"}, "/fields/age", "did you mean 'int64'?"),
        ({"age": 1}, "/fields/age", "by its name"),
        ([{"name": "age"}], "/fields/0", "a list of objects with name and type"),
        ([{"name": "age", "type": "integer"}], "/fields/0/type", "did you mean 'int64'?"),
        ([{"name": "age", "type": "int8"}] * 2, "/fields/1/name", "listed twice"),
        ("int64", "/fields", "must be an object"),
    ]
    for fields, pointer, words in cases:
        with pytest.raises(FormatError) as caught:
            table_from_rows(rows, fields)
        assert (caught.value.pointer, words in caught.value.message) == (pointer, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("decimal(5,-999999999)", "-38 to 38"),  # Arrow reads beyond its tables for it, and the process ends
        ("decimal(5,39)", "-38 to 38"),
        ("decimal(39,77)", "-76 to 76"),
        ("list<" * 33 + "int8" + ">" * 33, "more than 32 levels deep"),
        ("struct<a: int8, a: int8>", "two members of one name"),
        ("struct<a: list<decimal(5,99)>>", "-38 to 38"),
        (r'struct<"\ud800": int8>', "half of a surrogate pair"),
        (r'timestamp[us, "\ud800"]', "half of a surrogate pair"),
    ],
)
def test_a_type_that_no_table_can_have_is_refused_where_it_is_stated(name: str, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        table_from_rows([{"field": None}], {"field": name})
    assert (caught.value.pointer, words in caught.value.message) == ("/fields/field", True)


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        ([{"a": None}] * 2000, {"a": "fixed_binary(999999)"}),
        ([{"a": [None] * 2000}], {"a": "list<fixed_binary(999999)>"}),
        ([dict.fromkeys(MANY)], dict.fromkeys(MANY, "fixed_binary(999999)")),
        ([{"a": None}] * 200_000, {"a": f"struct<{', '.join(f'a{n}: int8' for n in range(5000))}>"}),
        ([{"a": {f"x{number}": 1}} for number in range(20_000)], None),
    ],
    ids=["nulls", "elements", "fields", "members", "objects"],
)
def test_a_short_body_cannot_ask_for_much_memory(rows: Any, fields: dict[str, str] | None) -> None:
    with pytest.raises(FormatError, match=r"would take|different members"):
        table_from_rows(rows, fields)


@pytest.mark.parametrize("fields", [None, {"a": "float64"}, {"a": "float32"}])
@pytest.mark.parametrize("other", [b"1.5", b"7", b"null"])
def test_a_number_beyond_float64_is_no_infinity(fields: dict[str, str] | None, other: bytes) -> None:
    with pytest.raises(FormatError, match="the number is beyond float64") as caught:
        read_json(b'{"rows":[{"a":' + other + b'},{"a":-1e400}]}', fields)
    assert caught.value.pointer == "/rows/1/a"


def test_numbers_keep_their_digits_however_long_they_are() -> None:
    columns = b'{"i":[12345678901234567890],"f":[0.000012345678901234567],"d":[98765432109876543210]}'
    table = read_json(b'{"columns":' + columns + b"}", {"d": "decimal(20,0)"})
    assert table.to_pydict() == {
        "i": [12345678901234567890],
        "f": [0.000012345678901234567],
        "d": [Decimal("98765432109876543210")],
    }
    assert str(table.schema.field("i").type) == "uint64"


def test_the_shape_of_rows_and_columns_is_checked() -> None:
    cases: list[tuple[Any, str, str]] = [
        (lambda: table_from_rows([{"a": 1}, [1]]), "/rows/1", "must be an object"),  # type: ignore[list-item]
        (lambda: table_from_rows({"a": 1}), "/rows", "must be a list"),  # type: ignore[arg-type]
        (lambda: table_from_rows([{}, {}]), "/rows", "have no fields"),
        (lambda: table_from_rows([{"": 1}]), "/rows/0/", "empty name"),
        (lambda: table_from_columns({"a": [1], "b": []}), "/columns/b", "has 0 values where 'a' has 1"),
        (lambda: table_from_columns({"a": 1}), "/columns/a", "must be a list"),  # type: ignore[dict-item]
        (lambda: table_from_columns([1]), "/columns", "must be an object"),  # type: ignore[arg-type]
        (lambda: table_from_columns({"a": [1, "x"]}), "/columns/a/1", "row 1 (counting from 0)"),
    ]
    for read, pointer, words in cases:
        with pytest.raises(FormatError) as caught:
            read()
        assert (caught.value.pointer, words in caught.value.message) == (pointer, True)


def test_no_rows_take_their_fields_from_the_stated_types() -> None:
    fields = {"b": "int8", "a": "list<date>"}
    for table in (table_from_rows([], fields), table_from_columns({}, fields)):
        assert [(field.name, type_name(field.type)) for field in table.schema] == list(fields.items())
        assert table.num_rows == 0
    assert table_from_rows([]).num_columns == 0


# ----------------------------------------------------------------------------------------------- the document


def test_a_json_document_has_rows_or_columns_and_may_state_types() -> None:
    assert read_table(JSON, b'{"rows":[{"a":1}],"fields":{"a":"int8"}}').schema.field("a").type == pa.int8()
    assert read_table(JSON, b'{"columns":{"a":["1"]}}', {"a": "decimal(3,0)"}).to_pylist() == [{"a": 1}]
    assert read_table("Application/JSON; charset=utf-8", io.BytesIO(b'{"rows":[]}')).num_rows == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"rows":[{"a":1}', "not valid JSON: EOF while parsing a list at line 1 column 16"),
        (b'{"rows":[{"a":NaN}]}', "not valid JSON"),
        (b'{"rows":[{"a":"\\ud800"}]}', "not valid JSON"),
        (b'{"rows":' + b"[" * 2000, "not valid JSON"),
        (b'{"rows":[{"a":' + b"[" * 100 + b"]" * 100 + b"}]}", "flatten it"),
        (b'{"rows":[{"a":' + b"[" * 300 + b"]" * 300 + b"}]}", "recursion limit exceeded"),
        (b'{"rows":[{"a":' + b"9" * 5000 + b"}]}", "not valid JSON"),
    ],
)
def test_a_wrong_json_document_is_answered_with_what_would_be_right(text: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=re.escape(words)):
        read_table(JSON, text)


def test_integers_of_any_length_keep_their_digits() -> None:
    text = b'{"rows":[{"a":18446744073709551617,"b":"0000000000000000000000","c":1.5}]}'
    assert read_table(JSON, text, {"a": "decimal(20,0)"}).to_pylist() == [
        {"a": 2**64 + 1, "b": "0" * 22, "c": 1.5}
    ]
    with pytest.raises(FormatError, match="does not fit uint64"):
        read_table(JSON, b'{"rows":[{"a":18446744073709551617}]}')


def test_json_is_written_as_the_contract_says() -> None:
    table = pa.table(
        {
            "n": pa.array([2**63 - 1, None], pa.int64()),
            "x": pa.array([float("nan"), float("-inf")]),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "day": pa.array([0, 10**7], pa.date32()),
            "utc": pa.array([0, None], pa.timestamp("ms", "UTC")),
            "dublin": pa.array([1_700_000_000, 1_720_000_000], pa.timestamp("s", "Europe/Dublin")),
            "old": pa.array([-2_500_000_000, None], pa.timestamp("s", "Europe/Dublin")),
            "bytes": pa.array([b"\x00\x01\xff", b""]),
            "took": pa.array([90, None], pa.duration("s")),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
        }
    )
    assert orjson.loads(body(JSON, table))["rows"] == orjson.loads(rows_of(table)) == [
        {
            "n": 2**63 - 1,
            "x": "NaN",
            "d": "1.50",
            "day": "1970-01-01",
            "utc": "1970-01-01T00:00:00.000Z",
            "dublin": "2023-11-14T22:13:20+00:00",
            "old": "1890-10-11T19:33:20Z",  # Dublin was 25 minutes and 21 seconds behind
            "bytes": "AAH/",
            "took": 90,
            "map": [["a", 1]],
        },
        {
            "n": None,
            "x": "-Infinity",
            "d": None,
            "day": "+29349-01-26",
            "utc": None,
            "dublin": "2024-07-03T10:46:40+01:00",
            "old": None,
            "bytes": "",
            "took": None,
            "map": None,
        },
    ]  # fmt: skip


def test_json_comes_in_pieces_of_rows() -> None:
    table = pa.table({"a": list(range(20_000))})
    pieces = list(write_table(JSON, table))
    assert len(pieces) == 3
    assert orjson.loads(b"".join(pieces))["rows"][-1] == {"a": 19_999}
    assert body(JSON, table.slice(0, 0)) == b'{"fields":[{"name":"a","type":"int64"}],"rows":[]}'


def test_rows_come_in_pieces_within_a_document() -> None:
    table = pa.table({"a": list(range(20_000))})
    pieces = pieces_of(table, b'{"before":1,"rows":', b',"after":2}')
    assert len(pieces) == 3
    assert orjson.loads(b"".join(pieces)) == {"before": 1, "rows": table.to_pylist(), "after": 2}
    assert pieces_of(table.slice(0, 0)) == [b"[]"]
    assert pieces_of(table.slice(1, 2)) == [b'[{"a":1},{"a":2}]']
    with pytest.raises(FormatError, match="intervals"):
        pieces_of(pa.table({"i": pa.array([None], pa.month_day_nano_interval())}))


def test_text_is_escaped_where_json_needs_it() -> None:
    plain = ["", "Zürich \U0001f600", None, "a/b\x7f"]
    for escaped in ('"', "\\", "\n", "\x00", "\x1f", 'say "no", twice'):
        rows = [{"a,b": value, '"': 1} for value in [*plain, escaped]]
        written = rows_of(table_from_rows(rows))
        assert written == orjson.dumps(rows)


def test_numbers_are_written_as_python_writes_them() -> None:
    floats = [1.0, -0.0, 1e22, 1e-7, 0.1, 5e-324, 1.7976931348623157e308, 123456789.0]
    rows = [{"x": value, "n": at, "b": at % 2 == 0} for at, value in enumerate(floats)]
    assert rows_of(table_from_rows(rows)) == orjson.dumps(rows)
    narrow = pa.table({"x": pa.array([0.1, None, float("inf")], pa.float32())})
    assert rows_of(narrow) == b'[{"x":0.10000000149011612},{"x":null},{"x":"Infinity"}]'


# ------------------------------------------------------------------------------- objects that lack members

ODD = [
    {"n": 1},
    {"s": "x", "deep": {"a": [1, None]}},
    None,
    {"n": None},
    {},
    {"deep": {"b": {"c": 2.5}}},
    {"list": [{"p": 1}, {"q": "y"}]},
    *({f"other{number}": number} for number in range(20)),
]


def test_objects_that_lack_most_members_are_read_as_if_each_had_all() -> None:
    """A member that an object lacks is null, at any depth, with the same types."""
    names = dict.fromkeys(name for value in ODD if value is not None for name in value)
    filled = [None if value is None else {name: value.get(name) for name in names} for value in ODD]
    lacking, full = column(ODD), column(filled)
    assert lacking.type == full.type
    assert lacking.equals(full)
    assert lacking.to_pylist()[6]["list"] == [{"p": 1, "q": None}, {"p": None, "q": "y"}]
    stated = column(ODD, type_name(full.type))
    assert stated.equals(full)


@pytest.mark.parametrize("fault", [{"other19": "text"}, {"deep": {"a": [1, "x"]}}])
def test_a_fault_is_pointed_to_where_most_objects_lack_the_member(fault: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        column([*ODD, fault])
    where = "/other19" if "other19" in fault else "/deep/a/1"
    assert caught.value.pointer == f"/rows/{len(ODD)}/field{where}"
    assert f"row {len(ODD)} " in caught.value.message


def test_what_is_read_does_not_grow_as_the_square_of_ever_other_members() -> None:
    """Measured in calls of Python functions, which a busy machine does not change."""

    def calls(count: int) -> int:
        seen = 0

        def see(frame: Any, event: str, argument: Any) -> None:
            nonlocal seen
            seen += event in ("call", "c_call")

        rows = [{"field": {f"member{number}": number}} for number in range(count)]
        sys.setprofile(see)
        try:
            table_from_rows(rows)
        finally:
            sys.setprofile(None)
        return seen

    assert calls(400) < 3 * calls(200)


@pytest.mark.parametrize(
    "name", ["timestamp[us, Europe/Dubln]", "struct<at: list<timestamp[ns, Europe/Dubln]>>"]
)
def test_a_mistyped_time_zone_is_refused(name: str) -> None:
    """It was accepted, and its moments were returned in UTC."""
    with pytest.raises(
        FormatError, match=r"unknown time zone 'Europe/Dubln'.* mean 'Europe/Dublin'"
    ) as caught:
        declared_types({"at": name})
    assert caught.value.pointer == "/fields/at"


@pytest.mark.parametrize("zone", ["Europe/Dublin", "UTC", "Z", "+05:30", "Mars/Olympus", 'odd "zone"'])
def test_the_zone_of_a_file_is_read_back_as_the_response_names_it(zone: str) -> None:
    """A zone that is not known here is in quotes, and was none that a request names by mistake."""
    field = pa.field("at", pa.timestamp("us", zone))
    assert declared_types(fields_of(pa.schema([field]))) == {"at": field.type}
