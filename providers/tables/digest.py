r"""Content digest of a table, independent of media type, chunking, slicing and encoding.

The digest is ``"sha256:" + hex`` of the following. This specification is complete.

All integers are little-endian; ``u64`` is an unsigned integer of 8 bytes; a *text* is a u64, the
number of its UTF-8 bytes, and these bytes. "Fed" means appended to the input of a SHA-256.

**Table.** SHA-256 of: the 16 bytes ``rowveil.table/1\n``; u64 number of rows; u64 number of fields;
then for each field in order its name as a text and the 32 bytes of its field digest. Metadata and
nullable flags are not part of it.

**Field.** SHA-256 of: the type as a text (the canonical name of `type_names`, in which the
units of time, timestamp and duration are left out at every depth: ``time``, ``timestamp``,
``timestamp[Europe/Dublin]``, ``duration``); then the 32-byte digests of the states of the column,
in the order given below.

**States of a column of type T with n values.** First *validity*: one byte a value, 1 where it is
present and 0 where it is null. Then by T:

null
    nothing more.
bool, numbers, decimal, date, time, timestamp, duration, interval, fixed_binary
    *values*: for each value a fixed number of bytes, all of them zero for a null:
    bool 1 byte, 0 or 1; int and uint their own width in two's complement; float IEEE 754 of its
    width, every NaN as 0x7e00, 0x7fc00000 or 0x7ff8000000000000, and -0.0 kept apart from 0.0;
    decimal(p,s) the unscaled integer in two's complement of 16 bytes where p <= 38, else 32;
    date int32, days since 1970-01-01; time int64, nanoseconds since midnight; timestamp and
    duration int64, whole seconds rounded down, then uint32, the nanoseconds left over, 0 to
    999 999 999 (12 bytes); interval int32 months, int32 days, int64 nanoseconds;
    fixed_binary(n) its n bytes.
string, binary
    *lengths*: a u64 for each value, its number of bytes, 0 for a null; *bytes*: the bytes of all
    values end to end, those of a null left out.
list<T>
    *lengths*: a u64 for each value, its number of elements, 0 for a null; then the states of the
    column of all elements end to end, those of null lists left out.
map<K, V>
    *lengths* as for a list; then the states of the column of all keys, then those of the column of
    all items, in the order in which they are stored.
struct<...>
    for each child in order its states as a column of n values, null where the struct is null.

A dictionary, run-end or view encoding, a large or fixed-size list, date64, an extension type and a
decimal of another storage width are digested as the values that they encode. The unit does not matter,
so ``timestamp[s]``, which Parquet turns into ``timestamp[ms]``, keeps its digest.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.tables.encodings import list_children, list_lengths, plain, struct_children, validity
from providers.tables.type_names import canonical_type, is_list, type_name

_TAG = b"rowveil.table/1\n"

_BLOCK = 1 << 16
"""Number of rows hashed at a time, so that temporary arrays stay in the second-level cache."""

_SHARED = 16
"""Number of cached hashes of a validity without nulls, which the fields of a table have in common."""

_INSTANT = np.dtype([("seconds", "<i8"), ("nanoseconds", "<u4")])
"""Canonical form of a timestamp or duration, 12 bytes."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def table_digest(table: pa.Table) -> str:
    """Return ``"sha256:"`` and 64 hex digits; the module's docstring specifies the canonical form.

    Raises ValueError for a type without a canonical name (a union).
    """
    digest = TableDigest(table.schema)
    for batch in table.to_batches():
        digest.update(batch)
    if not table.num_columns:
        digest.rows = table.num_rows
    return digest.finish()


