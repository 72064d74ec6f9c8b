"""Digest of a table, computed value by value from its definition (`providers.tables.digest`)."""

import hashlib
import math
import struct
from typing import Any

import pyarrow as pa

from providers.tables.type_names import canonical_type, is_list, type_name

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

CHUNK_ROWS = 2**20


def naive_digest(table: pa.Table) -> str:
    """The digest by parts: of the fields, each of its chunks of rows, each of its states."""
    whole = b"rowveil.table/2\n" + struct.pack("<QQ", table.num_rows, table.num_columns)
    for field, column in zip(table.schema, table.columns, strict=True):
        values = [value_of(scalar) for scalar in column]
        parts = b""
        for first in range(0, len(values), CHUNK_ROWS):
            chunk = values[first : first + CHUNK_ROWS]
            found = states(canonical_type(field.type), chunk, b"rowveil.state/2\n")
            parts += sha256(b"rowveil.chunk/2\n" + u64(len(chunk)) + b"".join(found))
        type_text = text(type_name(field.type, units=False))
        whole += text(field.name) + sha256(b"rowveil.field/2\n" + type_text + u64(len(values)) + parts)
    return "sha256t:" + sha256(whole).hex()


def naive_digest_of_older_versions(table: pa.Table) -> str:
    """The first form, in which each state is that of all rows."""
    whole = b"rowveil.table/1\n" + struct.pack("<QQ", table.num_rows, table.num_columns)
    for field, column in zip(table.schema, table.columns, strict=True):
        values = [value_of(scalar) for scalar in column]
        digests = states(canonical_type(field.type), values)
        whole += text(field.name) + sha256(text(type_name(field.type, units=False)) + b"".join(digests))
    return "sha256:" + sha256(whole).hex()


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def text(string: str) -> bytes:
    return struct.pack("<Q", len(string.encode())) + string.encode()


def states(data_type: pa.DataType, values: list[Any], tag: bytes = b"") -> list[bytes]:
    """The digests of the states of a column, in order; the input of each begins with the tag."""
    kind = pa.types
    digests = [sha256(tag + bytes(0 if value is None else 1 for value in values))]
    present = [value for value in values if value is not None]
    if kind.is_null(data_type):
        return digests
    if kind.is_string(data_type) or kind.is_binary(data_type):
        data = [value.encode() if isinstance(value, str) else value for value in present]
        lengths = iter(map(len, data))
        digests.append(sha256(tag + b"".join(u64(0 if value is None else next(lengths)) for value in values)))
        return [*digests, sha256(tag + b"".join(data))]
    if kind.is_map(data_type) or is_list(data_type):
        digests.append(sha256(tag + b"".join(u64(0 if value is None else len(value)) for value in values)))
        elements = [element for value in present for element in value]
        if kind.is_map(data_type):
            digests += states(data_type.key_type, [key for key, _ in elements], tag)
            return digests + states(data_type.item_type, [item for _, item in elements], tag)
        return digests + states(data_type.value_type, elements, tag)
    if kind.is_struct(data_type):
        for number, member in enumerate(data_type):
            of_member = [None if value is None else value[number] for value in values]
            digests += states(member.type, of_member, tag)
        return digests
    width = len(fixed_width(data_type, ZERO))
    data = [bytes(width) if value is None else fixed_width(data_type, value) for value in values]
    return [*digests, sha256(tag + b"".join(data))]


ZERO: Any = object()


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def fixed_width(data_type: pa.DataType, value: Any) -> bytes:
    """The bytes of one value; of `ZERO`, as many zero bytes as a value has."""
    kind = pa.types
    zero = value is ZERO
    if kind.is_boolean(data_type):
        return bytes([0 if zero else value])
    if kind.is_floating(data_type):
        width = data_type.bit_width // 8
        if not zero and math.isnan(value):
            return {2: b"\0\x7e", 4: b"\0\0\xc0\x7f", 8: b"\0\0\0\0\0\0\xf8\x7f"}[width]
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[width], 0.0 if zero else value)
    if kind.is_fixed_size_binary(data_type):
        return bytes(data_type.byte_width) if zero else value
    if kind.is_interval(data_type):
        return struct.pack("<iiq", *((0, 0, 0) if zero else value))
    number = 0 if zero else value
    if kind.is_decimal(data_type):
        return number.to_bytes(16 if data_type.precision <= 38 else 32, "little", signed=True)
    if kind.is_date(data_type):
        return struct.pack("<i", number)
    if kind.is_time(data_type):
        return struct.pack("<q", number * 10**9 // PER_SECOND[data_type.unit])
    if kind.is_timestamp(data_type) or kind.is_duration(data_type):
        seconds, left = divmod(number, PER_SECOND[data_type.unit])
        return struct.pack("<qI", seconds, left * 10**9 // PER_SECOND[data_type.unit])
    return number.to_bytes(data_type.bit_width // 8, "little", signed=kind.is_signed_integer(data_type))


def value_of(scalar: Any) -> Any:
    """Return a value as a Python object, a temporal one as the stored integer."""
    kind, data_type = pa.types, scalar.type
    if isinstance(data_type, pa.BaseExtensionType) or kind.is_dictionary(data_type):
        return None if scalar.value is None else value_of(scalar.value)
    if kind.is_run_end_encoded(data_type):
        return None if scalar.value is None else value_of(pa.scalar(scalar.value, data_type.value_type))
    if not scalar.is_valid:
        return None
    if kind.is_map(data_type):
        return [(value_of(entry[0]), value_of(entry[1])) for entry in scalar.values]
    if is_list(data_type):
        return [value_of(element) for element in scalar.values]
    if kind.is_struct(data_type):
        return [value_of(scalar[number]) for number in range(data_type.num_fields)]
    if kind.is_date64(data_type):
        return scalar.value // 86_400_000
    if kind.is_temporal(data_type) and not kind.is_interval(data_type):
        return scalar.value
    if kind.is_decimal(data_type):
        sign, digits, exponent = scalar.as_py().as_tuple()
        unscaled = int("".join(map(str, digits))) * 10 ** (exponent + data_type.scale)
        return -unscaled if sign else unscaled
    return scalar.as_py()
