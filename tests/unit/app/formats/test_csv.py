"""CSV edge cases: nulls, quotes, types and rejected data."""

import csv
import io
import re
from decimal import Decimal
from typing import get_args

import pyarrow as pa
import pytest

from app.formats import CsvDialect, CsvStyle, stream_chunks
from app.formats.csv_dialect import DecimalMark
from app.formats.csv_output import WrittenDelimiter
from app.formats.errors import FormatError
from app.formats.media_types import CSV, JSON
from providers.tables.type_names import type_name
from tests.whole_tables import read_table, write_table


def body(media_type: str, table: pa.Table) -> bytes:
    return b"".join(write_table(media_type, table))


def csv_types(text: str) -> list[str]:
    return [type_name(field.type) for field in read_table(CSV, text.encode()).schema]


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (["1", "-2", ""], "int64"),
        (["1", '""', "3"], "int64"),
        (["18446744073709551615"], "uint64"),
        (["18446744073709551616"], "string"),
        (["-1", "9223372036854775808"], "string"),
        (["007", "12"], "string"),
        (["0", "10"], "int64"),
        (["1.50", "2"], "float64"),
        ([".5", "5.", "-1e-3"], "float64"),
        (["1.5", "NaN", "-Infinity"], "float64"),
        (["NaN"], "string"),
        (["1.5", "9007199254740993"], "string"),
        (["1e999"], "string"),
        (["1234567890123456.78", "1.5"], "string"),
        (["1234567890123456.75", "1.5"], "float64"),
        (["12E3", "45E1"], "string"),
        (["1e3", "12E+3", "1.2E3"], "float64"),
        (["00.5"], "string"),
        (["+5"], "string"),
        ([" 5"], "string"),
        (["1,000"], "string"),
        (["true", "", "false"], "bool"),
        (["True"], "string"),
        (["2024-02-29"], "string"),
        (["NA"], "string"),
        (["", ""], "null"),
        (['""', ""], "string"),
    ],
)
def test_types_are_inferred_from_csv_cells(cells: list[str], name: str) -> None:
    quoted = [f'"{cell}"' if "," in cell else cell for cell in cells]
    assert csv_types("other,field\r\n" + "".join(f"x,{cell}\r\n" for cell in quoted))[1] == name


def test_csv_distinguishes_null_from_empty_text_and_keeps_awkward_cells() -> None:
    cells = ["", None, 'a"b', "c,d", "e\r\nf", " g ", "\ufeffh", "00", "\r", "NULL"]
    table = pa.table({"wörd 😀": cells, "\ufeffx,y": pa.array([1, None] * 5)})
    text = body(CSV, table)
    assert text.startswith('wörd 😀,"\ufeffx,y"\r\n"",1\r\n,\r\n"a""b",1\r\n'.encode())
    assert read_table(CSV, text).equals(table)
    assert read_table(CSV, text.replace(b"\r\n1", b"\n1"), {"wörd 😀": "string"}).num_rows == 10


def test_a_null_in_a_single_field_is_an_empty_line() -> None:
    table = pa.table({"a": pa.array([None, 1, None], pa.int64())})
    assert body(CSV, table) == b"a\r\n\r\n1\r\n\r\n"
    assert read_table(CSV, b"a\r\n\r\n1\r\n\r\n").equals(table)
    assert read_table(CSV, b"a,b\n1,2\n\n3,4\n\n").num_rows == 2


def test_csv_without_rows_or_a_last_line_end_is_read() -> None:
    assert read_table(CSV, b"a,b").schema == pa.schema([("a", pa.null()), ("b", pa.null())])
    assert read_table(CSV, b"\xef\xbb\xbfa,b\n1,2").to_pylist() == [{"a": 1, "b": 2}]
    assert read_table(CSV, b'"a\nb"\n1\n', {"a\nb": "int8"}).to_pylist() == [{"a\nb": 1}]
    assert read_table(CSV, b"a\r1\r2\r").to_pydict() == {"a": [1, 2]}


def test_a_row_may_be_longer_than_a_block() -> None:
    long = "x" * 9_000_000
    assert read_table(CSV, f"a,b\n1,{long}\n2,y\n".encode()).column("b").to_pylist() == [long, "y"]


