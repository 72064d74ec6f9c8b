"""Parts of an upload: its declared format and length, its disk space, and its bytes as they are hashed."""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from app.formats.csv_dialect import CsvDialect
from app.formats.errors import FormatError
from app.formats.first_bytes import FIRST_BYTES, refuse_other_format
from app.jobs.requests import UNANNOTATED, Annotations, SubmissionOptions
from app.store.blobs.sealed_files import SealedWriter, extend_draft
from providers.errors import SourceError

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


async def checked_start(
    chunks: AsyncIterator[bytes], describe: Callable[[], Upload | None], is_complete: bool = True
) -> AsyncIterator[bytes]:
    """Yield the chunks unchanged; refuse the upload as soon as its first bytes are of another format.

    An upload with fewer bytes than these is left to the worker that reads it.

    Parameters
    ----------
    chunks
        Bytes of the table's file.
    describe
        Returns the format of the upload; called when the first bytes are there. None: it is not known yet.
    is_complete
        False: options may follow the file, such as the encoding of a CSV in a form.

    Raises
    ------
    SourceError
        The content is of another format.
    """
    first_bytes: bytes | None = b""
    async for chunk in chunks:
        if first_bytes is not None:
            first_bytes += chunk[: FIRST_BYTES - len(first_bytes)]
            if len(first_bytes) == FIRST_BYTES:
                _check_start(first_bytes, describe(), is_complete)
                first_bytes = None
        yield chunk


def _check_start(first_bytes: bytes, upload: Upload | None, is_complete: bool) -> None:
    if upload is None:
        return
    dialect = upload.options.get("csv", CsvDialect())
    encoding = None if dialect.encoding == "utf-8" and not is_complete else dialect.encoding
    try:
        refuse_other_format(upload.media_type, first_bytes, encoding)
    except FormatError as error:
        raise SourceError(error.message) from None


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
