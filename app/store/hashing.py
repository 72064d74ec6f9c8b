"""The digest of a table that is written at the same time: taken by a thread of its own, beside."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from providers.digest import TableDigest

_WORTH_A_THREAD = 1 << 18
"""Bytes of a batch that is hashed beside; of smaller ones the handing over would take as long."""


class DigestBeside:
    """As `TableDigest`, a batch behind at most. A context manager: its thread ends with the block."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raises ValueError for a type without a canonical name."""
        self.rows = 0
        """Rows so far. Rows without fields come in no batch: they are added here."""
        self._digest = TableDigest(schema)
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def update(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises what is wrong with them, or with those before: see `TableDigest.update`."""
        self._settle()
        self.rows += batch.num_rows
        if batch.nbytes < _WORTH_A_THREAD:
            self._digest.update(batch)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "digest")
        self._last = self._thread.submit(self._digest.update, batch)

    def finish(self) -> str:
        """The digest of all rows."""
        self._settle()
        self._digest.rows = self.rows
        return self._digest.finish()

    def _settle(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
