"""Large JSON bodies, which are parsed in processes of their own: `app.worker.run_parse`."""

import asyncio
from itertools import count
from typing import Any

from pydantic_core import from_json

from app.engine.engine import (
    CANCELLED,
    MEMORY_LIMIT,
    TIME_LIMIT,
    TOO_LARGE,
    WORKER_DIED,
    WORKER_LOST,
    Failure,
)
from app.engine.fork_server import worker_modules
from app.engine.local_engine import EmbeddedEngine
from app.engine.sandbox import Confinement
from app.engine.worker_process import WorkerSetup
from app.errors import MemoryLimit, TooLarge, Unavailable
from app.formats.errors import FormatError
from app.jobs.failure_errors import request_error
from app.requests.source import ParsedTable
from app.settings import Settings
from app.worker.run_parse import ParseTask, run_parse, tables_of

_PROCESSES = 2

_SECONDS = 120.0
"""Time limit of one body."""


class BodyParser:
    """Processes that parse large bodies. They start at the first one."""

    def __init__(self, settings: Settings) -> None:
        self._memory_bytes = settings.body_memory_bytes
        self._setup = WorkerSetup(
            1,
            settings.body_memory_bytes,
            preload=worker_modules(),
            confinement=Confinement(()) if settings.confine_workers else None,
            one_owner=settings.separate_owners,
        )
        self._engine: EmbeddedEngine | None = None
        self._starting = asyncio.Lock()
        self._numbers = count()

    async def parse(self, body: bytes, owner: str) -> Any:
        """Return the document of an owner; the rows or columns of a table in it are a `ParsedTable`.

        Raises
        ------
        ValueError
            The body is not JSON.
        FormatError
            An object has a duplicate name.
        MemoryLimit
            Parsing takes more memory than the setting allows.
        TooLarge
            The request is too large without the rows of its tables.
        Unavailable
            No process could parse it in time.
        """
        engine = await self._started()
        task_id = f"body {next(self._numbers)}"
        outcome = await engine.run(task_id, run_parse, ParseTask(body), owner=owner)
        if isinstance(outcome, Failure):
            raise self._error(outcome)
        if "invalid" in outcome:
            raise ValueError(outcome["invalid"])
        if "refused" in outcome:
            raise FormatError(*outcome["refused"])
        document = from_json(outcome["document"])
        for member, form, stream, message, pointer in tables_of(outcome):
            document[member][form] = ParsedTable(stream, message, pointer)
        return document

    async def close(self) -> None:
        """Stop the processes."""
        if self._engine is not None:
            await self._engine.close()

    async def _started(self) -> EmbeddedEngine:
        async with self._starting:
            if self._engine is None:
                self._engine = EmbeddedEngine(_PROCESSES, self._setup, _SECONDS)
                await self._engine.start()
            return self._engine

    def _error(self, failure: Failure) -> Exception:
        # The parser's extension aborts its process if it gets no memory for a panic.
        if failure.code == MEMORY_LIMIT or "SIGABRT" in failure.message:
            return MemoryLimit(
                f"the body takes more than {self._memory_bytes} bytes of memory when it is parsed "
                "(ROWVEIL_BODY_MEMORY_BYTES); give the table as columns, upload it in POST /v1/buffers, or "
                "send fewer rows"
            )
        if failure.code == TOO_LARGE:
            return TooLarge(failure.message)
        if failure.code in (TIME_LIMIT, WORKER_DIED, WORKER_LOST, CANCELLED):
            return Unavailable("the body could not be parsed in time; try again, or upload the table")
        return request_error(failure)
