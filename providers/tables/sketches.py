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

from providers.tables.columns import combined, take_rows
from providers.tables.equality import equality_codes

SKETCHED_ROWS = 4096
"""Rows from the beginning of a table that are sketched."""

PLACES = 64

_EMPTY = 0

_RUN = 6
"""Consecutive values that are an element of a field's sketch."""

_LEAST_RUNS = 16
"""Distinct runs of values from which on a field is evidence, if they are also half of all runs: many tables
have the same two sexes."""

_SAME_FIELD = 0.7
"""Resemblance from which on two fields hold the same values but for a few."""

_SAME_ROWS = 0.5
"""Resemblance of whole rows from which on two tables are versions of one source."""

_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e16
"""Absolute floats from the first to below the second have no exponent as text."""

_ROWS_BYTES = 4 * PLACES

_FIELD_BYTES = 8 + 4 * PLACES

Hashes = npt.NDArray[np.uint64]


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
    One keyed BLAKE2b for each distinct value, at most 4,096 a field.
    """
    table = table.slice(0, SKETCHED_ROWS)
    whole = np.zeros(table.num_rows, np.uint64)
    fields = {}
    for position, name in enumerate(table.column_names):
        named = _keyed(name.encode(), key, b"field")
        hashes = _value_hashes(table.column(position), key)
        whole += _mixed(hashes ^ np.uint64(int(named, 16)))
        runs = np.sort(_runs(hashes))
        if len(_starts(runs)) >= max(_LEAST_RUNS, len(runs) / 2):
            fields[named] = _sketched(runs)
    return TableSketch(_sketched(np.sort(_mixed(whole))), fields)


def resemblance(one: str, two: str) -> float:
    """Return the estimated Jaccard similarity of two sketched multisets, 0 to 1."""
    left, right = (np.frombuffer(base64.b64decode(text), "<u4") for text in (one, two))
    filled = (left != _EMPTY) | (right != _EMPTY)
    return float((left == right)[filled].mean()) if filled.any() else 0.0


def same_source(one: TableSketch, two: TableSketch) -> bool:
    """Whether two tables are versions of one source: most of their rows agree, or most of their fields.

    Fields count if they have many different runs of values. They are compared by name, and more than half of
    those of the table with more of them must agree.
    """
    if resemblance(one.rows, two.rows) >= _SAME_ROWS:
        return True
    both = one.fields.keys() & two.fields.keys()
    alike = sum(resemblance(one.fields[name], two.fields[name]) >= _SAME_FIELD for name in both)
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


def first_same(own: TableSketch, others: Sequence[bytes]) -> int | None:
    """Return the number of the first of the `packed` sketches that is of the same source, or None.

    It is the first for which `same_source` holds; all are compared at once.
    """
    if not others:
        return None
    words = np.frombuffer(b"".join(others), "<u4")
    counts = np.array([(len(other) - _ROWS_BYTES) // _FIELD_BYTES for other in others], np.int64)
    ends = np.cumsum([len(other) // 4 for other in others])
    starts = np.concatenate(([0], ends[:-1]))
    rows = words[starts[:, np.newaxis] + np.arange(PLACES)]
    same = _resemblances(rows, own.rows) >= _SAME_ROWS
    table = np.repeat(np.arange(len(others)), counts)
    place = np.arange(len(table)) - np.repeat(np.cumsum(counts) - counts, counts)
    fields = words[
        (np.repeat(starts, counts) + PLACES + place * (_FIELD_BYTES // 4))[:, np.newaxis]
        + np.arange(_FIELD_BYTES // 4)
    ]
    alike = np.zeros(len(others), np.int64)
    for name, text in own.fields.items():
        named = np.flatnonzero((fields[:, :2] == np.frombuffer(bytes.fromhex(name), "<u4")).all(axis=1))
        agreeing = named[_resemblances(fields[named, 2:], text) >= _SAME_FIELD]
        np.add.at(alike, table[agreeing], 1)
    same |= alike > np.maximum(counts, len(own.fields)) / 2
    found = np.flatnonzero(same)
    return int(found[0]) if len(found) else None


def _resemblances(sketches: npt.NDArray[np.uint32], text: str) -> npt.NDArray[np.float64]:
    """Return the `resemblance` of each sketch, shape (sketches, `PLACES`), with one."""
    one = np.frombuffer(base64.b64decode(text), "<u4")
    filled = (sketches != _EMPTY) | (one != _EMPTY)
    agreeing = (sketches == one) & filled
    shares: npt.NDArray[np.float64] = agreeing.sum(axis=1) / np.maximum(1, filled.sum(axis=1))
    return shares


def _keyed(message: bytes, key: bytes, person: bytes) -> str:
    return hashlib.blake2b(message, digest_size=8, key=key, person=person).hexdigest()


def _runs(hashes: Hashes) -> Hashes:
    """Return a hash of each run of consecutive values; shape (rows - run + 1,), empty for fewer rows."""
    count = max(0, len(hashes) - _RUN + 1)
    runs = np.zeros(count, np.uint64)
    for place in range(_RUN if count else 0):
        runs = _mixed(runs + hashes[place : place + count])
    return runs


def _value_hashes(column: pa.ChunkedArray, key: bytes) -> Hashes:
    """Return a keyed hash of each value, equal for equal values; zeros if Arrow cannot convert the type."""
    try:
        array = combined(column)
        _, first, numbers = np.unique(equality_codes(array), return_index=True, return_inverse=True)
        values = take_rows(pa.table({"": pa.chunked_array([array])}), first).column(0)
        texts = _texts(values)
    except pa.ArrowNotImplementedError:
        return np.zeros(len(column), np.uint64)
    begin = hashlib.blake2b(digest_size=8, key=key, person=b"value").copy
    digests = []
    for text in texts:
        hashed = begin()  # a copy: with its key, a new one takes as long as a short text
        hashed.update(text)
        digests.append(hashed.digest())
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)[numbers]


def _texts(values: pa.ChunkedArray) -> list[bytes]:
    """Return bytes of each value that are equal for equal values of one type; empty for null."""
    if pa.types.is_integer(values.type) or values.type in (pa.float32(), pa.float64()):
        return _number_texts(values)
    try:
        plain = values.to_pylist()
    except (ValueError, OverflowError):  # nanoseconds, and times beyond Python's
        return [_text(value) for value in values]
    return [b"" if value is None else b"=" + repr(value).encode("utf-8", "surrogatepass") for value in plain]


def _number_texts(values: pa.ChunkedArray) -> list[bytes]:
    """Return what `_texts` does; orjson writes numbers as Python does, apart from small and large floats."""
    present = values.is_valid().to_numpy()
    numbers = values.fill_null(0).to_numpy()
    as_python = present.copy()
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float64)
        size = np.abs(numbers)
        as_python &= (size == 0) | ((size >= _LEAST_PLAIN) & (size < _MOST_PLAIN))
    if not len(numbers):
        return []
    texts = [
        b"=" + text for text in orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    ]
    for place in np.flatnonzero(~as_python).tolist():
        texts[place] = b"=" + repr(numbers[place].item()).encode() if present[place] else b""
    return texts


def _text(value: pa.Scalar) -> bytes:
    """Return bytes that are equal for equal values of one type; empty for null."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):  # nanoseconds, and times beyond Python's
        return b"=" + repr(getattr(value, "value", None)).encode()
    return b"" if plain is None else b"=" + repr(plain).encode("utf-8", "surrogatepass")


