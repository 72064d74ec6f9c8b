"""Properties of every format: no cell in a message, no input that breaks it, content negotiation."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.formats.errors import FormatError
from app.formats.json_input import table_from_rows
from app.formats.media_types import ARROW_STREAM, CSV, JSON, MEDIA_TYPES, PARQUET, negotiate
from providers.tables.type_names import type_name
from tests.whole_tables import read_table, write_table


def body(media_type: str, table: pa.Table) -> bytes:
    return b"".join(write_table(media_type, table))


def column(values: list[Any], type_text: str | None = None) -> pa.ChunkedArray:
    rows = [{"field": value} for value in values]
    return table_from_rows(rows, None if type_text is None else {"field": type_text}).column("field")


SECRET = "Xq7Secret"


def complaint(read: Callable[[], pa.Table]) -> str:
    """Return the FormatError and its cause as text; empty if none is raised."""
    try:
        read()
    except FormatError as error:
        return f"{error!r} {error.__cause__!r}"
    return ""


@pytest.mark.parametrize(
    "name",
    ["int64", "float64", "decimal(9,2)", "bool", "null", "date", "time", "timestamp",
     "timestamp[us, UTC]", "duration[s]", "binary", "fixed_binary(2)", "list<int64>",
     "struct<a: int64>", "map<string, int64>", None],
)  # fmt: skip
def test_a_message_never_quotes_a_cell(name: str | None) -> None:
    fields = None if name is None else {"field": name}
    for value in (SECRET, [SECRET], {"a": SECRET}, [["k", SECRET]], 7770777.25):
        for read in (
            lambda value=value: column([None, 1, value], name),
            lambda value=value: read_table(CSV, f'other,field\r\n1,"{value}"\r\n'.encode(), fields),
            lambda value=value: read_table(CSV, f'other,field\r\n1,2\r\n1,2,"{value}"\r\n'.encode(), fields),
        ):
            said = complaint(read)
            assert SECRET not in said
            assert "7770777" not in said


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_corrupt_input_is_a_format_error_or_a_table(media_type: str) -> None:
    table = pa.table(
        {"n": [1, None, 3], "x": [0.5, 1.5, None], "s": ["a", None, "ccc"], "d": pa.array(["u", "v", "u"])}
    ).set_column(3, "d", pa.array(["u", "v", "u"]).dictionary_encode())
    whole = body(media_type, table)
    random_bytes = random.Random(5)
    for trial in range(400):
        data = bytearray(whole)
        if trial % 2:
            del data[random_bytes.randrange(len(data)) :]
        for _ in range(trial % 4):
            if data:
                data[random_bytes.randrange(len(data))] = random_bytes.randrange(256)
        said = complaint(partial(read_table, media_type, bytes(data)))
        assert "arrow." not in said.lower()
        assert str(Path.cwd()) not in said


def test_an_unknown_media_type_is_answered_with_the_known_ones() -> None:
    for call in (lambda: read_table("text/html", b""), lambda: write_table("text/html", pa.table({}))):
        with pytest.raises(FormatError, match="known are application/json, text/csv"):
            call()


# ----------------------------------------------------------------------------------------------------- Accept


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("text/csv", CSV),
        ("TEXT/CSV; charset=utf-8", CSV),
        ("application/*", JSON),
        ("text/*", CSV),
        ("text/csv;q=0.5, application/json;q=0.4", CSV),
        ("application/json;q=0.4, */*;q=0.8", CSV),
        ("application/json, */*;q=0.8", JSON),
        ("text/csv, */*", CSV),
        ("application/json;q=0, application/*", ARROW_STREAM),
        (f"{PARQUET}, {ARROW_STREAM}", ARROW_STREAM),
        ("text/html", None),
        ("text/csv;q=0", None),
        ("text/csv;q=2", None),
        ("text/html, text/csv ;q=0.001", CSV),
        (", ,text/csv", CSV),
        ("*/*;q=0", None),
    ],
)
def test_the_media_type_that_an_accept_header_wants(accept: str | None, chosen: str | None) -> None:
    assert negotiate(accept, MEDIA_TYPES) == chosen


# -------------------------------------------------------------------------------------------------- real data


@pytest.mark.realdata
def test_real_csv_tables_are_read_and_written_back(data_dir: Path) -> None:
    eia = read_table(CSV, (data_dir / "EIA.csv").read_bytes())
    assert (eia.num_rows, eia.num_columns) == (4092, 15)
    assert any("," in name for name in eia.column("UTILNAME").unique().to_pylist())
    with (data_dir / "adult.csv").open("rb") as file:
        adult = read_table(CSV, file)
    assert (adult.num_rows, adult.num_columns) == (48842, 15)
    assert type_name(adult.schema.field("fnlwgt").type) == "int64"
    for table in (eia, adult):
        assert read_table(CSV, body(CSV, table)).equals(table)


@pytest.mark.parametrize("media_type", [JSON, CSV])
def test_a_far_timestamp_does_not_change_the_text_of_the_others(media_type: str) -> None:
    """Its text is in UTC; rows around it keep the clock of their zone, in whatever batches they come."""
    near, far = 1_700_000_000, 253_402_300_799  # the end of the year 9999
    for values in ([near, far, None], [near]):
        table = pa.table({"t": pa.array(values, pa.timestamp("s", "America/New_York"))})
        found = body(media_type, table)
        assert b"2023-11-14T17:13:20-05:00" in found
        assert (b"9999-12-31T23:59:59Z" in found) == (far in values)
        assert read_table(media_type, found, {"t": "timestamp[s, America/New_York]"}).equals(table)
