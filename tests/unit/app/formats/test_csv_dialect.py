"""CSV dialects: delimiters, null tokens, encodings, and inference block by block."""

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from app.formats import csv_input as reading
from app.formats.csv_dialect import ENCODINGS, CsvDialect, known_encoding
from app.formats.errors import FormatError
from app.formats.media_types import CSV
from providers.tables.digest import table_digest
from tests.whole_tables import read_table


def read(text: str | bytes, fields: dict[str, str] | None = None, **dialect: Any) -> pa.Table:
    data = text if isinstance(text, bytes) else text.encode(dialect.get("encoding", "utf-8"))
    return read_table(CSV, io.BytesIO(data), fields, CsvDialect(**dialect))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(reading, "_BYTES_A_FIELD", 1)


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " ", ":"])
def test_any_delimiter_stands_between_cells(delimiter: str) -> None:
    text = f'a{delimiter}"b{delimiter}c"\n1{delimiter}"x{delimiter}y,z"\n'
    assert read(text, delimiter=delimiter).to_pydict() == {"a": [1], f"b{delimiter}c": [f"x{delimiter}y,z"]}


@pytest.mark.usefixtures("small_blocks")
def test_tokens_are_null_unless_they_are_quoted_in_a_field_of_text() -> None:
    rows = 'NA,NA,NA,NA\n"NA","NA",-,"NA"\n1,x,"",2024-02-29\n' + "2,y,true,2024-03-01\n" * 40
    table = read("n,s,b,d\n" + rows, {"d": "date"}, null_tokens=("NA", "-"))
    assert [field.type for field in table.schema] == [pa.int64(), pa.string(), pa.bool_(), pa.date32()]
    assert table.column("s").to_pylist()[:3] == [None, "NA", "x"]
    for name in ("n", "b"):
        assert table.column(name).to_pylist()[:2] == [None, None]
    assert table.column("d").null_count == 2


def test_a_token_that_is_not_named_is_a_value() -> None:
    assert read("a\nNA\n1\n").column("a").to_pylist() == ["NA", "1"]
    assert read("a\nNA\n1\n", null_tokens=("NA",)).column("a").to_pylist() == [None, 1]


SOME_TEXT = {
    "big5": "台灣", "euc-kr": "서울", "gb18030": "北京", "shift_jis": "東京", "utf-16": "Łódź 😀",
    "utf-8": "Łódź 😀", "windows-1251": "Москва", "iso-8859-2": "Łódź", "windows-1250": "Łódź",
}  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_is_read(encoding: str) -> None:
    word = SOME_TEXT.get(encoding, "Zoë née")
    rows = 20_000  # more than is decoded at a time
    table = read(f"{word},b\n" + f"{word},1\n" * rows, encoding=encoding)
    assert table.column_names == [word, "b"]
    assert table.num_rows == rows
    assert table.column(word).unique().to_pylist() == [word]


def test_what_is_not_of_the_encoding_is_reported() -> None:
    for text in ("ü,b\n1,2\n".encode("iso-8859-1"), b"a,b\n" + b"1,2\n" * 30_000 + b"\x81\xff,2\n"):
        with pytest.raises(FormatError, match="is not in shift_jis; state the encoding"):
            read(text, encoding="shift_jis")


@pytest.mark.parametrize("encoding", ["windows-1252", "iso-8859-1", "gb18030"])
def test_utf_8_is_not_read_as_another_encoding(encoding: str) -> None:
    """The first field would be named ï»¿a, and letters beyond ASCII become others."""
    with pytest.raises(FormatError, match="begins with the byte order mark of UTF-8"):
        read("\ufeffa,b\n1,é\n".encode(), encoding=encoding)


@pytest.mark.parametrize("encoding", ["iso-8859-1", "iso-8859-2", "iso-8859-15"])
def test_characters_of_windows_do_not_become_control_characters(encoding: str) -> None:
    with pytest.raises(FormatError, match="may be in windows-1252; state the encoding"):
        read("a,b\n1,5 €\n".encode("windows-1252"), encoding=encoding)


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTF8", "utf-8"), ("us-ascii", "utf-8"), ("Latin-1", "iso-8859-1"), ("cp1252", "windows-1252"),
     ("utf-7", None), ("base64", None), ("no such", None)],
)  # fmt: skip
def test_encodings_go_by_their_aliases(name: str, known: str | None) -> None:
    assert known_encoding(name) == known


