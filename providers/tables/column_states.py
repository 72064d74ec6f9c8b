"""SHA-256 digests of the states of a column, from which both forms of a table's digest are made.

`providers.tables.digest` specifies every byte.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.tables.encodings import list_children, list_lengths, plain, struct_children, validity
from providers.tables.type_names import is_list

_BLOCK = 1 << 16
"""Number of rows hashed at a time, so that temporary arrays stay in the second-level cache."""

_SHARED = 16
"""Number of cached hashes of a validity without nulls, which the fields of a table have in common."""

_INSTANT = np.dtype([("seconds", "<i8"), ("nanoseconds", "<u4")])
"""Canonical form of a timestamp or duration, 12 bytes."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def new_states(data_type: pa.DataType, tag: bytes) -> States:
    """Return the states of an empty column of a canonical type; each hash begins with ``tag``."""
    kind = pa.types
    if kind.is_null(data_type):
        return States(tag)
    if kind.is_string(data_type) or kind.is_binary(data_type):
        return _Bytes(tag)
    if kind.is_map(data_type):
        return _Lists([data_type.key_type, data_type.item_type], tag)
    if is_list(data_type):
        return _Lists([data_type.value_type], tag)
    if kind.is_struct(data_type):
        return _Struct([field.type for field in data_type], tag)
    return _FixedWidth(data_type, tag)


def add_rows(states: States, column: pa.Array) -> None:
    """Feed the values of a column to its states, block by block."""
    for start in range(0, len(column), _BLOCK):
        states.update(column.slice(start, _BLOCK))


@lru_cache(_SHARED)
def _all_valid(count: int, tag: bytes) -> hashlib._Hash:
    """SHA-256 of the tag and the validity of `count` values without nulls; copy it before updating it."""
    ones = hashlib.sha256(tag)
    block = bytes([1]) * min(count, _BLOCK)
    for start in range(0, count, _BLOCK):
        ones.update(block[: count - start])
    return ones


class States:
    """States of a column of type null, and base class: the validity of every column."""

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
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
            self._valid = _all_valid(self._there, self._tag).copy()
        self._valid.update(validity(array).data)
        return array

    def digests(self) -> list[bytes]:
        """Return the digest of each state for all values so far, 32 bytes each."""
        return [(self._valid or _all_valid(self._there, self._tag)).digest()]


class _FixedWidth(States):
    """States of values of a fixed number of bytes."""

    def __init__(self, data_type: pa.DataType, tag: bytes) -> None:
        super().__init__(tag)
        self.values = hashlib.sha256(tag)
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


class _Bytes(States):
    """States of strings and binaries."""

    def __init__(self, tag: bytes) -> None:
        super().__init__(tag)
        self.lengths = hashlib.sha256(tag)
        self.bytes = hashlib.sha256(tag)

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


class _Struct(States):
    """States of a struct: those of each child as a column."""

    def __init__(self, children: list[pa.DataType], tag: bytes) -> None:
        super().__init__(tag)
        self.children = [new_states(child, tag) for child in children]

    def update(self, array: pa.Array) -> pa.Array:
        array = super().update(array)
        for states, child in zip(self.children, struct_children(array), strict=True):
            states.update(child)
        return array

    def digests(self) -> list[bytes]:
        return [*super().digests(), *(digest for child in self.children for digest in child.digests())]


class _Lists(States):
    """States of lists and maps: lengths, and those of the elements as columns."""

    def __init__(self, children: list[pa.DataType], tag: bytes) -> None:
        super().__init__(tag)
        self.lengths = hashlib.sha256(tag)
        self.children = [new_states(child, tag) for child in children]

    def update(self, array: pa.Array) -> pa.Array:
        array = super().update(array)
        self.lengths.update(np.ascontiguousarray(list_lengths(array)).data)
        for states, child in zip(self.children, list_children(array), strict=True):
            states.update(child)
        return array

    def digests(self) -> list[bytes]:
        children = (digest for child in self.children for digest in child.digests())
        return [*super().digests(), self.lengths.digest(), *children]


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
