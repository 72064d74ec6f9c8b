"""What a table's fields must be, whatever carried it."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from app.api.formats.errors import FormatError
from providers.types import canonical_type, type_name


def checked_names(names: Sequence[str]) -> list[str]:
    """The names; raises FormatError if one is empty or given twice."""
    for position, name in enumerate(names):
        if not name:
            raise FormatError(f"field {position + 1} has an empty name; give it one")
    for name, times in Counter(names).items():
        if times > 1:
            raise FormatError(f"field '{name}' is there {times} times; a field's name must be its own")
    return list(names)


def check_schema(schema: pa.Schema) -> None:
    """Raise FormatError unless names are unique and all types are known, at every depth."""
    try:
        checked_names(schema.names)
    except UnicodeDecodeError:
        raise FormatError("a field's name is not UTF-8") from None
    for field in schema:
        try:
            type_name(field.type)
        except UnicodeDecodeError:
            what = "the name of a member or of a time zone is not UTF-8"
            raise FormatError(f"field '{field.name}': {what}") from None
        except ValueError as error:
            raise FormatError(f"field '{field.name}': {error}") from None
        _check_members(canonical_type(field.type), field.name)


def _check_members(data_type: pa.DataType, field: str) -> None:
    members = [data_type.field(number) for number in range(data_type.num_fields)]
    if pa.types.is_struct(data_type) and len({member.name for member in members}) < len(members):
        raise FormatError(f"field '{field}' has two members of one name; a member's name must be its own")
    for member in members:
        _check_members(member.type, field)
