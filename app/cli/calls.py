"""From options to a request, as the service would take it, and from an error to the option at fault."""

import argparse
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from app.api.formats import CSV as CSV_TYPE
from app.api.formats import FormatError
from app.api.problems import error_items
from app.api.sources import SourceTable
from app.api.uploads import CsvOptions
from app.cli.failures import CommandFailed, Exit
from app.cli.files import media_type_of
from app.cli.options import Options
from app.cli.room import Opened
from app.errors import AppError
from app.jobs.buffers import Upload
from app.store.blob_table import BlobTable
from providers.errors import ParameterError, ProviderError

M = TypeVar("M", bound=BaseModel)

CSV = "csv"
_ITS_TABLE = {"buffer": "the table of the command"}


class Call:
    """What a command line asks for."""

    def __init__(self, options: Options, namespace: argparse.Namespace) -> None:
        """Raises CommandFailed."""
        self.options = options
        self.namespace = namespace
        try:
            self.given = options.given(namespace)
        except ValueError as error:
            raise CommandFailed(str(error), Exit.USAGE) from None

    def request(self, model: type[M], **more: Any) -> M:
        """The request, its tables aside. Raises CommandFailed, with every option that is at fault."""
        tables = {
            name: _ITS_TABLE
            for name, field in model.model_fields.items()
            if name in ("source", "destination") and field.is_required()
        }
        body = {name: value for name, value in self.given.items() if name != CSV} | tables | more
        if "parameters" in model.model_fields:
            body.setdefault("parameters", {})  # so that it is told which of them are missing
        try:
            return model.model_validate(body)
        except ValidationError as error:
            raise CommandFailed(self._faults(error, body), Exit.USAGE) from None

    def upload(self, name: str, csv: dict[str, Any] | None = None) -> Upload:
        """What the table of this name is said to be. Raises CommandFailed."""
        media_type = media_type_of(name, self.namespace.format)
        given = self.given.get(CSV, {}) if csv is None else csv
        try:
            return CsvOptions.model_validate(given).described(media_type)
        except ValidationError as error:
            raise CommandFailed(self._faults(error, {CSV: given}, (CSV,)), Exit.USAGE) from None
        except AppError as error:
            raise CommandFailed(f"{name}: {error.message}", Exit.USAGE) from None

    def uploads(self, *names: str) -> list[Upload]:
        """The same of several tables: what is said of CSV is said of those that are. Raises CommandFailed."""
        csv = self.given.get(CSV, {})
        types = [media_type_of(name, self.namespace.format) for name in names]
        others = {} if CSV_TYPE in types else csv  # which then has no table to be about, and is refused
        return [
            self.upload(name, csv if media_type == CSV_TYPE else others)
            for name, media_type in zip(names, types, strict=True)
        ]

    def told(self, error: AppError | ProviderError | FormatError) -> CommandFailed:
        """The error in the words of the command line."""
        fault = isinstance(error, ParameterError | AppError)
        return CommandFailed(self.placed(error.message, error.pointer), Exit.USAGE if fault else Exit.FAILED)

    def placed(self, message: str, pointer: str) -> str:
        """The message, after the option that is at fault, if one is."""
        name = self.options.named(pointer) if pointer else ""
        return f"{name}: {message}" if name else message

    def _faults(self, error: ValidationError, body: dict[str, Any], within: tuple[str, ...] = ()) -> str:
        found = [{**each, "loc": ("body", *within, *each["loc"])} for each in error.errors()]
        items = error_items(RequestValidationError(found, body=body))
        return "\n".join(self.placed(item["message"], item["pointer"]) for item in items)


def as_source(opened: Opened) -> SourceTable:
    """A table of the room as the service's own checks take it."""
    stored = opened.stored
    schema = BlobTable(opened.access, stored.rows).schema
    return SourceTable(stored, schema, stored.rows, stored.digest)
