"""The digest of a table that is written at the same time: taken beside, by threads of its own."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from providers.digest import TableDigest

_WORTH_A_THREAD = 1 << 18
"""Bytes of a batch that is hashed beside; of smaller ones the handing over would take as long."""

_MOST_THREADS = 2
"""Each takes eight megabytes of stack, which count to a worker's memory."""


class DigestBeside:
    """As `TableDigest`, a batch behind at most. A context manager: its threads end with the block.

    The fields are shared out between two threads, where Arrow may have as many.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Raises ValueError for a type without a canonical name."""
        self.rows = 0
        """Rows so far. Rows without fields come in no batch: they are added here."""
        self._digest = TableDigest(schema)
        self._most = max(1, min(_MOST_THREADS, pa.cpu_count(), len(schema)))
        self._threads: ThreadPoolExecutor | None = None
        self._last: list[Future[None]] = []

    def update(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises what is wrong with them, or with those before: see `TableDigest.update`."""
        self._settle()
        self.rows += batch.num_rows
        if batch.nbytes < _WORTH_A_THREAD:
            self._digest.update(batch)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most, "digest")
        self._last = [self._threads.submit(add) for add in self._digest.work(batch, self._most)]

    def finish(self) -> str:
        """The digest of all rows."""
        self._settle()
        self._digest.rows = self.rows
        return self._digest.finish()

    def _settle(self) -> None:
        last, self._last = self._last, []
        for added in last:
            added.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
