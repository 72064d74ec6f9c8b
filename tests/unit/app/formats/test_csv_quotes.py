"""Quotes of a CSV: the check agrees with a reader of one character after the other, whatever the blocks."""

import csv
import io
import random

import pytest

from app.formats import csv_quotes
from app.formats.csv_quotes import check_quotes
from app.formats.errors import FormatError
from app.formats.media_types import CSV
from tests.whole_tables import read_table

SEPARATORS = ",\r\n"


def quoting(text: str) -> str:
    """Return `sound`, `open` or `text after a quote`, by the states of a cell (RFC 4180)."""
    state = "start"
    for character in text + "\n":
        if state == "closing" and character != '"' and character not in SEPARATORS:
            return "text after a quote"
        if state == "quoted":
            state = "closing" if character == '"' else "quoted"
        elif character == '"' and state in ("start", "closing"):
            state = "quoted"
        else:
            state = "start" if character in SEPARATORS else "plain"
    return "open" if state == "quoted" else "sound"


def checked(text: str) -> str:
    try:
        check_quotes(io.BytesIO(text.encode()), ",")
    except FormatError as error:
        return "open" if "is not closed" in error.message else "text after a quote"
    return "sound"


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_the_check_agrees_with_the_states_of_a_cell(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_quotes, "_BLOCK_BYTES", block)
    draws = random.Random(block)
    texts = ["".join(draws.choices('"",\n\ra', k=draws.randint(0, 12))) for _ in range(6000)]
    found = [checked(text) for text in texts]
    assert found == list(map(quoting, texts))
    assert set(found) == {"sound", "open", "text after a quote"}


def test_sound_cells_are_read_as_other_readers_do() -> None:
    draws = random.Random(8)
    read = 0
    for _ in range(6000):
        text = "a,b\nx," + "".join(draws.choices('"",\na', k=draws.randint(1, 6))) + "\n"
        records = list(csv.reader(io.StringIO(text, newline="")))[1:]
        if quoting(text) == "sound" and all(len(record) == 2 for record in records):
            table = read_table(CSV, text.encode(), {"a": "string", "b": "string"})
            assert [[row["a"] or "", row["b"] or ""] for row in table.to_pylist()] == records
            read += 1
    assert read > 500


def test_the_message_names_the_line() -> None:
    rows = ["a,b", *['"x","y"'] * 70_000, '"x"y,1', "z,2"]
    for line_end in ("\n", "\r\n", "\r"):
        with pytest.raises(FormatError, match="line 70002 of the CSV has text after the closing quote"):
            check_quotes(io.BytesIO(line_end.join(rows).encode()), ",")


def test_a_byte_order_mark_is_no_part_of_the_first_cell() -> None:
    check_quotes(io.BytesIO('\ufeff"a","b"\n1,2\n'.encode()), ",")
