r"""Content digest of a table, independent of media type, chunking, slicing and encoding.

A digest is the name of its form, a colon and 64 hex digits. There are two forms. ``sha256t`` is taken by
parts: fields and chunks of rows are hashed separately, so that an unchanged field need not be read again.
``sha256`` is the form of older versions; its digests remain valid. This specification is complete.

All integers are little-endian; ``u64`` is an unsigned integer of 8 bytes; a *text* is a u64, the
number of its UTF-8 bytes, and these bytes. "Fed" means appended to the input of a SHA-256. The *type* of a
field is its canonical name of `type_names`, in which the units of time, timestamp and duration are left out
at every depth: ``time``, ``timestamp``, ``timestamp[Europe/Dublin]``, ``duration``. Metadata and nullable
flags are not part of a digest.

Form ``sha256t``
----------------
Each tag has 16 bytes, and no other input begins with it: so no digest of a part is that of something else.

**Table.** SHA-256 of: the tag ``rowveil.table/2\n``; u64 number of rows; u64 number of fields; then for each
field in order its name as a text and the 32 bytes of its field digest.

**Field.** SHA-256 of: the tag ``rowveil.field/2\n``; the type as a text; u64 number of rows; then the 32-byte
digests of its chunks in order. A chunk has the rows from a multiple of 2^20 up to the next one or to the end
of the table; a field without rows has none.

**Chunk.** SHA-256 of: the tag ``rowveil.chunk/2\n``; u64 number of its rows; then the 32-byte digests of the
states of the column of its values, in the order given below. The input of each state begins with the tag
``rowveil.state/2\n``.

Form ``sha256``
---------------
**Table.** SHA-256 of: the 16 bytes ``rowveil.table/1\n``; u64 number of rows; u64 number of fields;
then for each field in order its name as a text and the 32 bytes of its field digest.

**Field.** SHA-256 of: the type as a text; then the 32-byte digests of the states of the column of all its
values, in the order given below. The input of a state has no tag.

Both forms
----------
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

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial

import pyarrow as pa

from providers.tables.column_states import States, add_rows, new_states
from providers.tables.type_names import canonical_type, type_name

CHUNK_ROWS = 1 << 20
"""Rows of a chunk of the form by parts; fixed for ever, since it is part of the form."""


class DigestForm(StrEnum):
    """Canonical form that a digest is taken of. Its value begins the digest."""

    WHOLE = "sha256"
    """Form of older versions."""
    PARTS = "sha256t"
    """Form by fields and chunks of rows."""


_TABLE_TAGS = {DigestForm.WHOLE: b"rowveil.table/1\n", DigestForm.PARTS: b"rowveil.table/2\n"}

_FIELD_TAG, _CHUNK_TAG, _STATE_TAG = b"rowveil.field/2\n", b"rowveil.chunk/2\n", b"rowveil.state/2\n"


def form_of(digest: str) -> DigestForm:
    """Return the form of a digest. Raises ValueError: this version does not know it."""
    return DigestForm(digest.partition(":")[0])


def other_form(form: DigestForm) -> DigestForm:
    """Return the other one of the two forms."""
    return DigestForm.WHOLE if form is DigestForm.PARTS else DigestForm.PARTS


def table_digest(table: pa.Table, form: DigestForm = DigestForm.PARTS) -> str:
    """Return the digest of a table; the module's docstring specifies the canonical forms.

    Raises ValueError for a type without a canonical name (a union).
    """
    digest = TableDigest(table.schema, form)
    for batch in table.to_batches():
        digest.update(batch)
    if not table.num_columns:
        digest.rows = table.num_rows
    return digest.finish()


class TableDigest:
    """Digest of a table that arrives in record batches; temporary memory is that of one block of rows."""

    def __init__(
        self,
        schema: pa.Schema,
        form: DigestForm = DigestForm.PARTS,
        known: Sequence[bytes | None] | None = None,
    ) -> None:
        """Start the digest of an empty table.

        Parameters
        ----------
        schema : pa.Schema
        form : DigestForm
        known : sequence of bytes or None, optional
            For each field its digest if that is known, of the form by parts: the field is not hashed.

        Raises
        ------
        ValueError
            A type has no canonical name, or field digests are given for the other form.
        """
        if known is not None and form is not DigestForm.PARTS:
            raise ValueError(f"digests of fields are not part of the form {form.value}")
        self.form = form
        self.rows = 0
        self._schema = schema
        self._names = [field.name for field in schema]
        self._types = [type_name(field.type, units=False) for field in schema]
        new = _PartedField if form is DigestForm.PARTS else _WholeField
        self._fields = [new(field.type, text) for field, text in zip(schema, self._types, strict=True)]
        self._known = list(known) if known is not None else [None] * len(self._fields)
        self._field_digests: list[bytes] | None = None
        """Digests of the fields for all rows so far; None: not computed since the last rows."""

    def update(self, batch: pa.RecordBatch) -> None:
        """Add rows. Each batch may have its own encodings. Raises ValueError if the fields differ."""
        for add in self.work(batch):
            add()

    def work(self, batch: pa.RecordBatch, most: int = 1) -> list[Callable[[], None]]:
        """Divide `update` into up to `most` functions, which may be called in parallel.

        All must have returned before those of the next batch are called. Raises as `update`.
        """
        if not batch.schema.equals(self._schema):  # its encodings may differ
            types = [type_name(field.type, units=False) for field in batch.schema]
            if batch.schema.names != self._names or types != self._types:
                raise ValueError("the batch does not have the fields of the schema; use a digest of its own")
        self.rows += batch.num_rows
        self._field_digests = None
        fields = [
            (field, column)
            for field, column, known in zip(self._fields, batch.columns, self._known, strict=True)
            if known is None
        ]
        return [partial(_add, fields[first::most]) for first in range(min(most, len(fields)))]

    def field_digests(self) -> list[bytes]:
        """Return the digest of each field for all rows so far; shape (fields,), 32 bytes each."""
        if self._field_digests is None:
            self._field_digests = [
                field.digest() if known is None else known
                for field, known in zip(self._fields, self._known, strict=True)
            ]
        return self._field_digests

    def chunk_digests(self) -> list[bytes | None]:
        """Return the digests of each field's chunks for all rows so far, end to end; None of a known field.

        The form must be that by parts.
        """
        return [
            b"".join(field.chunk_digests()) if known is None and isinstance(field, _PartedField) else None
            for field, known in zip(self._fields, self._known, strict=True)
        ]

    def finish(self) -> str:
        """Return the digest of all rows so far."""
        return _table_digest(self.form, self.rows, self._names, self.field_digests())


def join_chunks(
    schema: pa.Schema,
    rows: int,
    sections: Sequence[Sequence[bytes | None]],
    known: Sequence[bytes | None] | None = None,
) -> tuple[str, list[bytes]]:
    """Return the digest of a table that was digested in sections, and those of its fields.

    Parameters
    ----------
    schema : pa.Schema
    rows : int
        Rows of all sections.
    sections : sequence
        `TableDigest.chunk_digests` of each section, in order. Each but the last has a multiple of
        `CHUNK_ROWS` rows.
    known : sequence of bytes or None, optional
        As for `TableDigest`, the same for all sections.

    Raises
    ------
    ValueError
        The sections do not have the chunks of this number of rows.
    """
    fields = []
    expected = -(-rows // CHUNK_ROWS) * hashlib.sha256().digest_size
    for index, field in enumerate(schema):
        digest = known[index] if known is not None else None
        if digest is None:
            chunks = b"".join(section[index] or b"" for section in sections)
            if len(chunks) != expected:
                raise ValueError(f"the sections do not have the chunks of {rows} rows")
            digest = _field_digest(type_name(field.type, units=False), rows, chunks)
        fields.append(digest)
    return _table_digest(DigestForm.PARTS, rows, schema.names, fields), fields


def _table_digest(form: DigestForm, rows: int, names: Sequence[str], fields: Sequence[bytes]) -> str:
    whole = hashlib.sha256(_TABLE_TAGS[form] + _u64(rows) + _u64(len(names)))
    for name, digest in zip(names, fields, strict=True):
        whole.update(_text(name) + digest)
    return f"{form.value}:{whole.hexdigest()}"


def _field_digest(type_text: str, rows: int, chunks: bytes) -> bytes:
    return hashlib.sha256(_FIELD_TAG + _text(type_text) + _u64(rows) + chunks).digest()


class _WholeField:
    """Digest of a field of the form `DigestForm.WHOLE`."""

    def __init__(self, data_type: pa.DataType, type_text: str) -> None:
        self._type_text = type_text
        self._states = new_states(canonical_type(data_type), b"")

    def add(self, column: pa.Array) -> None:
        add_rows(self._states, column)

    def digest(self) -> bytes:
        return hashlib.sha256(_text(self._type_text) + b"".join(self._states.digests())).digest()


class _PartedField:
    """Digest of a field of the form `DigestForm.PARTS`."""

    def __init__(self, data_type: pa.DataType, type_text: str) -> None:
        self._type_text = type_text
        self._type = canonical_type(data_type)
        self._chunks: list[bytes] = []
        """Digests of the complete chunks."""
        self._open: States | None = None
        """States of the chunk that is not complete; None: it has no rows yet."""
        self._open_rows = 0

    def add(self, column: pa.Array) -> None:
        start = 0
        while start < len(column):
            if self._open is None:
                self._open = new_states(self._type, _STATE_TAG)
            count = min(len(column) - start, CHUNK_ROWS - self._open_rows)
            add_rows(self._open, column.slice(start, count))
            start += count
            self._open_rows += count
            if self._open_rows == CHUNK_ROWS:
                self._chunks.append(_chunk_digest(self._open, CHUNK_ROWS))
                self._open, self._open_rows = None, 0

    def chunk_digests(self) -> list[bytes]:
        chunks = list(self._chunks)
        if self._open is not None:
            chunks.append(_chunk_digest(self._open, self._open_rows))
        return chunks

    def digest(self) -> bytes:
        rows = len(self._chunks) * CHUNK_ROWS + self._open_rows
        return _field_digest(self._type_text, rows, b"".join(self.chunk_digests()))


def _chunk_digest(states: States, rows: int) -> bytes:
    return hashlib.sha256(_CHUNK_TAG + _u64(rows) + b"".join(states.digests())).digest()


def _add(fields: list[tuple[_WholeField | _PartedField, pa.Array]]) -> None:
    """Feed columns to the digests of their fields."""
    for field, column in fields:
        field.add(column)


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _u64(len(encoded)) + encoded
