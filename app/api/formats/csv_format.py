"""CSV <-> Arrow (RFC 4180): UTF-8, a header, commas, CRLF written, any line end read.

An empty cell is a null and a quoted empty one, ``""``, is empty text or no bytes; in a field of
another type both are null. In a table of one field an empty line is therefore a row (its value
null); in a wider one it is skipped. The cells have the forms of `app.api.formats.text`. Nested
values have none.

Types that `fields` does not state are inferred from all cells of a field: ``null`` where all are
empty; ``int64`` (``uint64`` where one is beyond it); ``float64``; ``bool`` (``true``, ``false``);
else ``string``. Dates stay text. So does a field with a leading zero as in 007, with an integer
beyond 64 bits, or with one of 2**53 or more beside fractions: text keeps every digit.
"""

import csv
import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from app.api.formats.errors import CellFault, FormatError
from app.api.formats.json_input import Fields, declared_types, refuse_unknown
from app.api.formats.json_output import refuse_intervals
from app.api.formats.schema import checked_names
from app.api.formats.text import from_text, to_text
from providers.encodings import plain
from providers.types import canonical_type

_BLOCK_BYTES = 1 << 22
_BATCH_ROWS = 16384
_INTEGER = r"^(0|-?[1-9][0-9]*)?$"
_FLOAT = r"^(-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity)?$"
_BOOLEAN = "^(true|false)?$"
_QUOTED = '[",\r\n]|^$|^\ufeff'
_EXACT = 2**53


# ------------------------------------------------------------------------------------------ reading


def read_csv(data: bytes | BinaryIO, fields: Fields | None = None) -> pa.Table:
    """The table of a CSV text; raises FormatError where it is not right."""
    declared = declared_types(fields)
    names, has_rows = _header(data)
    refuse_unknown(declared, dict.fromkeys(names))
    if has_rows:
        if _quotes(data) % 2:
            raise FormatError('a quoted cell is not closed; write a quote inside a cell as ""')
        texts = _cells(data, names)
    else:
        texts = [pa.chunked_array([], pa.string()) for _ in names]
    columns = [
        _declared(column, declared[name], name) if name in declared else _inferred(column)
        for name, column in zip(names, texts, strict=True)
    ]
    return pa.table(columns, names=names)


def _reader(data: bytes | BinaryIO) -> Any:
    if isinstance(data, bytes):
        return io.BytesIO(data)
    data.seek(0)
    return data


def _header(data: bytes | BinaryIO) -> tuple[list[str], bool]:
    """The field names, and whether anything follows them."""
    text = io.TextIOWrapper(_reader(data), "utf-8-sig", newline="")
    try:
        records = csv.reader(text, strict=True)
        names = next(records, [])
        try:
            more = next(records, None) is not None
        except csv.Error:
            more = True
    except UnicodeDecodeError:
        raise FormatError("the CSV is not UTF-8; save it as UTF-8") from None
    except csv.Error:
        raise FormatError("the CSV's header is not right: one line of field names with commas") from None
    finally:
        text.detach()
    if not names:
        raise FormatError("the CSV lacks its header; the first line names the fields")
    _refuse_nul(names)
    return checked_names(names), more


def _refuse_nul(names: list[str]) -> None:
    """Arrow loses rows after a header line with a NUL."""
    for position, name in enumerate(names):
        if "\0" in name:
            raise FormatError(
                f"the name of field {position + 1} holds a NUL, which CSV cannot carry; rename it"
            )


def _quotes(data: bytes | BinaryIO) -> int:
    reader = _reader(data)
    return sum(piece.count(b'"') for piece in iter(lambda: reader.read(1 << 20), b""))


