"""Schema checks of tables in every format: names, types and nesting depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from app.formats.errors import FormatError
from providers.tables.type_names import canonical_type, type_name

MOST_FIELDS = 100_000

MOST_SCHEMA_BYTES = 1 << 26

DEEPEST = 32
"""Maximum nesting depth that every format and every type name can represent."""

_SCALES = ((38, 38), (76, 76))
"""Maximum digits and absolute scale of decimals. Arrow reads beyond its table of powers of ten for one
more."""


def checked_names(names: Sequence[str]) -> list[str]:
    """Return the names. Raises FormatError: too many, an empty or a duplicate one."""
    if len(names) > MOST_FIELDS:
        raise FormatError(f"the table has {len(names)} fields; a table has at most {MOST_FIELDS}")
    for position, name in enumerate(names):
        if not name:
            raise FormatError(f"field {position + 1} has an empty name; give it one")
    for name, times in Counter(names).items():
        if times > 1:
            raise FormatError(f"field '{name[:100]}' is there {times} times; names of fields must be unique")
    return list(names)


def check_schema(schema: pa.Schema) -> None:
    """Raise FormatError unless names are unique and all types are known, at every depth."""
    if len(schema) > MOST_FIELDS:
        raise FormatError(f"the table has {len(schema)} fields; a table has at most {MOST_FIELDS}")
    if schema.serialize().size > MOST_SCHEMA_BYTES:
        raise FormatError(
            f"names, types and metadata take more than {MOST_SCHEMA_BYTES >> 20} MiB; shorten them"
        )
    try:
        checked_names(schema.names)
    except UnicodeDecodeError:
        raise FormatError("a field's name is not UTF-8") from None
    for field in schema:
        try:
            canonical = canonical_type(field.type)
            type_name(canonical)
        except UnicodeDecodeError:
            what = "the name of a member or of a time zone is not UTF-8"
            raise FormatError(f"field '{field.name}': {what}") from None
        except ValueError as error:
            raise FormatError(f"field '{field.name}': {error}") from None
        if reason := refused(canonical):
            raise FormatError(f"field '{field.name}' {reason}")


def refused(data_type: pa.DataType, depth: int = 0) -> str:
    """Return the reason why no field can have this canonical type; empty if one can."""
    if pa.types.is_decimal(data_type):
        furthest = next(scale for digits, scale in _SCALES if data_type.precision <= digits)
        if abs(data_type.scale) > furthest:
            return (
                f"has a decimal of scale {data_type.scale}; with its digits it is -{furthest} to {furthest}"
            )
    if not pa.types.is_nested(data_type):
        return ""
    if depth == DEEPEST:
        return f"is nested more than {DEEPEST} levels deep; flatten it"
    members = [data_type.field(number) for number in range(data_type.num_fields)]
    if pa.types.is_struct(data_type) and len({member.name for member in members}) < len(members):
        return "has two members of one name; names of members must be unique"
    return next((reason for member in members if (reason := refused(member.type, depth + 1))), "")
