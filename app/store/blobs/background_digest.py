"""Compute a table's digest in background threads while it is written."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from providers.tables.digest import TableDigest

_LEAST_BACKGROUND = 1 << 18
"""Least bytes of a batch that is hashed in the background; handing over a smaller one costs more."""

_MOST_THREADS = 2
"""Most threads; each has a stack of 8 MB, which counts towards the worker's memory budget."""


class BackgroundDigest:
    """`TableDigest` computed in threads, which lags at most one batch; the threads end with the block.

    Two threads share the fields, if Arrow may use as many.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Raises ValueError for a type without a canonical name."""
        self.rows = 0
        """Rows so far. Rows without fields come in no batch; the caller adds them here."""
        self._digest = TableDigest(schema)
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
        self._pending = [self._threads.submit(add) for add in self._digest.work(batch, self._most)]

    def finish(self) -> str:
        """Return the digest of all rows."""
        self._settle()
        self._digest.rows = self.rows
        return self._digest.finish()

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
