"""Where a command works: a folder of sealed tables for as long as it lasts, and a worker's functions.

What is in the folder opens with a key that lives in this process alone, so that nothing readable is left
behind, however the command ends.
"""

import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import numba
from tqdm import tqdm

from app.api.formats import open_table
from app.cli.failures import CommandFailed, Exit
from app.cli.files import copied, opened
from app.engine.engine import Failure, Outcome, Progress
from app.engine.progress import make_progress_file, read_progress
from app.engine.worker import call
from app.errors import NO_ROOM
from app.jobs.buffers import Upload
from app.jobs.ingest import run_ingest
from app.jobs.tables import StoredTable
from app.jobs.tasks import IngestTask
from app.settings import Settings
from app.store.blobs import BlobAccess, BlobStore, SealedWriter
from app.store.seal import Sealer
from providers.errors import ParameterError

T = TypeVar("T")

_LOOK_SECONDS = 0.1
_BAR = "{desc:<28.28} {percentage:3.0f}%|{bar}| {elapsed}"
_LINES = 24
"""Room for one bar, however many lines the terminal says that it has: of 0 tqdm would use none."""


class Failed(CommandFailed):
    """A task gave nothing; the pointer says which part of the request is at fault, if one is."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, Exit.USAGE if failure.code == ParameterError.code else Exit.FAILED)
        self.pointer = failure.pointer
        self.trace = failure.trace


@dataclass(frozen=True, slots=True)
class Opened:
    """A table that lies in the room."""

    access: BlobAccess
    stored: StoredTable


class Room:
    """A command's folder."""

    def __init__(self, settings: Settings, quiet: bool) -> None:
        self._settings = settings
        self._shown = not quiet and sys.stderr.isatty()
        self._folder = Path(tempfile.mkdtemp(prefix="rowveil-"))
        self._blobs = BlobStore(self._folder / "blobs", Sealer([secrets.token_bytes(32)]))
        self.progress_path = self._folder / "progress"
        self.scratch_folder = self._folder / "scratch"
        make_progress_file(self.progress_path)

    def new_blob(self) -> BlobAccess:
        """Access to a blob that is still to be written."""
        return self._blobs.allocate()

    def read(self, name: str, said: Upload) -> Opened:
        """The table of a file, checked as an upload is. Raises CommandFailed."""
        upload, table = self.new_blob(), self.new_blob()
        try:
            with opened(name) as file, SealedWriter(upload, lasting=False) as sink:
                copied(file, sink)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise CommandFailed(
                f"no room for what is put aside in {self._folder.parent}; set TMPDIR to a larger folder"
            ) from None
        task = IngestTask(
            upload, open_table, said.media_type, said.options, table, self._settings.max_table_bytes
        )
        found = self.run(run_ingest, task, f"reading {Path(name).name}")
        self._blobs.delete(upload.id)
        return Opened(
            table,
            StoredTable(table.id, found["digest"], found["fields"], found["rows"], found["byte_size"]),
        )

    def run(self, function: Callable[[T], Outcome], task: T, stage: str = "") -> dict[str, Any]:
        """What a worker's function gives, its progress shown where a person looks on. Raises Failed."""
        outcomes: list[Outcome] = []

        def work() -> None:
            numba.set_num_threads(min(self._settings.worker_threads, numba.config.NUMBA_NUM_THREADS))
            outcomes.append(call(function, task))

        # Beside the main thread, which sees to signals: a kernel does not come back until it has ended.
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        with self.bar(stage) as bar:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
                progress = read_progress(self.progress_path) or Progress()
                bar.n = progress.fraction
                bar.set_description_str(stage or progress.stage)
        (outcome,) = outcomes
        if isinstance(outcome, Failure):
            raise Failed(outcome)
        return outcome

    def bar(self, stage: str = "", hidden: bool = False) -> "tqdm[NoReturn]":
        """A bar from 0 to 1, shown where a person looks on; it goes when it is left."""
        shown = self._shown and not hidden
        return tqdm(
            total=1.0,
            desc=stage,
            bar_format=_BAR,
            disable=not shown,
            leave=False,
            ncols=_columns() if shown else None,
            nrows=_LINES,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _columns() -> int | None:
    """What tqdm may fill: None, so that it asks the terminal, or 79 where that says 0, as it has no size."""
    return None if os.get_terminal_size(sys.stderr.fileno()).columns else 79