def test_floats_and_decimals_keep_every_digit_in_csv() -> None:
    numbers = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 5.0, 1e22, 123456789.0]
    table = pa.table({"x": numbers, "d": pa.array([Decimal("1E-20")] * 8, pa.decimal128(38, 20))})
    assert read_table(CSV, body(CSV, table), {"d": "decimal(38,20)"}).equals(table)
    assert type_name(read_table(CSV, body(CSV, pa.table({"x": [5.0]}))).schema.field("x").type) == "float64"


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        (b"", None, "lacks its header"),
        (b"\n1\n", None, "lacks its header"),
        (b"a,,b\n1,2,3\n", None, "field 2 has an empty name"),
        (b"a,a\n1,2\n", None, "field 'a' is there 2 times"),
        (b"a\x00b,c\n1,2\n", None, "holds a NUL"),
        (b"a,b\n1,2\n1\n", None, "row 1 (counting from 0) has 1 cells where the header has 2"),
        (b"a,b\n1,2\n1,2,3\n", None, "row 1 (counting from 0) has 3 cells where the header has 2"),
        (b'a,b\n1,"2\n3,4\n', None, "a quoted cell is not closed"),
        (b'a,b\n"x\\"y",1\n"p\\"q",2\n', None, "line 2 of the CSV has text after the closing quote"),
        (b'a,b\n\n"5",1\n"6"7,2\n', None, "line 4 of the CSV has text after the closing quote"),
        (b'a,b\n"say \\"",1\nm,3\n"and \\"",2\n', None, "line 4 of the CSV has text after the closing quote"),
        (b"a\n1.5\n9007199254740993\n", {"a": "float64"}, "row 1 (counting from 0): the number does not fit"),
        (b"a\n9007199254740993.5\n", {"a": "float64"}, "does not fit float64 exactly; use decimal(p,s)"),
        (b"a\n16777217\n", {"a": "float32"}, "does not fit float32 exactly"),
        (b"\xff\xfe\n", None, "the CSV is UTF-16"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", None, "a workbook such as .xls"),
        (b"\x28\xb5\x2f\xfd\x00\x58", None, "Zstandard data"),
        (b"sep=;\na;b\n1;2\n", None, "states the delimiter for a spreadsheet program"),
        (b'"sep=,"\r\na,b\r\n1,2\r\n', None, "states the delimiter for a spreadsheet program"),
        (b"\xff\n", None, "not UTF-8"),
        (b"a,b\n" + b"1,2\n" * 9000 + b"1,\xff\n", None, "'b', row 9000 (counting from 0): the text"),
        (b"a,b\n1,2\n", {"c": "int8"}, "unknown field 'c'"),
        (b"a,b\n1,2\n3,x\n", {"b": "int8"}, "field 'b', row 1 (counting from 0): int8 is written as"),
        (b"a\n1\n300\n", {"a": "int8"}, "row 1 (counting from 0): int8 is written as a whole number, in"),
        (b"a\n1\n", {"a": "list<int8>"}, "CSV cannot carry this type"),
        (b"a,b\n1,2\n", {"a": "null"}, "null is written as null alone"),
    ],
)  # fmt: skip
def test_wrong_csv_is_answered_with_what_would_be_right(
    text: bytes, fields: dict[str, str] | None, words: str
) -> None:
    for data in (text, io.BytesIO(text)):
        with pytest.raises(FormatError) as caught:
            read_table(CSV, data, fields)
        assert words in caught.value.message


def test_csv_refuses_to_write_what_it_cannot_carry() -> None:
    interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    cases = [
        (pa.table({"a": [[1]]}), "field 'a' holds nested values"),
        (pa.table({"a": interval}), "field 'a' holds intervals"),
        (pa.table({}), "has no fields"),
        (pa.table({"a\0": [1]}), "holds a NUL"),
    ]
    for table, words in cases:
        with pytest.raises(FormatError, match=re.escape(words)):
            write_table(CSV, table)
    with pytest.raises(FormatError, match="holds intervals"):
        write_table(JSON, pa.table({"a": pa.array([[(1, 2, 3)]], pa.list_(interval.type))}))


_FULL_WIDTH = [f"{chr(ord(sign) + 0xFEE0)}1" for sign in "=+-@"]


