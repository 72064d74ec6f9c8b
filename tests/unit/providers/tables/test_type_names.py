"""Names of types: parsing, and the messages for wrong names."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from providers.tables.type_names import canonical_type, parse_type, type_name
from tests.property.arrow_tables import types

NAMED = [
    ("null", pa.null()),
    ("bool", pa.bool_()),
    ("int8", pa.int8()),
    ("uint64", pa.uint64()),
    ("float16", pa.float16()),
    ("float64", pa.float64()),
    ("decimal(10,2)", pa.decimal128(10, 2)),
    ("decimal(38,-3)", pa.decimal128(38, -3)),
    ("decimal(39,0)", pa.decimal256(39, 0)),
    ("string", pa.string()),
    ("binary", pa.binary()),
    ("fixed_binary(16)", pa.binary(16)),
    ("date", pa.date32()),
    ("time", pa.time64("us")),
    ("time[s]", pa.time32("s")),
    ("time[ns]", pa.time64("ns")),
    ("timestamp", pa.timestamp("us")),
    ("timestamp[ms]", pa.timestamp("ms")),
    ("timestamp[us, Europe/Dublin]", pa.timestamp("us", "Europe/Dublin")),
    ("timestamp[ns, +05:30]", pa.timestamp("ns", "+05:30")),
    ('timestamp[us, "Mars/Olympus"]', pa.timestamp("us", "Mars/Olympus")),
    ('timestamp[s, "odd ]zone"]', pa.timestamp("s", "odd ]zone")),
    ("duration[us]", pa.duration("us")),
    ("interval", pa.month_day_nano_interval()),
    ("list<list<int8>>", pa.list_(pa.list_(pa.int8()))),
    ("struct<>", pa.struct([])),
    ("struct<age: int64, city: string>", pa.struct([("age", pa.int64()), ("city", pa.string())])),
    ('struct<"a b": int8, "\\"\\n": bool>', pa.struct({"a b": pa.int8(), '"\n': pa.bool_()})),
    ("map<string, list<float64>>", pa.map_(pa.string(), pa.list_(pa.float64()))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data_type"), NAMED)
def test_a_name_and_its_type(name: str, data_type: pa.DataType) -> None:
    assert type_name(data_type) == name
    assert parse_type(name) == data_type


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "int8"),
        (pa.date64(), "date"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal256(5, 2), "decimal(5,2)"),
        (pa.large_list(pa.string_view()), "list<string>"),
        (pa.list_(pa.int8(), 3), "list<int8>"),
        (pa.large_list_view(pa.int8()), "list<int8>"),
        (pa.uuid(), "fixed_binary(16)"),
        (pa.struct([pa.field("a", pa.date64(), nullable=False)]), "struct<a: date>"),
        (pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.large_string()), "map<string, string>"),
    ],
)
def test_an_encoding_reads_as_the_type_of_its_values(encoded: pa.DataType, name: str) -> None:
    assert type_name(encoded) == name
    assert parse_type(name) == canonical_type(encoded)


def test_units_can_be_left_out_at_every_depth() -> None:
    data_type = pa.struct([("a", pa.list_(pa.timestamp("ms", "UTC"))), ("b", pa.duration("s"))])
    assert type_name(data_type, units=False) == "struct<a: list<timestamp[UTC]>, b: duration>"
    assert type_name(pa.time32("s"), units=False) == type_name(pa.time64("ns"), units=False) == "time"


@given(types())
def test_every_type_reads_back_from_its_name(data_type: pa.DataType) -> None:
    assert parse_type(type_name(data_type)) == canonical_type(data_type)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("integer", "did you mean 'int64'?"),
        ("Double", "did you mean 'float64'?"),
        ("strng", "did you mean 'string'?"),
        ("DATE", "did you mean 'date'?"),
        ("datetime", "did you mean 'timestamp'?"),
        ("large_string", "did you mean 'string'?"),
        ("list<integer>", "did you mean 'int64'?"),
        ("zzzzzzzz", "known are null, bool, int8"),
        ("", "known are null, bool, int8"),
        ("decimal", "write it as 'decimal(10,2)'"),
        ("decimal(77,0)", "1 to 76 digits"),
        ("decimal(10,)", "write it as 'decimal(10,2)'"),
        ("fixed_binary(-1)", "number of bytes"),
        ("timestamp[minutes]", "s, ms, us or ns"),
        ("timestamp[us, tz=UTC]", "write the zone alone"),
        ("timestamp[us, ]", "odd names in double quotes"),
        ('timestamp[us, "x]', "quote it as a JSON string"),
        ("duration", "duration[us]"),
        ("list", "write it as 'list<string>'"),
        ("struct<a>", "struct<name: string, age: int64>"),
        ("map<string>", "map<string, int64>"),
        ("int64 null", "nothing should follow"),
        ("list<" * 70 + "int8" + ">" * 70, "flatten it"),
    ],
)
def test_a_wrong_name_is_answered_with_what_would_be_right(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match="type") as caught:
        parse_type(name)
    assert hint in str(caught.value)


class CountedText(str):
    """Text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, part: Any) -> str:
        found = str.__getitem__(self, part)
        CountedText.copied += len(found)
        return found


def test_a_long_name_is_read_once() -> None:
    fields = 2000
    name = CountedText(
        f"struct<{', '.join(f'f{index}: list<timestamp[us, UTC]>' for index in range(fields))}>"
    )
    CountedText.copied = 0
    assert parse_type(name) == pa.struct(
        [(f"f{index}", pa.list_(pa.timestamp("us", "UTC"))) for index in range(fields)]
    )
    assert CountedText.copied <= 2 * len(name)


def test_a_union_has_no_name() -> None:
    union = pa.sparse_union([pa.field("a", pa.int8())])
    with pytest.raises(ValueError, match="is not supported; known are null"):
        type_name(union)
