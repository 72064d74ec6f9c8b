"""Check field names against a schema; change the type of a field and drop metadata of the old type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from providers.errors import ParameterError, SourceError, did_you_mean

_EXTENSION = b"ARROW:extension:"
"""Prefix of the field metadata that name an extension type."""

PANDAS = b"pandas"
"""Key of the schema metadata in which pandas stores its types, to which a reader converts."""


def with_field_type(schema: pa.Schema, index: int, data_type: pa.DataType) -> pa.Schema:
    """Return the schema with another type for the field of this index.

    Metadata are kept, except for those that would be wrong for the new type: the extension that the field's
    metadata name, and the schema's ``pandas`` entry.
    """
    field = schema.field(index)
    if field.type == data_type:
        return schema
    own = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_EXTENSION)}
    whole = {key: value for key, value in (schema.metadata or {}).items() if key != PANDAS}
    changed = field.with_type(data_type).with_metadata(own or None)
    return schema.set(index, changed).with_metadata(whole or None)


def check_unique_names(schema: pa.Schema) -> None:
    """Raise SourceError if two fields of the source have the same name."""
    for name, times in Counter(schema.names).items():
        if times > 1:
            raise SourceError(f"the source holds {times} fields named '{name}'")


def check_names(
    names: Sequence[str], schema: pa.Schema, pointer_of: Callable[[int], str], kind: str = "field"
) -> None:
    """Raise ParameterError if a name is unknown or appears twice.

    Parameters
    ----------
    names : sequence of str
        Field names of one parameter.
    schema : pa.Schema
        Schema of the source.
    pointer_of : callable
        Index of a name -> its JSON pointer in the request.
    kind : str
        Word for the fields in messages.
    """
    named: set[str] = set()
    for index, name in enumerate(names):
        if not schema.get_all_field_indices(name):  # `schema.names` lists all fields at each use
            raise ParameterError(
                f"unknown {kind} '{name}'{did_you_mean(name, schema.names)}", pointer_of(index)
            )
        if name in named:
            raise ParameterError(f"{kind} '{name}' is named twice; name it once", pointer_of(index))
        named.add(name)