def _starts(ordered: Hashes) -> npt.NDArray[np.int64]:
    """Return where each distinct one of sorted hashes begins."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])


def _sketched(ordered: Hashes) -> str:
    """Return the smallest hash of each place as base64; the n-th copy of a value is an element of its own.

    ``ordered``: sorted hashes.
    """
    starts = _starts(ordered)
    runs = np.diff(np.append(starts, len(ordered))).astype(np.int64)
    copies = np.arange(len(ordered), dtype=np.uint64) - np.repeat(starts, runs).astype(np.uint64)
    elements = _mixed(ordered + copies * np.uint64(0x9E3779B97F4A7C15))
    places = (elements % np.uint64(PLACES)).astype(np.int64)
    smallest = np.full(PLACES, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, places, elements)
    kept = np.where(smallest == np.iinfo(np.uint64).max, _EMPTY, (smallest >> np.uint64(32)) | np.uint64(1))
    return base64.b64encode(_mixed_words(kept).astype("<u4").tobytes()).decode()


def _mixed(words: Hashes) -> Hashes:
    """Mix 64-bit words one to one (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = words ^ (words >> np.uint64(31))
    return mixed


def _mixed_words(kept: Hashes) -> Hashes:
    """Return the low 32 bits of each mixed word, 1 in place of 0 for a filled place; 0 stays 0."""
    low = _mixed(kept) & np.uint64(0xFFFFFFFF)
    mixed: Hashes = np.where(kept == _EMPTY, np.uint64(_EMPTY), np.maximum(low, np.uint64(1)))
    return mixed
