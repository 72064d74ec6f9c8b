"""CSV reader (RFC 4180): a header or none, any line end, one delimiter character, several encodings.

The decimal mark is a point or a comma, without separators of thousands.

An empty cell is a null; a quoted empty one, ``""``, is empty text or empty bytes, and a null in fields of
other types. The same holds for the null tokens of the dialect. In a table of one field an empty line is
therefore a row with a null; in a wider one it is skipped. Cells have the forms of
`app.formats.value_text`. Nested values have no form.

Types that ``fields`` does not state are inferred from all cells of a field (`app.formats.csv_inference`), in
a separate pass: the text is read block by block, and none of it is kept in memory.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from app.formats.batched_columns import elementwise
from app.formats.bounded_file import Batches, BoundedFile
from app.formats.csv_dialect import CsvDialect, RawRecodedFile, RecodedFile
from app.formats.csv_inference import FieldType, without
from app.formats.csv_quotes import check_quotes
from app.formats.errors import CellFault, FormatError
from app.formats.first_bytes import FIRST_BYTES, refuse_other_format
from app.formats.json_input import Fields, declared_types, refuse_unknown
from app.formats.media_types import CSV
from app.formats.schema_checks import checked_names
from app.formats.value_text import from_text

_BLOCK_BYTES = 1 << 21  # Arrow reads about thirty of them ahead

_MOST_BLOCK_BYTES = 1 << 25

_BYTES_A_FIELD = 1 << 10  # in a smaller block there are more calls than values

_LONGER = 1 << 3

_LONGEST_ROW = 2**31 - 1

_LONGEST_HEADER = 1 << 24

_DELIMITERS = {",": "','", ";": "';'", "\t": "'tab'", "|": "'|'"}
"""Common delimiters, as a message names them."""

_SEPARATOR_LINE = re.compile(r'"?sep=.?"?\s*', re.IGNORECASE)
"""First line by which spreadsheet programs learn the delimiter."""


def open_csv(
    data: bytes | BinaryIO, fields: Fields | None = None, dialect: CsvDialect | None = None
) -> Batches:
    """Open the table of a CSV text. Raises FormatError: the text is invalid."""
    declared = declared_types(fields)
    text = _Text(data, dialect or CsvDialect())
    refuse_unknown(declared, dict.fromkeys(text.names))
    for name, data_type in declared.items():
        if pa.types.is_nested(data_type) or pa.types.is_interval(data_type):
            raise FormatError(f"field '{name}': CSV cannot carry this type; use JSON, Arrow or Parquet")
    check_quotes(text.whole(), text.dialect.delimiter)
    inferred = _inferred(text, [name for name in text.names if name not in declared])
    schema = pa.schema([(name, declared.get(name, inferred.get(name))) for name in text.names])
    return schema, _converted(text, schema, declared.keys())


class _Text:
    """Cells of a CSV as strings; can be read from the beginning repeatedly."""

    def __init__(self, data: bytes | BinaryIO, dialect: CsvDialect) -> None:
        self._file: BinaryIO = io.BytesIO(data) if isinstance(data, bytes) else data
        self.dialect = dialect
        self._nulls = frozenset(dialect.nulls)
        self.numeric_nulls = frozenset(self.numeric(pa.array(dialect.nulls, pa.string())).to_pylist())
        self.names, self._has_rows = self._header()

    def _header(self) -> tuple[list[str], bool]:
        """Return the names, and whether anything follows them."""
        self._file.seek(0)
        refuse_other_format(CSV, self._file.read(FIRST_BYTES), self.dialect.encoding)
        header: list[str] = []
        text = io.TextIOWrapper(
            io.BufferedReader(RawRecodedFile(self.whole())),  # type: ignore[type-var]
            "utf-8-sig",
            newline="",
        )
        try:
            lines = _first_lines(text, header)
            names = next(csv.reader(lines, delimiter=self.dialect.delimiter, strict=True), [])
            has_rows = bool(text.read(1))
        except UnicodeDecodeError:
            raise FormatError(
                "the CSV is not UTF-8; save it as UTF-8, or state its encoding as 'encoding'"
            ) from None
        except csv.Error:
            raise FormatError(
                "the CSV's header is not valid: it is one line of field names, separated by the delimiter"
            ) from None
        if not self.dialect.header:
            if not names:
                raise FormatError("the CSV has no rows, and no header that would name its fields")
            return [f"column_{number}" for number in range(1, len(names) + 1)], True
        if not names:
            raise FormatError("the CSV lacks its header; the first line names the fields")
        if _SEPARATOR_LINE.fullmatch(header[0]):
            raise FormatError(
                "the first line of the CSV states the delimiter for a spreadsheet program; remove the line, "
                "and state the delimiter as 'delimiter'"
            )
        refuse_nul(names)
        _refuse_other_delimiter("".join(header), self.dialect.delimiter)
        return checked_names(names), has_rows

    def numeric(self, cells: pa.Array) -> pa.Array:
        """Return cells, with points for decimal commas; a cell with a point is then no number."""
        if self.dialect.decimal_mark == "point":
            return cells
        return pc.replace_substring(pc.replace_substring(cells, ".", "\0"), ",", ".")

    def nulls_of(self, data_type: pa.DataType) -> frozenset[str]:
        """Return the null cells of a field of this type, as `numeric` gives them if it has a mark."""
        return self.numeric_nulls if has_decimal_mark(data_type) else self._nulls

    def whole(self) -> BoundedFile | RecodedFile:
        """Return the text from its beginning."""
        return self.dialect.text(BoundedFile(self._file))

    def cells(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of preceding rows, and rows of strings; an unquoted null cell is null."""
        done = 0
        if not self._has_rows:
            return
        block = min(max(_BLOCK_BYTES, _BYTES_A_FIELD * len(self.names)), _MOST_BLOCK_BYTES)
        while True:
            part = BoundedFile(self._file)
            seen = 0
            try:
                for batch in self._open(part, block):
                    fresh = batch.slice(max(0, done - seen))
                    seen += batch.num_rows
                    if fresh.num_rows:
                        yield done, fresh
                        done += fresh.num_rows
                return
            except MemoryError:
                raise
            except pa.ArrowException as error:
                if "straddl" not in str(error):
                    raise _explained(str(error), self.names, self.dialect.header) from None
                if block > part.size or block >= _LONGEST_ROW:
                    raise FormatError("a row of the CSV is too long; a row has at most 2 GiB") from None
                block = min(block * _LONGER, _LONGEST_ROW)
            finally:
                part.close()  # the read-ahead of this attempt must not move the file under the next one

    def _open(self, part: BoundedFile, block: int) -> Iterator[pa.RecordBatch]:
        numbered = [str(number) for number in range(len(self.names))]
        reader: Iterator[pa.RecordBatch] = arrow_csv.open_csv(
            self.dialect.text(part),
            arrow_csv.ReadOptions(
                use_threads=False,  # so that an error has its row number
                block_size=block,
                column_names=numbered,
                skip_rows_after_names=int(self.dialect.header),
            ),
            arrow_csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(self.names) > 1,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(numbered, pa.string()),
                null_values=self.dialect.nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return reader


def _refuse_other_delimiter(header: str, delimiter: str) -> None:
    """Raise FormatError if the header has more of another common delimiter than of its own, unquoted."""
    unquoted = re.sub('"[^"]*"', "", header)
    likely = max(_DELIMITERS, key=unquoted.count)
    if likely != delimiter and unquoted.count(likely) > unquoted.count(delimiter):
        raise FormatError(
            f"the header's names seem to be separated by {_DELIMITERS[likely]}, and the delimiter "
            f"is {_DELIMITERS.get(delimiter, repr(delimiter))}: state the other one as 'delimiter', or put "
            "names that contain it in quotes"
        )


def _first_lines(text: io.TextIOWrapper, read: list[str]) -> Iterator[str]:
    """Yield lines as long as they may belong to the header; append each to ``read``."""
    left = _LONGEST_HEADER
    while line := text.readline(left):
        left -= len(line)
        if left <= 0:
            raise FormatError(
                f"the CSV's header is longer than {_LONGEST_HEADER} characters; shorten its names"
            )
        read.append(line)
        yield line


def refuse_nul(names: list[str]) -> None:
    """Raise FormatError for a name with a NUL: Arrow loses rows after a header line with one."""
    for position, name in enumerate(names):
        if "\0" in name:
            raise FormatError(
                f"the name of field {position + 1} holds a NUL, which CSV cannot carry; rename it"
            )


def _explained(message: str, names: list[str], header: bool) -> FormatError:
    """Translate an error of the reader, without the row that it quotes."""
    if odd := re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        first = "header" if header else "first line"
        what = f"has {odd[3]} cells where the {first} has {odd[2]}; quote cells that hold the delimiter"
        return FormatError(f"row {int(odd[1]) - 1 - header} (counting from 0) {what}")
    if odd := re.match(r"In CSV column #(\d+): Row #(\d+): .*UTF8", message):
        where = f"field '{names[int(odd[1])]}', row {int(odd[2]) - 1 - header} (counting from 0)"
        return FormatError(
            f"{where}: the text is not UTF-8; save it as UTF-8, or state its encoding as 'encoding'"
        )
    return FormatError("the body is not valid CSV; see RFC 4180")


def _inferred(text: _Text, names: list[str]) -> dict[str, pa.DataType]:
    """Infer the types of these fields."""
    places = {name: place for place, name in enumerate(text.names)}
    known = {name: FieldType(text.numeric_nulls) for name in names}
    if known:
        for _, batch in text.cells():
            for name, field_type in known.items():
                if not field_type.is_text:
                    field_type.see(text.numeric(batch.column(places[name])))
    return {name: field_type.result() for name, field_type in known.items()}


def _converted(text: _Text, schema: pa.Schema, declared: Collection[str]) -> Iterator[pa.RecordBatch]:
    stated = [place for place, field in enumerate(schema) if field.name in declared]
    others = [place for place, field in enumerate(schema) if field.name not in declared]
    marked = [place for place, field in enumerate(schema) if has_decimal_mark(field.type)]
    for start, batch in text.cells():
        columns = batch.columns
        for place in marked:
            columns[place] = text.numeric(columns[place])
        for place in stated:
            try:
                columns[place] = _declared(columns[place], schema.field(place).type, text)
            except CellFault as fault:
                where = f"field '{schema.field(place).name}', row {start + fault.index} (counting from 0)"
                raise FormatError(f"{where}: {fault.what}") from None
        if others:
            found = elementwise(
                lambda cells, data_type: _as_inferred(cells, data_type, text.nulls_of(data_type)),
                [columns[place] for place in others],
                [schema.field(place).type for place in others],
            )
            for place, column in zip(others, found, strict=True):
                columns[place] = column
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def has_decimal_mark(data_type: pa.DataType) -> bool:
    """Return whether numbers of this type may have a decimal mark."""
    return bool(pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def _declared(cells: pa.Array, data_type: pa.DataType, text: _Text) -> pa.Array:
    filled = cells if may_be_empty(data_type) else without(cells, text.nulls_of(data_type))
    return from_text(filled, data_type)


def _as_inferred(cells: pa.Array, data_type: pa.DataType, nulls: frozenset[str]) -> pa.Array:
    """Convert cells to their inferred type, which fits all of them."""
    kind = pa.types
    if kind.is_string(data_type):
        return cells
    if kind.is_null(data_type):
        return pa.nulls(len(cells))
    if kind.is_boolean(data_type):
        return pc.equal(without(cells, nulls), "true")
    if nulls != {""}:
        cells = without(cells, nulls)  # a quoted token may be a number, which would be cast
    try:
        return cells.cast(data_type)
    except pa.ArrowInvalid:  # quoted empty cells
        return without(cells, nulls).cast(data_type)


def may_be_empty(data_type: pa.DataType) -> bool:
    """Return whether a quoted empty cell is a value of this type: empty text or empty bytes."""
    kind = pa.types
    return bool(
        kind.is_string(data_type) or kind.is_binary(data_type) or kind.is_fixed_size_binary(data_type)
    )
