"""Destinations that several workers write, each a section: a part of the blob with its chunks of the digest.

The head of the blob is the schema of an Arrow IPC stream, each part has the messages of some batches, and the
tail ends the stream. So the parts together are one stream, with one index of its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from app.store.blobs.arrow_stream import TableWriter, table_bytes
from app.store.blobs.background_digest import BackgroundDigest
from app.store.blobs.batch_index import BatchIndex, index_bytes
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.reading import Part, new_token, part_access, write_parts
from app.store.blobs.sealed_files import BlobAccess
from providers.tables.digest import join_chunks

_STREAM_END = 8
"""Bytes of the end of an Arrow IPC stream."""


@dataclass(frozen=True, slots=True)
class StoredSection:
    """Section of a destination that has been written."""

    part: Part
    rows: int
    chunks: tuple[bytes | None, ...] = field(repr=False)
    """`TableDigest.chunk_digests` of its rows."""
    index: BatchIndex
    """Index of its batches; rows and positions count from the beginning of the section."""


def write_section(
    access: BlobAccess,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    expected: int = 0,
    known: Sequence[bytes | None] | None = None,
) -> StoredSection:
    """Write a section as a new part of a blob.

    Parameters
    ----------
    access : BlobAccess
        The blob.
    schema : pa.Schema
    tables : iterable of pa.Table
        Tables of this schema with all rows of the section, in order.
    expected : int
        Bytes of disk space to reserve.
    known : sequence of bytes or None, optional
        Digests of fields that are known and not computed: see `TableDigest`.

    Raises OSError.
    """
    token = new_token()
    part = part_access(access, token)
    with BackgroundDigest(schema, known=known) as digest:
        with TableWriter(part, schema, expected, is_part=True) as writer:
            for batch in digest.batches(tables):
                writer.write(batch)
            size, index = writer.plain_bytes, writer.index
        chunks = tuple(digest.chunk_digests())
        return StoredSection(Part(token, size), digest.rows, chunks, index)


def join_sections(
    access: BlobAccess,
    schema: pa.Schema,
    sections: Sequence[StoredSection],
    known: Sequence[bytes | None] | None = None,
) -> tuple[str, int]:
    """Write the blob whose parts the sections are, and return the table's digest and number of rows.

    Parameters
    ----------
    access : BlobAccess
        The new blob.
    schema : pa.Schema
    sections : sequence of StoredSection
        All sections, in order. Each but the last has a multiple of `CHUNK_ROWS` rows.
    known : sequence of bytes or None, optional
        As for each section.

    Raises
    ------
    ValueError
        A section but the last ends within a chunk of the digest.
    OSError
    """
    stream = table_bytes(schema, ())
    head, end = stream[:-_STREAM_END], stream[-_STREAM_END:]
    rows, position = 0, len(head)
    entries = []
    for section in sections:
        entries += [(rows + row, position + at) for row, at in section.index.entries]
        rows, position = rows + section.rows, position + section.part.size
    digest, fields = join_chunks(schema, rows, [section.chunks for section in sections], known)
    tail = end + index_bytes(entries) + FieldDigests(rows, tuple(fields)).to_bytes()
    write_parts(access, head, [section.part for section in sections], tail)
    return digest, rows
