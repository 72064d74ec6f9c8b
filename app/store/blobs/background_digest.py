"""Compute a table's digest in background threads while it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from app.store.blobs.batches import pieces
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.small_threads import submit
from providers.tables.digest import DigestForm, TableDigest

_LEAST_BACKGROUND = 1 << 18
"""Least bytes of a batch that is hashed in the background; handing over a smaller one costs more."""

_BATCH_ROWS = 65_536
"""Most rows of a batch of a blob."""

_MOST_THREADS = 2
"""Most threads that hash one table."""


def digested(table: pa.Table, form: DigestForm) -> tuple[str, FieldDigests | None]:
    """Return the digest of a table in memory and those of its fields; None if the form has none."""
    digest = TableDigest(table.schema, form)
    for batch in table.to_batches():
        digest.update(batch)
    digest.rows = table.num_rows
    return digest.finish(), _field_digests(digest)


def _field_digests(digest: TableDigest) -> FieldDigests | None:
    if digest.form is not DigestForm.PARTS:
        return None
    return FieldDigests(digest.rows, tuple(digest.field_digests()))


class BackgroundDigest:
    """`TableDigest` computed in threads, which lags at most one batch; the threads end with the block.

    Two threads share the fields, if Arrow may use as many.
    """

    def __init__(
        self,
        schema: pa.Schema,
        form: DigestForm = DigestForm.PARTS,
        known: Sequence[bytes | None] | None = None,
    ) -> None:
        """Start the digest of an empty table; see `TableDigest`."""
        self.rows = 0
        """Rows so far. Rows without fields come in no batch; the caller adds them here."""
        self._digest = TableDigest(schema, form, known)
        self._most = max(1, min(_MOST_THREADS, pa.cpu_count(), len(schema)))
        self._threads: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []

    def update(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises errors of these rows or of the previous ones: see `TableDigest.update`."""
        self._settle()
        self.rows += batch.num_rows
        if batch.nbytes < _LEAST_BACKGROUND:
            self._digest.update(batch)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most, "digest")
        self._pending = [submit(self._threads, add) for add in self._digest.work(batch, self._most)]

    def batches(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of tables in batches for a blob, each of which the digest has got."""
        for table in tables:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                for piece in pieces(batch):
                    self.update(piece)
                    yield piece
            if not table.num_columns:
                self.rows += table.num_rows

    def finish(self) -> str:
        """Return the digest of all rows."""
        self._settle()
        self._digest.rows = self.rows
        return self._digest.finish()

    def chunk_digests(self) -> list[bytes | None]:
        """Return the digests of each field's chunks: see `TableDigest.chunk_digests`."""
        self._settle()
        return self._digest.chunk_digests()

    def field_digests(self) -> FieldDigests | None:
        """Return the digests of all fields; None if the form has none."""
        self._settle()
        return _field_digests(self._digest)

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
