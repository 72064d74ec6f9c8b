"""Keyed sketches by which two tables are recognised as versions of one source, without holding a value.

A sketch is a min-hash of the multiset of rows, or of the runs of six consecutive values of a field, in the
first rows of a table. Two sketches of one key agree in about as many places as the Jaccard similarity of the
two multisets; without the key nobody can test whether a value is in one. Runs are compared because two
samples of one population have nearly the same values of a field, but not in the same order.

References
----------
Broder 1997, On the resemblance and containment of documents, SEQUENCES '97, 21-29,
doi:10.1109/SEQUEN.1997.666900 (there runs are called shingles).
Li, Owen and Zhang 2012, One permutation hashing, NIPS 25: one hash of each element, split into places.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from providers.kernels.blake2b import keyed_hashes
from providers.tables.columns import combined, take_rows
from providers.tables.equality import equality_codes
from providers.tables.sketch_kernels import (
    EMPTY,
    PLACES,
    RUN,
    SAME_FIELD,
    SAME_ROWS,
    add_field,
    fill_places,
    find_same,
    mix_all,
)

SKETCHED_ROWS = 4096
"""Rows from the beginning of a table that are sketched."""

_LEAST_RUNS = 16
"""Distinct runs of values from which on a field is evidence, if they are also half of all runs: many tables
have the same two sexes."""

_PIECE = 256
"""Texts that are hashed together."""

_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e16
"""Absolute floats from the first to below the second have no exponent as text."""

_ROWS_BYTES = 4 * PLACES

_FIELD_BYTES = 8 + 4 * PLACES

Hashes = npt.NDArray[np.uint64]

_Messages = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Bytes, and the place in them where each message begins, and where it ends."""


@dataclass(frozen=True, slots=True)
class TableSketch:
    """Sketch of the rows of a table and of each of its fields."""

    rows: str
    """Sketch of whole rows."""
    fields: dict[str, str]
    """Keyed hash of a field's name -> sketch of its runs of values, for fields of many different runs."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON; `from_document` reads that."""
        return {"rows": self.rows, "fields": self.fields}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> TableSketch:
        """Return a sketch that `document` has written."""
        return cls(document["rows"], dict(document["fields"]))


def sketch(table: pa.Table, key: bytes) -> TableSketch:
    """Sketch the first rows of a table.

    Parameters
    ----------
    table : pa.Table
        At least the first `SKETCHED_ROWS` rows of the source, with all fields.
    key : bytes
        Secret of the installation, at most 64 bytes; sketches of other keys do not compare.

    Notes
    -----
    One keyed BLAKE2b for each number and for each distinct other value, at most 4,096 a field.
    """
    table = table.slice(0, SKETCHED_ROWS)
    whole = np.zeros(table.num_rows, np.uint64)
    runs = np.empty(max(0, table.num_rows - RUN + 1), np.uint64)
    fields = {}
    for position, name in enumerate(table.column_names):
        named = _keyed(name.encode(), key, b"field")
        add_field(_value_hashes(table.column(position), key), np.uint64(int(named, 16)), whole, runs)
        runs.sort()
        if _distinct(runs) >= max(_LEAST_RUNS, len(runs) / 2):
            fields[named] = _sketched(runs)
    mix_all(whole)
    return TableSketch(_sketched(np.sort(whole)), fields)


def resemblance(one: str, two: str) -> float:
    """Return the estimated Jaccard similarity of two sketched multisets, 0 to 1."""
    left, right = (np.frombuffer(base64.b64decode(text), "<u4") for text in (one, two))
    filled = (left != EMPTY) | (right != EMPTY)
    return float((left == right)[filled].mean()) if filled.any() else 0.0


def same_source(one: TableSketch, two: TableSketch) -> bool:
    """Whether two tables are versions of one source: most of their rows agree, or most of their fields.

    Fields count if they have many different runs of values. They are compared by name. More than half of the
    fields must agree, counted in the table that has more such fields.
    """
    if resemblance(one.rows, two.rows) >= SAME_ROWS:
        return True
    both = one.fields.keys() & two.fields.keys()
    alike = sum(resemblance(one.fields[name], two.fields[name]) >= SAME_FIELD for name in both)
    return alike > max(len(one.fields), len(two.fields)) / 2


def packed(document: dict[str, Any]) -> bytes:
    """Return the sketch of a `TableSketch.document` as bytes, for `first_same`.

    Its `PLACES` words of the rows, then for each field the 8 bytes of its name and its words; all words are
    of 4 bytes, little-endian.
    """
    parts = [base64.b64decode(document["rows"])]
    for name, text in document["fields"].items():
        parts += (bytes.fromhex(name), base64.b64decode(text))
    return b"".join(parts)


