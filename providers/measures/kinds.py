"""What a field is to the measures: numbers, times, categories, or nothing that they can take."""

from typing import Literal

import pyarrow as pa

from providers.literals import value_type
from providers.numeric import is_numeric

Kind = Literal["number", "time", "category"]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values below extensions, dictionaries and runs."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    kind = value_type(kind)
    return plain_type(kind) if isinstance(kind, pa.BaseExtensionType) else kind


def kind_of(kind: pa.DataType) -> Kind | None:
    """What values of the type are by themselves; None where they are nothing that is measured."""
    kind = plain_type(kind)
    if is_numeric(kind):
        return "number"
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return "time"
    if pa.types.is_boolean(kind) or _is_text(kind) or _is_bytes(kind):
        return "category"
    return None


def comparable(source: pa.DataType, destination: pa.DataType, categorical: bool = False) -> bool:
    """Whether values of two types can be told equal, and where they are numbers subtracted.

    Numbers of all types are; text of all widths, and bytes; times of one type, and dates with numbers,
    which count days since 1970 as LOCALITY's do.
    """
    one, two = plain_type(source), plain_type(destination)
    if kind_of(one) is None or kind_of(two) is None:
        return False
    if one == two or (is_numeric(one) and is_numeric(two)):
        return True
    if pa.types.is_date(one) and (pa.types.is_date(two) or is_numeric(two)):
        return not (categorical and is_numeric(two))
    return (_is_text(one) and _is_text(two)) or (_is_bytes(one) and _is_bytes(two))


def why_not(source: pa.Field, destination: pa.Field, categorical: bool = False) -> str | None:
    """Why a field is not measured, in plain words; None where it is."""
    for field, which in ((source, "source"), (destination, "destination")):
        if kind_of(field.type) is None:
            return (
                f"it has type {field.type} in the {which}; measured are numbers, dates, times, text, "
                "bytes and booleans"
            )
    if not comparable(source.type, destination.type, categorical):
        return (
            f"its type is {source.type} in the source and {destination.type} in the destination, "
            "which do not compare"
        )
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
