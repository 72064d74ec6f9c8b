"""Requests built from command line options, and errors mapped back to options."""

import argparse
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import media_type_of
from app.cli.options import Options
from app.cli.workspace import WorkspaceTable
from app.errors import AppError
from app.formats.errors import FormatError
from app.formats.media_types import CSV as CSV_TYPE
from app.jobs.tables.uploads import Upload
from app.requests.source import SourceTable
from app.requests.uploads import CsvOptions
from app.requests.validation_errors import error_items
from app.store.blobs.column_reader import BlobTable
from providers.errors import ParameterError, ProviderError

M = TypeVar("M", bound=BaseModel)

CSV = "csv"

_ITS_TABLE = {"buffer": "the table of the command"}


class Call:
    """Parsed command line."""

    def __init__(self, options: Options, namespace: argparse.Namespace) -> None:
        """Collect the request from the options. Raises CommandFailed."""
        self.options = options
        self.namespace = namespace
        self._fields: set[str] = set()
        """Names of the fields of all tables that were read."""
        try:
            self.given = options.given(namespace)
        except ValueError as error:
            raise CommandFailed(str(error), Exit.USAGE) from None

    def request(self, model: type[M], **more: Any) -> M:
        """Return the validated request, without its tables.

        Raises CommandFailed with every invalid option.
        """
        tables = {
            name: _ITS_TABLE
            for name, field in model.model_fields.items()
            if name in ("source", "destination") and field.is_required()
        }
        body = {name: value for name, value in self.given.items() if name != CSV} | tables | more
        if "parameters" in model.model_fields:
            body.setdefault("parameters", {})  # so that the error lists the missing parameters
        try:
            return model.model_validate(body, strict=False)  # options are text
        except ValidationError as error:
            raise CommandFailed(self._faults(error, body), Exit.USAGE) from None

    def upload(self, name: str, csv: dict[str, Any] | None = None) -> Upload:
        """Return media type and CSV options of a table's file. Raises CommandFailed."""
        media_type = media_type_of(name, self.namespace.format)
        given = self.given.get(CSV, {}) if csv is None else csv
        try:
            return CsvOptions.model_validate(given, strict=False).described(media_type)
        except ValidationError as error:
            raise CommandFailed(self._faults(error, {CSV: given}, (CSV,)), Exit.USAGE) from None
        except AppError as error:
            raise CommandFailed(f"{name}: {self.placed(error.message, '')}", Exit.USAGE) from None

    def uploads(self, *names: str) -> list[Upload]:
        """Return the same for several tables; CSV options apply to the CSV files only.

        Raises CommandFailed.
        """
        csv = self.given.get(CSV, {})
        types = [media_type_of(name, self.namespace.format) for name in names]
        others = {} if CSV_TYPE in types else csv  # CSV options without a CSV file are rejected
        return [
            self.upload(name, csv if media_type == CSV_TYPE else others)
            for name, media_type in zip(names, types, strict=True)
        ]

    def failure(self, error: AppError | ProviderError | FormatError) -> CommandFailed:
        """Return the error with the name of the option instead of the JSON pointer."""
        fault = isinstance(error, ParameterError | AppError)
        return CommandFailed(self.placed(error.message, error.pointer), Exit.USAGE if fault else Exit.FAILED)

    def placed(self, message: str, pointer: str, part: str = "") -> str:
        """Return the message in terms of options, prefixed by the invalid one if there is one.

        ``part``: part of the request that the message is about.
        """
        name = self.options.named(pointer) if pointer else ""
        message = self.options.in_message(message, self._fields, part)
        return f"{name}: {message}" if name else message

    def source(self, opened: WorkspaceTable) -> SourceTable:
        """Return a table of the workspace in the form that request validation expects."""
        stored = opened.stored
        schema = BlobTable(opened.access, stored.rows).schema
        self._fields.update(schema.names)
        return SourceTable(stored, schema, stored.rows, stored.digest)

    def _faults(self, error: ValidationError, body: dict[str, Any], within: tuple[str, ...] = ()) -> str:
        faults = [{**each, "loc": ("body", *within, *each["loc"])} for each in error.errors()]
        items = error_items(faults, body)
        return "\n".join(self.placed(item["message"], item["pointer"]) for item in items)