def unpacked(sketched: bytes) -> dict[str, Any]:
    """Return the `TableSketch.document` of a `packed` sketch."""
    words = sketched[_ROWS_BYTES:]
    fields = [words[start : start + _FIELD_BYTES] for start in range(0, len(words), _FIELD_BYTES)]
    return {
        "rows": base64.b64encode(sketched[:_ROWS_BYTES]).decode(),
        "fields": {field[:8].hex(): base64.b64encode(field[8:]).decode() for field in fields},
    }


def first_same(own: TableSketch, others: bytes, sizes: npt.NDArray[np.int64]) -> int | None:
    """Return the number of the first of several sketches that is of the same source, or None.

    It is the first for which `same_source` holds.

    Parameters
    ----------
    own : TableSketch
    others : bytes
        `packed` sketches end to end.
    sizes : int64, shape (sketches,)
        Bytes of each of them.
    """
    found = find_same(np.frombuffer(packed(own.document()), "<u4"), np.frombuffer(others, "<u4"), sizes // 4)
    return None if found < 0 else int(found)


def _keyed(message: bytes, key: bytes, person: bytes) -> str:
    return hashlib.blake2b(message, digest_size=8, key=key, person=person).hexdigest()


def _value_hashes(column: pa.ChunkedArray, key: bytes) -> Hashes:
    """Return a keyed hash of each value, equal for equal values; zeros if Arrow cannot convert the type."""
    try:
        array = combined(column)
        if pa.types.is_integer(array.type) or array.type in (pa.float32(), pa.float64()):
            return keyed_hashes(*_number_texts(array), key, b"value")
        _, first, numbers = np.unique(equality_codes(array), return_index=True, return_inverse=True)
        values = take_rows(pa.table({"": pa.chunked_array([array])}), first).column(0)
        texts = _texts(values)
        hashes = [  # in pieces: end to end, long texts would take their memory once more
            keyed_hashes(*_joined(texts[start : start + _PIECE]), key, b"value")
            for start in range(0, len(texts), _PIECE)
        ]
        return np.concatenate([np.zeros(0, np.uint64), *hashes])[numbers]
    except pa.ArrowNotImplementedError:
        return np.zeros(len(column), np.uint64)


def _texts(values: pa.ChunkedArray) -> list[bytes]:
    """Return bytes of each value that are equal for equal values of one type; empty for null."""
    try:
        plain = values.to_pylist()
    except (ValueError, OverflowError):  # nanoseconds, and times beyond Python's
        return [_text(value) for value in values]
    return [b"" if value is None else b"=" + repr(value).encode("utf-8", "surrogatepass") for value in plain]


def _joined(texts: Sequence[bytes]) -> _Messages:
    """Return texts end to end, with the beginning and the end of each."""
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
    return np.frombuffer(bytearray().join(texts), np.uint8), starts, ends


def _number_texts(numbers: pa.Array) -> _Messages:
    """Return what `_texts` does, end to end.

    orjson writes numbers as Python does, apart from small and large floats.
    """
    nulls = np.zeros(0, np.int64)
    if numbers.null_count:
        nulls = np.flatnonzero(numbers.is_null().to_numpy(zero_copy_only=False))
        numbers = numbers.fill_null(0)
    values = numbers.to_numpy()
    other = nulls[:0]
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
        size = np.abs(values)
        other = np.flatnonzero((size != 0) & ~((size >= _LEAST_PLAIN) & (size < _MOST_PLAIN)))
    listed = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    added = [b"=" + repr(values[place].item()).encode() for place in other.tolist()]
    text, starts, ends = _joined([listed, *added])
    commas = np.flatnonzero(text[: len(listed)] == ord(","))
    edges = np.concatenate(([0], commas, [len(listed) - 1])).astype(np.int64)
    text[edges] = ord("=")
    number_starts, number_ends = edges[: len(values)], edges[1:][: len(values)].copy()
    number_starts[other], number_ends[other] = starts[1:], ends[1:]
    number_ends[nulls] = number_starts[nulls]
    return text, number_starts, number_ends


def _text(value: pa.Scalar) -> bytes:
    """Return bytes that are equal for equal values of one type; empty for null."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):  # nanoseconds, and times beyond Python's
        return b"=" + repr(getattr(value, "value", None)).encode()
    return b"" if plain is None else b"=" + repr(plain).encode("utf-8", "surrogatepass")


def _distinct(ordered: Hashes) -> int:
    """Return the number of different sorted hashes."""
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, len(ordered))


def _sketched(ordered: Hashes) -> str:
    """Return the smallest hash of each place as base64; the n-th copy of a value is an element of its own.

    ``ordered``: sorted hashes.
    """
    words = np.empty(PLACES, np.uint64)
    fill_places(ordered, words)
    return base64.b64encode(words.astype("<u4").tobytes()).decode()