class TableDigest:
    """Digest of a table that arrives in record batches; temporary memory is that of one block of rows."""

    def __init__(self, schema: pa.Schema) -> None:
        """Start the digest of an empty table. Raises ValueError for a type without a canonical name."""
        self.rows = 0
        self._names = [field.name for field in schema]
        self._types = [type_name(field.type, units=False) for field in schema]
        self._columns = [_states(canonical_type(field.type)) for field in schema]

    def update(self, batch: pa.RecordBatch) -> None:
        """Add rows. Each batch may have its own encodings. Raises ValueError if the fields differ."""
        for add in self.work(batch):
            add()

    def work(self, batch: pa.RecordBatch, most: int = 1) -> list[Callable[[], None]]:
        """Divide `update` into up to `most` functions, which may be called in parallel.

        All must have returned before those of the next batch are called. Raises as `update`.
        """
        types = [type_name(field.type, units=False) for field in batch.schema]
        if batch.schema.names != self._names or types != self._types:
            raise ValueError("the batch does not have the fields of the schema; use a digest of its own")
        self.rows += batch.num_rows
        fields = list(zip(self._columns, batch.columns, strict=True))
        return [partial(_add, fields[first::most]) for first in range(min(most, len(fields)))]

    def finish(self) -> str:
        """Return the digest of all rows so far."""
        whole = hashlib.sha256(_TAG + _u64(self.rows) + _u64(len(self._names)))
        for name, type_text, states in zip(self._names, self._types, self._columns, strict=True):
            field = hashlib.sha256(_text(type_text))
            for digest in states.digests():
                field.update(digest)
            whole.update(_text(name) + field.digest())
        return f"sha256:{whole.hexdigest()}"


def _add(fields: "list[tuple[_Nulls, pa.Array]]") -> None:
    """Feed columns to their states, block by block."""
    for states, column in fields:
        for start in range(0, len(column), _BLOCK):
            states.update(column.slice(start, _BLOCK))


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _u64(len(encoded)) + encoded


# ------------------------------------------------------------------------------ states of a column


@lru_cache(_SHARED)
def _all_valid(count: int) -> "hashlib._Hash":
    """SHA-256 of the validity of `count` values of which none is null; copy it before updating it."""
    ones = hashlib.sha256()
    block = bytes([1]) * min(count, _BLOCK)
    for start in range(0, count, _BLOCK):
        ones.update(block[: count - start])
    return ones


class _Nulls:
    """States of a column of type null, and base class: the validity of every column."""

    def __init__(self) -> None:
        self._there = 0
        """Number of values before the first null, whose validity is not fed value by value."""
        self._valid: hashlib._Hash | None = None

    def update(self, array: pa.Array) -> pa.Array:
        """Feed the validity, and return the array without its encodings."""
        array = plain(array)
        if self._valid is None and not array.null_count:
            self._there += len(array)
            return array
        if self._valid is None:
            self._valid = _all_valid(self._there).copy()
        self._valid.update(validity(array).data)
        return array

    def digests(self) -> list[bytes]:
        return [(self._valid or _all_valid(self._there)).digest()]


class _FixedWidth(_Nulls):
    """States of values of a fixed number of bytes."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__()
        self.values = hashlib.sha256()
        self.canonical = _fixed_width_form(data_type)

    def update(self, array: pa.Array) -> pa.Array:
        array = super().update(array)
        values = self.canonical(array)
        if array.null_count:
            values = np.where(validity(array) == 1, values, np.zeros((), values.dtype))
        self.values.update(np.ascontiguousarray(values).view(np.uint8).data)
        return array

    def digests(self) -> list[bytes]:
        return [*super().digests(), self.values.digest()]


class _Bytes(_Nulls):
    """States of strings and binaries."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths = hashlib.sha256()
        self.bytes = hashlib.sha256()

    def update(self, array: pa.Array) -> pa.Array:
        array = super().update(array)
        lengths, shown = _byte_lengths(array)
        if array.null_count:
            valid = validity(array)
            if lengths[valid == 0].any():  # the bytes of a null are no part of the data
                shown = _byte_lengths(array.drop_null())[1]
            lengths *= valid
        self.lengths.update(lengths.data)
        self.bytes.update(shown)
        return array

    def digests(self) -> list[bytes]:
        return [*super().digests(), self.lengths.digest(), self.bytes.digest()]


def _byte_lengths(array: pa.Array) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Return the stored length of each string or binary, and all their bytes."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, starts, data = array.buffers()
    if not len(array) or starts is None:
        return np.zeros(len(array), np.int64), memoryview(b"")
    stored = np.dtype(np.int64 if wide else np.int32)
    offsets = np.frombuffer(starts, stored, len(array) + 1, array.offset * stored.itemsize).astype(np.int64)
    shown = memoryview(b"" if data is None else data)[offsets[0] : offsets[-1]]
    return np.diff(offsets), shown


