"""Upload options: media type and CSV dialect."""

import json
from dataclasses import replace
from email.message import Message
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.errors import InvalidParameter, InvalidRequest, UnsupportedMediaType
from app.formats.csv_dialect import ENCODINGS, CsvDialect, DecimalMark, Encoding, known_encoding
from app.formats.json_text import unique_names
from app.formats.media_types import ARROW_STREAM, CSV, PARQUET, essence, sent_as
from app.jobs.tables.uploads import Upload
from app.requests.annotations import AnnotationsBody
from providers.params import StrictModel

UploadedType = Literal["application/vnd.apache.arrow.stream", "application/vnd.apache.parquet", "text/csv"]

UPLOADED: tuple[str, ...] = get_args(UploadedType)

_SUFFIXES = {
    ".csv": CSV, ".tsv": CSV, ".txt": CSV,
    ".arrow": ARROW_STREAM, ".arrows": ARROW_STREAM, ".ipc": ARROW_STREAM,
    ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip

_LONGEST_CONTENT_TYPE = 1024
"""Most characters of a media type: the libraries that parse it take a time with the square of its length."""

_DELIMITERS = "a delimiter is one ASCII character, no letter, digit, quote or line end; or the word 'tab'"


def _types(value: Any) -> Any:
    try:
        types = json.loads(value, object_pairs_hook=unique_names) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        types = None
    if type(types) is not dict or not all(type(name) is str for name in types.values()):
        raise PydanticCustomError(
            "fields", 'write a JSON object, field -> type, such as {"age": "int64", "born": "date"}'
        )
    return value


def _delimiter(value: Any) -> Any:
    value = "\t" if value == "tab" else value
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value.isalnum():
        raise PydanticCustomError("delimiter", _DELIMITERS)
    if value in '"\r\n\0':
        raise PydanticCustomError("delimiter", _DELIMITERS)
    return value


def _yes_or_no(value: Any) -> Any:
    """Return the bool that a query or a form states as text; Python's `str` capitalises it."""
    named = {"true": True, "True": True, "false": False, "False": False}
    return named.get(value, value) if isinstance(value, str) else value


def _encoding(value: Any) -> Any:
    known = known_encoding(value) if isinstance(value, str) else None
    if known is None:
        raise PydanticCustomError(
            "encoding", "an encoding is one of {names}", {"names": ", ".join(ENCODINGS)}
        )
    return known


class CsvWriting(StrictModel):
    """CSV dialect: null tokens, delimiter, encoding and decimal mark.

    They are query parameters of an upload, too, which FastAPI describes by `description` alone.
    """

    null_tokens: list[Annotated[str, Field(max_length=100)]] = Field(
        default=[],
        max_length=100,
        description="CSV: unquoted cells that are null, such as `NA`; the empty cell is always null.",
    )
    delimiter: Annotated[
        str, BeforeValidator(_delimiter), WithJsonSchema({"type": "string", "default": ","})
    ] = Field(default=",", description="CSV: the delimiter of cells; the word `tab` means the tab character.")
    encoding: Annotated[Encoding | SkipJsonSchema[None], BeforeValidator(_encoding)] = Field(
        default=None,
        description="CSV: the character encoding. "
        "Default: the `charset` of the `Content-Type`, else `utf-8`.",
    )
    decimal_mark: DecimalMark = Field(
        default="point",
        description="CSV: the decimal mark of numbers, as in 1234.5 or 1234,5. A number with separators of "
        "thousands is text.",
    )

    def csv_options_set(self) -> set[str]:
        """Return the names of the options that differ from their defaults, which clients may send."""
        defaults = {name: field.default for name, field in CsvWriting.model_fields.items()}
        return {name for name, default in defaults.items() if getattr(self, name) != default}


class CsvOptions(CsvWriting):
    """CSV dialect and types of an upload; rejected with Arrow and Parquet, whose files contain them."""

    # No more of its schema: Swagger UI asks for a file if a string has a media type.
    fields: Annotated[
        str | SkipJsonSchema[None], BeforeValidator(_types), WithJsonSchema({"type": "string"})
    ] = Field(
        default=None,
        description="CSV: types of some fields, as a JSON object, field -> type, with the type names of a "
        'buffer\'s `fields`, such as `{"age": "int64", "born": "date", "income": "decimal(12,2)"}`. '
        "The types of the other fields are inferred from all their cells.",
    )
    header: Annotated[bool, BeforeValidator(_yes_or_no)] = Field(
        default=True,
        description="CSV: false if the first line is data already. The fields are then named `column_1`, "
        "`column_2`, and so on; `header=absent` in the `Content-Type` means the same.",
    )

    def described(self, content_type: str) -> Upload:
        """Return the upload of this type with these options. Raises UnsupportedMediaType, InvalidRequest."""
        refuse_long_content_type(content_type)
        media_type = essence(content_type)
        if media_type != CSV:
            own = {"fields"} if self.fields is not None else set()
            own |= set() if self.header else {"header"}
            for name in sorted(self.csv_options_set() | own):
                raise InvalidRequest(
                    f"'{name}' says how a CSV is written; leave it out with {media_type}", f"/{name}"
                )
            return Upload(media_type)
        message = Message()
        message["content-type"] = content_type
        charset = self._charset(message.get_param("charset"))
        has_header = self._has_header(str(message.get_param("header", "")).lower())
        dialect = CsvDialect(self.delimiter, tuple(self.null_tokens), charset, has_header, self.decimal_mark)
        return Upload(
            media_type, {"fields": json.loads(self.fields) if self.fields else None, "csv": dialect}
        )

    def _has_header(self, stated: str) -> bool:
        """Return whether the first line names the fields (RFC 4180, section 3: `header`)."""
        if stated == "present" and not self.header:
            raise InvalidRequest(
                "'header' and the header of the Content-Type differ; state one of the two", "/header"
            )
        return self.header and stated != "absent"

    def _charset(self, charset: object) -> str:
        if charset is None:
            return self.encoding or "utf-8"
        known = known_encoding(str(charset))
        if known is None:
            raise UnsupportedMediaType(
                f"{sent_as(f'text/csv; charset={charset}')}; a CSV's charset is one of {', '.join(ENCODINGS)}"
            )
        if self.encoding not in (None, known):
            raise InvalidRequest(
                "'encoding' and the charset of the Content-Type differ; state one of the two", "/encoding"
            )
        return known


class UploadOptions(CsvOptions, AnnotationsBody):
    """Options of an upload to a buffer: name, label and notes of the buffer, and how a CSV is written."""

    def described(self, content_type: str) -> Upload:
        """Return the upload of this type with these options.

        Raises UnsupportedMediaType, InvalidParameter: the options of an upload are in its query or its form.
        """
        try:
            upload = super().described(content_type)
        except InvalidRequest as error:
            raise InvalidParameter(error.message, error.pointer.removeprefix("/")) from None
        return replace(upload, annotations=self.annotations)


def refuse_long_content_type(content_type: str) -> None:
    """Raise UnsupportedMediaType if the type, with its parameters, is too long to be parsed."""
    if len(content_type) > _LONGEST_CONTENT_TYPE:
        raise UnsupportedMediaType(
            f"the media type has {len(content_type)} characters, and at most {_LONGEST_CONTENT_TYPE} are "
            "read; give it its own parameters alone, such as 'text/csv; charset=utf-8'"
        )


def uploaded_type(content_type: str, subject: str = "the body") -> str:
    """Return the content type if a buffer can be uploaded in it. Raises UnsupportedMediaType."""
    if essence(content_type) not in UPLOADED:
        raise UnsupportedMediaType(
            f"{sent_as(content_type, subject)}; a buffer is uploaded as {', '.join(UPLOADED)}, or as such a "
            "file in multipart/form-data; save a workbook such as .xlsx as CSV (UTF-8)"
        )
    return content_type


def type_of_name(name: str) -> str | None:
    """Return the media type that a file name's suffix stands for, if any."""
    return _SUFFIXES.get(PurePosixPath(name.lower()).suffix)


def type_of_file(content_type: str, name: str) -> str:
    """Return the content type of a form's file, or that of its suffix if the browser sent a generic one.

    Raises UnsupportedMediaType.
    """
    if essence(content_type) in UPLOADED:
        return content_type
    by_suffix = type_of_name(name)
    if by_suffix is None:
        raise UnsupportedMediaType(
            f"{sent_as(content_type, 'the file')}; its Content-Type must be one of {', '.join(UPLOADED)}, or "
            f"its name end in one of {', '.join(_SUFFIXES)}; save a workbook such as .xlsx as CSV (UTF-8)"
        )
    return by_suffix
