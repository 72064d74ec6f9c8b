"""Tables of a request: the models of `source` and `destination`, and a resolved table."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, JsonValue, SkipValidation, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.jobs.requests import GivenTable, StoredTable
from app.requests.uploads import CsvWriting, UploadedType
from providers.params import StrictModel
from providers.tables.digest import table_digest


def _named_types(fields: Any) -> Any:
    """Return field -> type, also for a list of names and types as in every response with rows."""
    if isinstance(fields, list) and all(
        isinstance(field, dict) and field.keys() == {"name", "type"} for field in fields
    ):
        return {field["name"]: field["type"] for field in fields}
    return fields


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
    """Object of an S3 bucket, or file that the service can reach, below one of the allowed prefixes. It is
    read and checked before the response is sent."""
    media_type: str | SkipJsonSchema[None] = Field(default=None, examples=["text/csv; charset=utf-8"])
    """Media type of the reference: an Arrow stream, Parquet or CSV. Default: derived from the suffix of
    its name; a trailing `.gz` marks gzip compression."""
    fields: Annotated[dict[str, str], BeforeValidator(_named_types)] | SkipJsonSchema[None] = Field(
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
    prefixes. An existing object is replaced once the new one is completely written."""
    media_type: UploadedType | SkipJsonSchema[None] = None
    """Media type to write. Default: derived from the suffix of the reference."""


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