@pytest.mark.parametrize(
    ("first", "then", "found"),
    [
        (["1"], ["2.5"], "double"),
        (["1"], ["x"], "string"),
        (["", ""], ["1"], "int64"),
        (["1"], ["18446744073709551615"], "uint64"),
        (["-1"], ["18446744073709551615"], "string"),
        (["9007199254740993"], ["0.5"], "string"),
        (["0.5"], ["9007199254740993"], "string"),
        (["NaN"], ["Infinity"], "string"),
        (["NaN"], ["1"], "double"),
        (["1e999"], ["1.5"], "string"),
        (["true"], ["1"], "string"),
        (["true"], ["false"], "bool"),
        (["007"], ["1"], "string"),
        (['""'], [""], "string"),
        (['""'], ["1"], "int64"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_a_type_is_that_of_all_blocks_whatever_their_borders(
    first: list[str], then: list[str], found: str
) -> None:
    for times in (1, 30, 100):  # in one block with the rest, and in many blocks
        for cells in (first * times + then, first * times + then * times):
            text = "a,b\n" + "".join(f"{cell},x\n" for cell in cells)
            assert str(read(text).schema.field("a").type) == found, (times, cells[-1])


@pytest.mark.usefixtures("small_blocks")
def test_a_row_longer_than_all_blocks_before_loses_no_row() -> None:
    text = "a,b\n" + "1,x\n" * 100 + f"2,{'y' * 700}\n" + "3,z\n" * 100
    table = read(text)
    assert table.column("a").to_pylist() == [1] * 100 + [2] + [3] * 100
    with pytest.raises(FormatError, match=r"row 150 \(counting from 0\): int8"):
        read(text.replace("3,z\n" * 51, "3,z\n" * 49 + "300,z\n" + "3,z\n"), {"a": "int8"})


def test_a_table_of_many_fields_is_the_same_as_one_of_few() -> None:
    names = [f"f{number}" for number in range(300)]
    cells = ["1", "x", "2.5", "true", "", '""'] * 50
    wide = read(",".join(names) + "\n" + (",".join(cells) + "\n") * 3)
    for number in (0, 1, 2, 3, 4, 5, 299):
        narrow = read(f"{names[number]},z\n" + f"{cells[number]},0\n" * 3).select([0])
        assert table_digest(wide.select([names[number]])) == table_digest(narrow)


def test_a_header_has_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match="has 100001 fields; a table has at most 100000"):
        read(",".join(f"f{number}" for number in range(100_001)) + "\n")
    monkeypatch.setattr(reading, "_LONGEST_HEADER", 1000)
    for endless in (b'"a\n' + b'","b\n' * 1000, b"x" * 2000, b"," * 2000):
        with pytest.raises(FormatError, match="header is longer than 1000 characters"):
            read(endless)


@pytest.mark.usefixtures("small_blocks")
def test_a_comma_is_a_decimal_mark_if_it_is_said_to_be() -> None:
    """Text keeps its commas, and a cell with a point is no number."""
    row = '12,5;-0,25;1,5e3;7;a,b;1.234,5;1.5;05,12;",5"\n'
    table = read(
        "f;g;e;n;s;thousands;point;code;d\n" + row * 50,
        {"d": "decimal(4,2)"},
        delimiter=";",
        decimal_mark="comma",
    )
    assert [field.type for field in table.schema] == [
        pa.float64(), pa.float64(), pa.float64(), pa.int64(), *[pa.string()] * 4, pa.decimal128(4, 2),
    ]  # fmt: skip
    expected = [12.5, -0.25, 1500.0, 7, "a,b", "1.234,5", "1.5", "05,12", Decimal("0.50")]
    assert [column[-1].as_py() for column in table.columns] == expected


def test_a_token_with_a_mark_is_null_as_it_is_written() -> None:
    """Quoted tokens, too, and not the number that has its digits with the other mark."""
    text = '"99,9";"99,9";x\n"99,9";1,5;"99,9"\n88,8;88,8;y\n'
    tokens = ("99,9", "88.8")
    fields = {"column_1": "float64"}
    table = read(text, fields, delimiter=";", decimal_mark="comma", header=False, null_tokens=tokens)
    assert table.to_pydict() == {
        "column_1": [None, None, 88.8],
        "column_2": [None, 1.5, 88.8],
        "column_3": ["x", "99,9", "y"],
    }


@pytest.mark.parametrize("fields", [None, {"a": "int64"}])
def test_a_quoted_token_that_is_a_number_is_null_in_a_field_of_numbers(fields: dict[str, str] | None) -> None:
    assert read('a\n"99"\n1\n99\n', fields, null_tokens=("99",)).to_pydict() == {"a": [None, 1, None]}


@pytest.mark.parametrize("mark", ["point", "comma"])
def test_a_number_with_the_other_mark_is_refused_for_a_stated_type(mark: str) -> None:
    """A decimal comma is explained."""
    number = "1,5" if mark == "point" else "1.5"
    with pytest.raises(FormatError, match="field 'a', row 1") as raised:
        read(f'a\n2\n"{number}"\n', {"a": "float64"}, decimal_mark=mark)
    assert ("'decimal_mark' 'comma'" in raised.value.message) == (mark == "point")
