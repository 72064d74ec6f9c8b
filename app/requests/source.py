"""Tables of a request: the models of `source` and `destination`, and a resolved table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, JsonValue, SkipValidation, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.formats.csv_dialect import DecimalMark
from app.formats.csv_output import Formulas, WrittenDelimiter
from app.formats.errors import FormatError
from app.formats.json_input import named_types
from app.jobs.requests import GivenTable, StoredTable
from app.requests.uploads import CsvWriting, UploadedType
from providers.params import StrictModel
from providers.tables.digest import table_digest
from providers.tables.type_names import parse_type


@dataclass(frozen=True, slots=True)
class ParsedTable:
    """Rows or columns of a large request, which another process has made a table of."""

    stream: bytes | None = field(repr=False)
    """Arrow stream of the table; None if the values do not form one."""
    message: str = ""
    """Fault of the values; empty if there is none."""
    pointer: str = ""
    """JSON pointer into the source, to the value that is wrong."""

    def table(self) -> pa.Table:
        """Return the table. Raises FormatError.

        Callers' text may have taken the other process over, so all offsets, indices and texts are checked:
        Arrow reads outside of its memory where they are wrong. Raises pa.ArrowInvalid: they are.
        """
        if self.stream is None:
            raise FormatError(self.message, self.pointer)
        table = pa.ipc.open_stream(self.stream).read_all()
        table.validate(full=True)
        return table


def _types_of(fields: Any) -> Any:
    """Return field -> type as `named_types`; the error of a wrong list names the entry at fault."""
    try:
        return named_types(fields)
    except FormatError as error:
        place = [int(part) if part.isdigit() else part for part in error.pointer.split("/")[2:]]
        fault = PydanticCustomError("fields", "{message}", {"message": error.message})
        errors: list[InitErrorDetails] = [{"type": fault, "loc": tuple(place), "input": fields}]
        raise ValidationError.from_exception_data("fields", errors) from None


_REFERENCE_EXAMPLES = ["s3://bucket/people.parquet", "file:///data/people.csv.gz"]


class Source(CsvWriting):
    """The table to protect: exactly one of `rows`, `columns`, `buffer` and `reference`."""

    rows: Annotated[list[dict[str, JsonValue]], SkipValidation] | SkipJsonSchema[None] = None
    """The table as records. A key that a record lacks is a null."""
    columns: Annotated[dict[str, list[JsonValue]], SkipValidation] | SkipJsonSchema[None] = None
    """The table as field -> values, all of one length."""
    buffer: str | SkipJsonSchema[None] = None
    """The id of an uploaded buffer."""
    reference: str | SkipJsonSchema[None] = Field(default=None, examples=_REFERENCE_EXAMPLES)
    """Object of an S3 bucket, or file that the service can reach, below one of the allowed prefixes of the
    caller's project. It is read and checked before the response is sent."""
    media_type: str | SkipJsonSchema[None] = Field(default=None, examples=["text/csv; charset=utf-8"])
    """Media type of the reference: an Arrow stream, Parquet or CSV. Default: derived from the suffix of
    its name; a trailing `.gz` marks gzip compression."""
    fields: Annotated[dict[str, str], BeforeValidator(_types_of)] | SkipJsonSchema[None] = Field(
        default=None, examples=[{"age": "int64", "income": "decimal(12,2)"}]
    )
    """Field -> type, for fields whose type is not to be inferred: `int64`, `float64`, `decimal(p,s)`,
    `string`, `bool`, `date`, `timestamp`, ... With a `reference`, only for CSV."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [
            name for name in ("rows", "columns", "buffer", "reference") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise PydanticCustomError(
                "source",
                "give exactly one of 'rows', 'columns', 'buffer' and 'reference'; given: {given}",
                {"given": ", ".join(given) or "none"},
            )
        if self.reference is None:
            own = {"media_type"} if self.media_type is not None else set()
            for name in sorted(self.csv_options_set() | own):
                raise PydanticCustomError("source", "'{name}' is used only with 'reference'", {"name": name})
        if self.buffer is not None and self.fields is not None:
            raise PydanticCustomError(
                "source", "'fields' is used only with 'rows' or 'columns'; a buffer has its types already"
            )
        return self


class SentTo(StrictModel):
    """Reference that the destination buffer is written to before the job succeeds."""

    reference: str = Field(examples=["s3://bucket/released.parquet"])
    """Object of an S3 bucket, or file in a folder that the service can reach, below one of the allowed
    prefixes of the caller's project. It is written only if nothing exists there, unless `overwrite` is true.
    The call needs the scope `read` if a table of the request is not the caller's own."""
    media_type: UploadedType | SkipJsonSchema[None] = None
    """Media type to write. Default: derived from the suffix of the reference."""
    overwrite: bool = False
    """true: replace an existing object or file once the new one is completely written. The administrator
    must allow it for the prefix."""
    csv_formulas: Formulas = "keep"
    """CSV: whether texts that a spreadsheet could take for formulas stay as they are (`keep`) or follow an
    apostrophe (`escape`). The table and its digest do not change."""
    csv_delimiter: WrittenDelimiter = ","
    """CSV: the delimiter of cells; the word `tab` means the tab character."""
    csv_decimal_mark: DecimalMark = "point"
    """CSV: the decimal mark of numbers. `comma` needs another `csv_delimiter` than the comma."""


class RerunDestination(Source):
    """Table that a job measured or attacked, or the reference to write a run's destination to."""

    overwrite: bool = False
    """true: replace an existing object or file, where the administrator allows it."""
    csv_formulas: Formulas = "keep"
    """CSV: `escape` writes an apostrophe before texts that a spreadsheet could take for formulas."""
    csv_delimiter: WrittenDelimiter = ","
    """CSV to write: the delimiter of cells; `tab` means the tab character."""
    csv_decimal_mark: DecimalMark = "point"
    """CSV to write: the decimal mark of numbers."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Source of a run, with its schema, number of rows and digest."""

    table: GivenTable
    schema: pa.Schema
    rows: int
    known_digest: str = ""

    @property
    def digest(self) -> str:
        """Digest of the table; computed on access if the rows are inline."""
        return self.known_digest or table_digest(self.table)

    @property
    def inline(self) -> bool:
        """Whether the rows came in the request, so that the response includes rows too."""
        return isinstance(self.table, pa.Table)

    @property
    def reference(self) -> str | None:
        """Reference that the table was read from, if any."""
        return self.table.reference if isinstance(self.table, StoredTable) else None


def schema_of_fields(fields: list[dict[str, Any]]) -> pa.Schema:
    """Return the schema of a stored table from the names and types of its fields."""
    types = {name: parse_type(name) for name in {field["type"] for field in fields}}
    return pa.schema([(field["name"], types[field["type"]]) for field in fields])