class _Struct(_Nulls):
    """States of a struct: those of each child as a column."""

    def __init__(self, children: list[pa.DataType]) -> None:
        super().__init__()
        self.children = [_states(child) for child in children]

    def update(self, array: pa.Array) -> pa.Array:
        array = super().update(array)
        for states, child in zip(self.children, struct_children(array), strict=True):
            states.update(child)
        return array

    def digests(self) -> list[bytes]:
        return [*super().digests(), *(digest for child in self.children for digest in child.digests())]


class _Lists(_Nulls):
    """States of lists and maps: lengths, and those of the elements as columns."""

    def __init__(self, children: list[pa.DataType]) -> None:
        super().__init__()
        self.lengths = hashlib.sha256()
        self.children = [_states(child) for child in children]

    def update(self, array: pa.Array) -> pa.Array:
        array = super().update(array)
        self.lengths.update(np.ascontiguousarray(list_lengths(array)).data)
        for states, child in zip(self.children, list_children(array), strict=True):
            states.update(child)
        return array

    def digests(self) -> list[bytes]:
        children = (digest for child in self.children for digest in child.digests())
        return [*super().digests(), self.lengths.digest(), *children]


def _states(data_type: pa.DataType) -> _Nulls:
    """Return new states for a column of a canonical type."""
    kind = pa.types
    if kind.is_null(data_type):
        return _Nulls()
    if kind.is_string(data_type) or kind.is_binary(data_type):
        return _Bytes()
    if kind.is_map(data_type):
        return _Lists([data_type.key_type, data_type.item_type])
    if is_list(data_type):
        return _Lists([data_type.value_type])
    if kind.is_struct(data_type):
        return _Struct([field.type for field in data_type])
    return _FixedWidth(data_type)


# -------------------------------------------------------------------- canonical fixed-width values


def _fixed_width_form(data_type: pa.DataType) -> Any:
    """Return the function from a plain array to an ndarray of canonical values; nulls are arbitrary."""
    kind = pa.types
    if kind.is_boolean(data_type):
        return lambda array: np.asarray(array.fill_null(False).cast(pa.uint8()))
    if kind.is_floating(data_type):
        return partial(_floats, np.dtype(f"<f{data_type.bit_width // 8}"))
    if kind.is_time(data_type):
        return _times
    if kind.is_timestamp(data_type) or kind.is_duration(data_type):
        return _instants
    if kind.is_integer(data_type):
        sign = "i" if kind.is_signed_integer(data_type) else "u"
        return partial(_stored, np.dtype(f"<{sign}{data_type.bit_width // 8}"))
    if kind.is_date(data_type):
        return partial(_stored, np.dtype("<i4"))
    return partial(_stored, np.dtype(f"V{data_type.bit_width // 8}"))


def _stored(stored: np.dtype[Any], array: pa.Array) -> npt.NDArray[Any]:
    """Return the values as stored in memory, without a copy."""
    data = array.buffers()[1]
    if data is None or not stored.itemsize or not len(array):
        return np.zeros(len(array), stored)
    return np.frombuffer(data, stored, len(array), array.offset * stored.itemsize)


def _floats(stored: np.dtype[Any], array: pa.Array) -> npt.NDArray[Any]:
    """Return the values with one bit pattern for all NaN."""
    values = _stored(stored, array)
    nan = np.isnan(values)
    if not nan.any():
        return values
    values = values.copy()
    values.view(f"<u{stored.itemsize}")[nan] = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[
        stored.itemsize
    ]
    return values


def _times(array: pa.Array) -> npt.NDArray[Any]:
    """Return times as nanoseconds since midnight."""
    stored = np.dtype(f"<i{array.type.bit_width // 8}")
    return _stored(stored, array).astype("<i8") * (1_000_000_000 // _PER_SECOND[array.type.unit])


def _instants(array: pa.Array) -> npt.NDArray[Any]:
    """Return timestamps or durations as seconds and nanoseconds."""
    per_second = _PER_SECOND[array.type.unit]
    seconds, left = np.divmod(_stored(np.dtype("<i8"), array), per_second)
    instants = np.empty(len(array), _INSTANT)
    instants["seconds"] = seconds
    instants["nanoseconds"] = left * (1_000_000_000 // per_second)
    return instants
