"""CSV writer (RFC 4180): UTF-8, a header, CRLF, by default commas; nested values and intervals have no form.

A null is an empty cell; empty text and empty bytes are a quoted empty one, ``""``. Cells have the forms of
`app.formats.value_text`; floats and decimals have the decimal mark of the style.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula and computes it. If
formulas are to be escaped, an apostrophe is put before each text that it could take for one: names of fields
and cells of text fields. Numbers, dates and times stay as they are.

References
----------
OWASP, CSV Injection (the characters at which a text is escaped).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from app.formats.batched_columns import elementwise
from app.formats.csv_dialect import DecimalMark
from app.formats.csv_input import has_decimal_mark, may_be_empty, refuse_nul
from app.formats.errors import FormatError
from app.formats.json_output import refuse_intervals
from app.formats.value_text import to_text
from app.store.blobs.batches import decoded_pieces
from providers.tables.encodings import plain
from providers.tables.type_names import canonical_type

_BATCH_ROWS = 16384

_BATCH_BYTES = 1 << 22

Formulas = Literal["keep", "escape"]
"""Whether texts that a spreadsheet could take for formulas stay as they are or follow an apostrophe."""

WrittenDelimiter = Literal[",", ";", "tab", "|"]


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """Style of a CSV that is written. Raises FormatError: its delimiter is its decimal mark."""

    formulas: Formulas = "keep"
    delimiter: WrittenDelimiter = ","
    decimal_mark: DecimalMark = "point"

    def __post_init__(self) -> None:
        if self.delimiter == "," and self.decimal_mark == "comma":
            raise FormatError("a CSV with the decimal mark 'comma' needs another delimiter, such as ';'")

    @property
    def stated(self) -> list[str]:
        """Names of the members that differ from their defaults."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]

    @property
    def sign(self) -> str:
        """The delimiter as a character."""
        return "\t" if self.delimiter == "tab" else self.delimiter


PLAIN = CsvStyle()
"""Style of a CSV unless the caller states another one."""

_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Beginning of a text that is escaped: also after a control character, and in full width."""

_INNER_FORMULA = " *)([=+\\-@\uff1d\uff0b\uff0d\uff20])"
"""Such a beginning after a character at which a spreadsheet of another locale begins a cell."""

_QUOTED = '["\r\n]|^$|^\ufeff'

_QUOTED_NAME = f"[,;|\t]|{_QUOTED}"
"""Names with another common delimiter are quoted too: `app.formats.csv_input` refuses an unquoted one."""


def csv_chunks(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], style: CsvStyle = PLAIN
) -> Iterator[bytes]:
    """Encode a CSV in chunks. Raises FormatError before the first one if CSV cannot represent the table."""
    refuse_intervals(schema)
    if not len(schema):
        raise FormatError("the table has no fields, which CSV cannot carry; use JSON, Arrow or Parquet")
    refuse_nul(schema.names)
    for field in schema:
        if pa.types.is_nested(canonical_type(field.type)):
            what = "holds nested values, which CSV cannot carry; use JSON, Arrow or Parquet"
            raise FormatError(f"field '{field.name}' {what}")
    return _chunks(schema, batches, style)


def _chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch], style: CsvStyle) -> Iterator[bytes]:
    header = _quoted(_texts(pa.array(schema.names, pa.large_string()), style), _QUOTED_NAME)
    yield style.sign.join(header.to_pylist()).encode() + b"\r\n"
    for batch in batches:
        for piece in decoded_pieces(batch, _BATCH_BYTES, _BATCH_ROWS):
            if piece.num_rows:
                yield _lines(piece, style)


def _lines(batch: pa.RecordBatch, style: CsvStyle) -> bytes:
    cells = elementwise(_cells, batch.columns, [style] * batch.num_columns)
    delimiter, nothing, end = (pa.scalar(mark, pa.large_string()) for mark in (style.sign, "", "\r\n"))
    rows = pc.binary_join_element_wise(*cells, delimiter) if len(cells) > 1 else cells[0]
    lines = pc.binary_join_element_wise(rows, end, nothing)
    _, _, text = lines.buffers()  # a new array, whose buffer has the lines and nothing else
    return bytes(memoryview(text)) if text is not None else b""


def _cells(column: pa.Array, style: CsvStyle) -> pa.Array:
    column = plain(column)
    if pa.types.is_null(column.type):
        return pa.array([""] * len(column), pa.large_string())
    texts = to_text(column)
    data_type = canonical_type(column.type)
    if _is_text(data_type):
        texts = _texts(texts, style)
    elif style.decimal_mark == "comma" and has_decimal_mark(data_type):
        texts = pc.replace_substring(texts, ".", ",")
    pattern = f"[{style.sign}]|{_QUOTED}"
    return pc.fill_null(_quoted(texts, pattern) if may_be_empty(data_type) else texts, "")


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(data_type) or pa.types.is_string(data_type))


def _texts(texts: pa.Array, style: CsvStyle) -> pa.Array:
    """Put an apostrophe before each text that looks like a formula, if they are to be escaped."""
    if style.formulas == "keep":
        return texts
    begins = "[;\t\r\n]" if style.delimiter == "," else "[,;\t\r\n]"  # a text with the delimiter is quoted
    empty, apostrophe = pa.scalar("", pa.large_string()), pa.scalar("'", pa.large_string())
    texts = pc.replace_substring_regex(texts, f"({begins}{_INNER_FORMULA}", "\\1'\\2")
    is_formula = pc.match_substring_regex(texts, _FORMULA)
    return pc.if_else(is_formula, pc.binary_join_element_wise(apostrophe, texts, empty), texts)


def _quoted(texts: pa.Array, pattern: str) -> pa.Array:
    needs = pc.match_substring_regex(texts, pattern)
    if not pc.any(needs).as_py():
        return texts
    quote, nothing = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(needs, pc.binary_join_element_wise(quote, doubled, quote, nothing), texts)