def _cells(data: bytes | BinaryIO, names: list[str]) -> list[pa.ChunkedArray]:
    """Each column as strings: null where the cell is empty and not quoted."""
    numbered = [str(number) for number in range(len(names))]
    size = len(data) if isinstance(data, bytes) else data.seek(0, io.SEEK_END)
    for block in (_BLOCK_BYTES, min(size + 1, 2**31 - 1)):
        try:
            table = arrow_csv.read_csv(
                _reader(data),
                arrow_csv.ReadOptions(
                    use_threads=False,  # so that an error knows its row
                    block_size=block,
                    column_names=numbered,
                    skip_rows_after_names=1,
                ),
                arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(numbered, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            return list(table.columns)
        except pa.ArrowException as error:
            if "straddl" in str(error) and block < size:
                continue  # a row longer than a block
            raise _explained(str(error), names) from None
    raise FormatError("a row of the CSV is too long; no row may pass 2 GiB")


def _explained(message: str, names: list[str]) -> FormatError:
    """What the reader complains of, without the row that it quotes."""
    if odd := re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        what = f"has {odd[3]} cells where the header has {odd[2]}; quote cells that hold commas"
        return FormatError(f"row {int(odd[1]) - 2} (counting from 0) {what}")
    if odd := re.match(r"In CSV column #(\d+): Row #(\d+): .*UTF8", message):
        where = f"field '{names[int(odd[1])]}', row {int(odd[2]) - 2} (counting from 0)"
        return FormatError(f"{where}: the text is not UTF-8; save it as UTF-8")
    return FormatError("the body is not valid CSV; see RFC 4180")


def _declared(column: pa.ChunkedArray, data_type: pa.DataType, name: str) -> pa.ChunkedArray:
    if pa.types.is_nested(data_type) or pa.types.is_interval(data_type):
        raise FormatError(f"field '{name}': CSV cannot carry this type; use JSON, Arrow or Parquet")
    if not _may_be_empty(data_type):
        column = _empty_as_null(column)
    chunks, start = [], 0
    for chunk in column.chunks:
        try:
            chunks.append(from_text(chunk, data_type))
        except CellFault as fault:
            row = start + fault.index
            raise FormatError(f"field '{name}', row {row} (counting from 0): {fault.what}") from None
        start += len(chunk)
    return pa.chunked_array(chunks, data_type)


def _may_be_empty(data_type: pa.DataType) -> bool:
    """Whether a quoted empty cell is a value of this type: text or bytes of length zero."""
    kind = pa.types
    return bool(
        kind.is_string(data_type) or kind.is_binary(data_type) or kind.is_fixed_size_binary(data_type)
    )


def _empty_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    empty = pc.equal(column, "")
    if pc.any(empty).as_py():
        return pc.if_else(empty, pa.scalar(None, pa.string()), column)
    return column


def _matches(column: pa.ChunkedArray, pattern: str) -> bool:
    """Whether all cells match; a look at the first rows spares most columns the whole pass."""
    return all(
        pc.all(pc.match_substring_regex(part, pattern)).as_py() is not False
        for part in (column.slice(0, 256), column)
    )


def _inferred(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column))])
    if not pc.any(pc.not_equal(column, "")).as_py():
        return column
    if _matches(column, _INTEGER):
        numbers = _empty_as_null(column)
        for data_type in (pa.int64(), pa.uint64()):
            try:
                return numbers.cast(data_type)
            except pa.ArrowInvalid:
                pass
        return column
    if _matches(column, _FLOAT):
        return _inferred_floats(column)
    if _matches(column, _BOOLEAN):
        return pc.equal(_empty_as_null(column), "true")
    return column


def _inferred_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pc.any(pc.match_substring_regex(column, "[0-9]")).as_py():
        return column  # words alone, such as NaN
    numbers = _empty_as_null(column)
    try:
        floats = numbers.cast(pa.float64())
    except pa.ArrowInvalid:
        return column
    beyond = pc.greater_equal(pc.abs(floats), _EXACT)
    if pc.any(beyond).as_py():
        whole = pc.match_substring_regex(numbers, "^-?[0-9]+$")
        overflow = pc.and_(pc.is_inf(floats), pc.match_substring_regex(numbers, "[0-9]"))
        if pc.any(pc.or_(pc.and_(beyond, whole), overflow)).as_py():
            return column
    return floats


# ------------------------------------------------------------------------------------------ writing


def csv_chunks(table: pa.Table) -> Iterator[bytes]:
    """The CSV text in pieces; raises FormatError before the first if CSV cannot carry the table."""
    refuse_intervals(table.schema)
    if not table.num_columns:
        raise FormatError("the table has no fields, which CSV cannot carry; use JSON, Arrow or Parquet")
    _refuse_nul(table.schema.names)
    for field in table.schema:
        if pa.types.is_nested(canonical_type(field.type)):
            what = "holds nested values, which CSV cannot carry; use JSON, Arrow or Parquet"
            raise FormatError(f"field '{field.name}' {what}")
    return _chunks(table)


def _chunks(table: pa.Table) -> Iterator[bytes]:
    header = _quoted(pa.array(table.schema.names, pa.large_string()))
    yield ",".join(header.to_pylist()).encode() + b"\r\n"
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        if batch.num_rows:
            yield _lines(batch)


def _lines(batch: pa.RecordBatch) -> bytes:
    cells = [pc.fill_null(_cell_texts(column), "") for column in batch.columns]
    comma, nothing, end = (pa.scalar(mark, pa.large_string()) for mark in (",", "", "\r\n"))
    rows = pc.binary_join_element_wise(*cells, comma) if len(cells) > 1 else cells[0]
    lines = pc.binary_join_element_wise(rows, end, nothing)
    _, _, text = lines.buffers()  # just made: its bytes are the lines and nothing else
    return bytes(memoryview(text)) if text is not None else b""


def _cell_texts(column: pa.Array) -> pa.Array:
    column = plain(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_string())
    texts = to_text(column)
    return _quoted(texts) if _may_be_empty(canonical_type(column.type)) else texts


def _quoted(texts: pa.Array) -> pa.Array:
    needs = pc.match_substring_regex(texts, _QUOTED)
    if not pc.any(needs).as_py():
        return texts
    quote, nothing = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(needs, pc.binary_join_element_wise(quote, doubled, quote, nothing), texts)
