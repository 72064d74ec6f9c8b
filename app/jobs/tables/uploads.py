"""Parts of an upload: its declared format and length, its disk space, and its bytes as they are hashed."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from app.jobs.requests import UNANNOTATED, Annotations, SubmissionOptions
from app.store.blobs.sealed_files import SealedWriter, extend_draft

_RESERVED_STEP = 1 << 24
"""Bytes for which an upload of unknown length reserves disk space at once, as its bytes arrive."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Declared format of an upload."""

    media_type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the reader for that type."""
    annotations: Annotations = UNANNOTATED
    """Name, label and notes of the buffer."""


@dataclass(slots=True)
class DeclaredLength:
    """Length of an upload in bytes, as far as it is known before the upload has been read."""

    size: int = 0
    """0 if it is unknown. Of a reference it becomes known with the first bytes."""

    def set(self, size: int) -> None:
        """Note the length."""
        self.size = size


@dataclass(slots=True)
class UploadSpace:
    """Disk space of an upload."""

    writer: SealedWriter
    table_draft: str
    """File that the worker takes over for the table; it is deleted with the table's blob."""
    reserved: int
    """Bytes reserved for the upload, and as many for its table."""

    def extend(self, size: int, declared: int) -> None:
        """Reserve ``size`` bytes and a step more, or all declared bytes. Raises OSError: ENOSPC.

        Blocking; no write may be in progress.
        """
        wanted = declared if declared >= size else size + _RESERVED_STEP
        self.writer.reserve(wanted, self.reserved)
        extend_draft(self.table_draft, wanted, self.reserved)
        self.reserved = wanted


class HashedUpload:
    """Chunks of an upload, hashed as they are read, for the fingerprint of the request."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._hash = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks unchanged."""
        async for chunk in self._chunks:
            self._hash.update(chunk)
            yield chunk

    def identified(self, submission: SubmissionOptions, upload: Upload) -> SubmissionOptions:
        """Add the upload's bytes and format to the request fingerprint of the options."""
        if submission.idempotency_key is None:
            return submission
        options = orjson.dumps(dict(upload.options), option=orjson.OPT_SORT_KEYS).decode()
        texts = [submission.request_fingerprint or "", self._hash.hexdigest(), upload.media_type, options]
        annotations = {name: text for name, text in upload.annotations.columns().items() if text}
        if annotations:  # of a form
            texts.append(orjson.dumps(annotations).decode())
        return replace(submission, request_fingerprint="\0".join(texts))