def test_texts_that_look_like_formulas_follow_an_apostrophe_if_asked() -> None:
    """Field names and text fields; numbers, dates and all other texts stay, and nulls and quotes as well."""
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", *_FULL_WIDTH]
    plain = ["a=1", "", None, "'=1", " =1", 'say "x"', "a; b", "a;b=1", "a\n1", "\x0b=1"]
    table = pa.table(
        {
            "=name": [*texts, *plain],
            "number": list(range(-5, len(texts) + len(plain) - 5)),
            "dictionary": pa.array([*texts, *plain]).dictionary_encode(),
        }
    )
    chunks = stream_chunks(CSV, table.schema, table.to_batches(), CsvStyle("escape"))
    [header, *rows] = csv.reader(io.StringIO(b"".join(chunks).decode(), newline=""))
    assert header == ["'=name", "number", "dictionary"]
    escaped = [
        re.sub("(?<=[\t\r\n])=", "'=", text) for text in texts
    ]  # a cell of another locale begins there
    expected = [*(f"'{text}" for text in escaped), *(text or "" for text in plain)]
    assert [row[0] for row in rows] == [row[2] for row in rows] == expected
    assert [int(row[1]) for row in rows] == table["number"].to_pylist()
    kept = csv.reader(io.StringIO(body(CSV, table).decode(), newline=""))
    assert [row[0] for row in kept] == ["=name", *texts, *(text or "" for text in plain)]


@pytest.mark.parametrize("separator", [";", "\t", "\n", "\r"])
def test_no_formula_begins_after_another_separator(separator: str) -> None:
    """A spreadsheet of a locale with the semicolon begins a cell there, also behind quotes."""
    signs = ["=", "+", "-", "@", *(text[0] for text in _FULL_WIDTH)]
    texts = [f"x{separator}{sign}1{separator}  {sign}2{separator}y" for sign in signs] + [f"{separator}=1"]
    table = pa.table({"a": texts})
    written = b"".join(stream_chunks(CSV, table.schema, table.to_batches(), CsvStyle("escape"))).decode()
    cells = [cell.strip(' "\r\n') for cell in re.split("[;\t\r\n,]", written)]
    assert not [cell for cell in cells if cell[:1] in signs]
    assert written.count("'") == 2 * len(signs) + (1 if separator == ";" else 2)


STYLED = pa.table(
    {
        "a;b": ["x;y", "1,5", "tab\there", "p|q", 'say "x"', "", None],
        "float": pa.array([1.5, -0.25, 1e-7, 12.0, float("inf"), None, 1234567.125]),
        "decimal": pa.array([Decimal("1.50")] * 7, pa.decimal128(9, 2)),
        "time": pa.array([0.5e6] * 7).cast(pa.int64()).cast(pa.timestamp("us")),
    }
)


@pytest.mark.parametrize("delimiter", get_args(WrittenDelimiter))
@pytest.mark.parametrize("mark", get_args(DecimalMark))
def test_a_csv_in_another_style_is_read_in_its_dialect(
    delimiter: WrittenDelimiter, mark: DecimalMark
) -> None:
    if (delimiter, mark) == (",", "comma"):
        with pytest.raises(FormatError, match="needs another delimiter"):
            CsvStyle("keep", delimiter, mark)
        return
    style = CsvStyle("keep", delimiter, mark)
    written = b"".join(stream_chunks(CSV, STYLED.schema, STYLED.to_batches(), style))
    types = {field.name: type_name(field.type) for field in STYLED.schema}
    back = read_table(CSV, written, types, CsvDialect(delimiter=style.sign, decimal_mark=mark))
    assert back.equals(STYLED)
    assert (b"00:00:00.500000" in written, b"1,50" in written) == (True, mark == "comma")


@pytest.mark.parametrize("delimiter", [";", "tab", "|"])
def test_no_formula_begins_after_a_comma_in_another_style(delimiter: WrittenDelimiter) -> None:
    """A comma does not put a text in quotes there, and a spreadsheet with commas begins a cell behind it."""
    table = pa.table({"a": ["x,=1", "x, @2"]})
    written = b"".join(stream_chunks(CSV, table.schema, table.to_batches(), CsvStyle("escape", delimiter)))
    assert written == b"a\r\nx,'=1\r\nx, '@2\r\n"
