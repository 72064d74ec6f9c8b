"""JSON reader: rows or columns of JSON values to a table.

Fields are in the order of their first appearance. `fields` may declare the types of some fields; the others
are inferred (`app.formats.json_columns`). A key that a row lacks is a null. Without rows, `fields` alone
determines the fields of the table.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, NoReturn

import pyarrow as pa

from app.formats.errors import FormatError, Place
from app.formats.json_columns import Values, column, inferred_column
from app.formats.schema_checks import MOST_FIELDS, refused
from app.formats.size_limits import MOST_CELLS, check_size
from providers.errors import did_you_mean, reference_token
from providers.tables.type_names import canonical_type, parse_type, unquoted_unknown_zone

Fields = Mapping[str, str] | list[dict[str, str]]
"""Field -> type name; or a list of ``{"name", "type"}``, as in responses."""


def table_from_rows(rows: list[dict[str, Any]], fields: Fields | None = None) -> pa.Table:
    """Return the table of a list of records."""
    declared = declared_types(fields)
    if type(rows) is not list:
        raise FormatError("'rows' must be a list of objects, one a row", "/rows")
    if not rows:
        return _table({name: [] for name in declared}, declared, _row_place)
    for index, row in enumerate(rows) if set(map(type, rows)) != {dict} else ():
        if type(row) is not dict:
            what = "must be an object, field -> value"
            raise FormatError(f"row {index} (counting from 0) {what}", f"/rows/{index}")
    return _table(_gather(rows), declared, _row_place)


def table_from_columns(columns: dict[str, list[Any]], fields: Fields | None = None) -> pa.Table:
    """Return the table of field -> list of values, all of one length."""
    declared = declared_types(fields)
    if type(columns) is not dict:
        raise FormatError("'columns' must be an object, field -> list of values", "/columns")
    if not columns:
        return _table({name: [] for name in declared}, declared, _column_place)
    length: int | None = None
    for name, values in columns.items():
        if type(values) is not list:
            raise FormatError(f"field '{name}' must be a list of values", f"/columns/{reference_token(name)}")
        length = len(values) if length is None else length
        if len(values) != length:
            first = next(iter(columns))
            what = f"has {len(values)} values where '{first}' has {length}; give all the same number"
            raise FormatError(f"field '{name}' {what}", f"/columns/{reference_token(name)}")
    return _table(columns, declared, _column_place)


def _gather(rows: list[dict[str, Any]]) -> dict[str, Values]:
    """Collect the values of each field, with the fields in order of first appearance."""
    first = rows[0]
    if set(map(len, rows)) == {len(first)}:
        # every row has as many keys as the first row, and all of its keys: the same keys
        try:
            gathered: dict[str, Values] = {name: list(map(itemgetter(name), rows)) for name in first}
        except KeyError:
            pass
        else:
            return _none_empty(gathered)
    names = dict.fromkeys(chain.from_iterable(rows))
    if len(names) > MOST_FIELDS or len(names) * len(rows) > MOST_CELLS:
        raise FormatError(
            f"the rows have {len(names)} different fields in all, most of them missing in most rows; "
            "upload such a table in POST /v1/buffers",
            "/rows",
        )
    return _none_empty({name: [row.get(name) for row in rows] for name in names})


def _none_empty(gathered: dict[str, Values]) -> dict[str, Values]:
    if not gathered:
        raise FormatError("the rows have no fields; a row is an object, field -> value", "/rows")
    return gathered


def _row_place(name: str) -> Place:
    return Place(name, lambda index: (f"/rows/{index}/{reference_token(name)}", index))


def _column_place(name: str) -> Place:
    return Place(name, lambda index: (f"/columns/{reference_token(name)}/{index}", index))


def _table(
    columns: Mapping[str, Values], declared: dict[str, Any], place_of: Callable[[str], Place]
) -> pa.Table:
    refuse_unknown(declared, columns)
    if len(columns) > MOST_FIELDS:
        raise FormatError(f"the table has {len(columns)} fields; a table has at most {MOST_FIELDS}")
    rows = len(next(iter(columns.values()), ()))
    check_size(pa.struct(list(declared.items())), rows, "the fields that have a stated type")
    arrays = []
    for name, values in columns.items():
        if not name:
            raise FormatError("a field has an empty name; give it one", place_of(name).locate(0)[0])
        place = place_of(name)
        arrays.append(
            column(values, declared[name], place) if name in declared else inferred_column(values, place)
        )
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({})


def refuse_unknown(declared: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    """Raise FormatError if a declared field is none of `names`."""
    for name in declared:
        if name not in names:
            raise FormatError(
                f"'fields' states a type for unknown field '{name}'{did_you_mean(name, names)}",
                f"/fields/{reference_token(name)}",
            )


def named_types(fields: Any) -> Any:
    """Return field -> type, also for a list of names and types as in every response with rows.

    Raises FormatError: the list has something else, or a name twice. What is no list is returned unchanged.
    """
    if not isinstance(fields, list):
        return fields
    return {name: type_text for name, type_text, _ in _statements(fields)}


def declared_types(fields: Fields | None) -> dict[str, Any]:
    """Return field -> declared type. Raises FormatError: not a type."""
    return {
        name: _declared_type(name, type_text, pointer) for name, type_text, pointer in _statements(fields)
    }


def _declared_type(name: str, type_text: str, pointer: str) -> pa.DataType:
    if not isinstance(type_text, str):
        raise FormatError("a type is stated by its name as text, such as 'int64'", pointer)
    try:
        declared = canonical_type(parse_type(type_text))
    except UnicodeEncodeError:
        raise FormatError("a quoted name in the type has half of a surrogate pair", pointer) from None
    except ValueError as error:
        raise FormatError(str(error), pointer) from None
    if (zone := unquoted_unknown_zone(type_text)) is not None:
        raise FormatError(
            f"unknown time zone '{zone}'; a zone that only other programs know is written in double quotes, "
            f'as in timestamp[us, "Base/Alpha"]{did_you_mean(zone, sorted(zoneinfo.available_timezones()))}',
            pointer,
        )
    if reason := refused(declared):
        raise FormatError(f"field '{name}' {reason}", pointer)
    return declared


def _statements(fields: Fields | None) -> list[tuple[str, str, str]]:
    """Return (field, type name, pointer) of each declaration."""
    if fields is None:
        return []
    if isinstance(fields, Mapping):
        return [(name, type_text, f"/fields/{reference_token(name)}") for name, type_text in fields.items()]
    if type(fields) is not list:
        _refuse_fields("/fields")
    statements: list[tuple[str, str, str]] = []
    names: set[str] = set()
    for index, field in enumerate(fields):
        match field:
            case {"name": str(), "type": str()} if len(field) == 2:
                pass
            case _:
                _refuse_fields(f"/fields/{index}")
        if field["name"] in names:
            raise FormatError(
                f"field '{field['name']}' is listed twice; name each once", f"/fields/{index}/name"
            )
        names.add(field["name"])
        statements.append((field["name"], field["type"], f"/fields/{index}/type"))
    return statements


def _refuse_fields(pointer: str) -> NoReturn:
    raise FormatError(
        "'fields' must be an object, field -> type name, or a list of objects with name and type", pointer
    )
