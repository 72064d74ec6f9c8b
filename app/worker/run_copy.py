"""Task that copies a stored table with other types, without some fields, or with more nulls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from app.engine.engine import Outcome
from app.formats.errors import CellFault, FormatError
from app.formats.json_input import declared_types
from app.formats.value_text import first_fault, from_text, to_text
from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.sealed_files import BlobAccess
from app.worker.field_profile import flat
from app.worker.run_ingest import reports_no_room, write_checked
from app.worker.run_swap import returns_user_errors
from app.worker.tasks import WRITTEN
from providers.errors import ParameterError, SourceError, did_you_mean
from providers.tables.digest import DigestForm
from providers.tables.type_names import type_name, value_type


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copy a table to a blob."""

    source: BlobAccess
    table: BlobAccess = field(metadata={WRITTEN: True})
    drop: tuple[str, ...]
    """Fields to leave out."""
    types: dict[str, str]
    """Field -> its new type."""
    null_tokens: tuple[str, ...] = field(repr=False)
    """Texts that become null in fields of text, before a type is changed."""
    max_bytes: int
    """Largest size of the copy in bytes."""
    draft: str = ""
    """File with reserved disk space, which becomes the table's draft."""
    digest_form: DigestForm = DigestForm.PARTS
    """Form of the copy's digest."""


def check_copied_fields(names: Sequence[str], drop: Sequence[str], types: Mapping[str, str]) -> None:
    """Raise ParameterError if a field is unknown, is dropped and converted, or if no field remains."""
    known = set(names)
    for member, given in (("drop", drop), ("types", types)):
        for name in given:
            if name not in known:
                raise ParameterError(f"there is no field '{name}'{did_you_mean(name, names)}", f"/{member}")
    if both := sorted(set(drop) & set(types)):
        raise ParameterError(
            f"field '{both[0]}' is dropped, so it has no type; give one of the two", "/types"
        )
    if not known - set(drop):
        raise ParameterError("a table has at least one field; drop fewer", "/drop")


def run_copy(task: CopyTask) -> Outcome:
    """Write the copy, and return its digest, fields and size."""
    return reports_no_room(lambda: _copied(task), task.max_bytes)


@returns_user_errors
def _copied(task: CopyTask) -> dict[str, Any]:
    reader = TableReader(task.source)
    try:
        return write_checked(task, *_copy(task, reader))
    except FormatError as error:
        pointer = error.pointer.replace("/fields", "/types", 1) if error.pointer else error.pointer
        raise SourceError(error.message, pointer) from None
    finally:
        reader.close()


def _copy(task: CopyTask, reader: TableReader) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return schema and batches of the copy, without the metadata of pandas, which no longer hold."""
    types = declared_types(task.types)
    fields = []
    for each in reader.schema:
        if each.name in task.drop:
            continue
        if each.name in types:
            each = pa.field(each.name, types[each.name])
        elif task.null_tokens and _is_text(each.type):
            each = pa.field(
                each.name, pa.large_string() if pa.types.is_large_string(each.type) else pa.string()
            )
        fields.append(each)
    notes = {name: note for name, note in (reader.schema.metadata or {}).items() if name != b"pandas"}
    schema = pa.schema(fields, notes or None)
    return schema, _batches(task, reader, schema)


def _is_text(data_type: pa.DataType) -> bool:
    values = value_type(data_type)
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values))


def _batches(task: CopyTask, reader: TableReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in reader:
        columns = []
        for target in schema:
            column = batch.column(target.name)
            if task.null_tokens and _is_text(column.type):
                texts = flat(column)
                is_token = pc.is_in(texts, pa.array(task.null_tokens, texts.type))
                column = pc.if_else(is_token, pa.scalar(None, texts.type), texts)
            if target.type != column.type:
                column = _converted(flat(column), target, done)
            columns.append(column)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        done += batch.num_rows


def _converted(values: pa.Array, target: pa.Field, first_row: int) -> pa.Array:
    """Convert the values to the field's type. Raises FormatError for the first value that it cannot hold."""
    kind = pa.types
    pointer = f"/types/{target.name.replace('~', '~0').replace('/', '~1')}"
    if any(kind.is_nested(each) or kind.is_interval(each) for each in (values.type, target.type)):
        raise FormatError(
            f"field '{target.name}' of type {type_name(values.type)} cannot become {type_name(target.type)}",
            pointer,
        )
    numeric = [kind.is_integer(each) or kind.is_floating(each) for each in (values.type, target.type)]
    temporal = [kind.is_date(each) or kind.is_timestamp(each) for each in (values.type, target.type)]
    what = f"the value does not fit {type_name(target.type)} exactly"
    try:
        if all(numeric):
            return first_fault(values, lambda some: _numbers(some, target.type), what)
        if all(temporal):
            return first_fault(values, lambda some: _times(some, target.type), what)
        converted = from_text(to_text(values).cast(pa.string()), target.type)
        if kind.is_decimal(values.type) and kind.is_floating(target.type):
            first_fault(values, lambda some: _same_digits(some, target.type), what)
        return converted
    except CellFault as fault:
        where = f"field '{target.name}', row {first_row + fault.index} (counting from 0)"
        raise FormatError(f"{where}: {fault.what}", pointer) from None


def _numbers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert integers and floats; a float becomes the nearest one of fewer bits.

    Raises pa.ArrowInvalid, ValueError.
    """
    converted = values.cast(kind)
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):
        lost = pc.or_(
            pc.and_(pc.is_finite(values), pc.invert(pc.is_finite(converted))),
            pc.and_(pc.not_equal(values, 0.0), pc.equal(converted, 0.0)),
        )
        if pc.any(lost).as_py():
            raise ValueError("beyond the range of the type")
    return converted


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert dates and timestamps; a timestamp becomes a date at midnight alone, by the clock of its zone.

    Raises pa.ArrowInvalid, ValueError.
    """
    if not (pa.types.is_timestamp(values.type) and pa.types.is_date(kind)):
        return values.cast(kind)
    local = values if values.type.tz is None else pc.local_timestamp(values)
    dates = local.cast(pa.date32())
    if pc.any(pc.not_equal(dates.cast(local.type), local)).as_py():
        raise ValueError("not midnight")
    return dates.cast(kind)


def _same_digits(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the decimals if the shortest texts of the floats that they become are the same numbers.

    Raises pa.ArrowInvalid, ValueError.
    """
    texts = to_text(from_text(to_text(values).cast(pa.string()), kind)).cast(pa.string())
    if pc.any(pc.not_equal(texts.cast(values.type), values)).as_py():
        raise ValueError("other digits")
    return values
