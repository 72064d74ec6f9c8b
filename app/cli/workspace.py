"""Workspace of a command: a temporary folder of sealed tables in which worker functions run.

The folder is sealed with a key that exists only in this process, so nothing readable remains, however the
command ends.
"""

import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import numba
import pyarrow as pa
from tqdm import tqdm

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, copy_bytes, open_input
from app.engine.engine import INTERNAL_ERROR, STORAGE_FULL, Failure, Outcome, Progress
from app.engine.progress_file import make_progress_file, read_progress
from app.engine.worker_process import call
from app.errors import NO_ROOM
from app.jobs.requests import StoredTable
from app.jobs.tables.uploads import Upload
from app.settings import Settings
from app.store.blobs.folder_removal import remove_folder
from app.store.blobs.sealed_files import BlobAccess, BlobStore, SealedWriter
from app.store.crypto.sealing import Sealer
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask
from providers.errors import ParameterError
from providers.tables.digest import DigestForm

T = TypeVar("T")

_DEFECT = "an unexpected error, which is a defect of Rowveil; please report it with the next line"

_LOOK_SECONDS = 0.1

_BAR = "{desc:<28.28} {percentage:3.0f}%|{bar}| {elapsed}"

_LINES = 24
"""Lines assumed for one progress bar: tqdm would show none on a terminal that reports 0 lines."""


class Failed(CommandFailed):
    """A task failed; the pointer locates the error in the request, if it has one."""

    def __init__(self, failure: Failure) -> None:
        message = _DEFECT if failure.code == INTERNAL_ERROR else failure.message
        super().__init__(message, Exit.USAGE if failure.code == ParameterError.code else Exit.FAILED)
        self.pointer = failure.pointer
        self.trace = failure.trace
        self.table = ""
        """Name of the table that could not be read, if that failed."""


@dataclass(frozen=True, slots=True)
class WorkspaceTable:
    """Stored table of the workspace, with access to its blob."""

    access: BlobAccess
    stored: StoredTable


class Workspace:
    """Temporary folder of one command."""

    def __init__(self, settings: Settings, quiet: bool) -> None:
        self._settings = settings
        self._shown = not quiet and sys.stderr.isatty()
        self._folder = Path(tempfile.mkdtemp(prefix="rowveil-"))
        self._blobs = BlobStore(self._folder / "blobs", Sealer([secrets.token_bytes(32)]))
        self.progress_path = self._folder / "progress"
        self.scratch_folder = self._folder / "scratch"
        make_progress_file(self.progress_path)

    def new_blob(self) -> BlobAccess:
        """Return access to a new, empty blob."""
        return self._blobs.allocate()

    def read(self, name: str, upload: Upload, form: DigestForm = DigestForm.PARTS) -> WorkspaceTable:
        """Read a table from a file, with the checks of an upload and a digest of this form.

        Raises CommandFailed.
        """
        raw, table = self.new_blob(), self.new_blob()
        try:
            with open_input(name) as file, SealedWriter(raw, durable=False) as sink:
                copy_bytes(file, sink)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise CommandFailed(self._no_room()) from None
        most = self._settings.max_table_bytes
        task = IngestTask(raw, upload.media_type, upload.options, table, most, digest_form=form)
        try:
            found = self.run(run_ingest, task, f"reading {Path(name).name}")
        except Failed as failed:
            failed.table = "standard input" if name == STANDARD else name
            if failed.pointer.startswith("/fields/"):  # a type that --csv-fields states
                failed.code = Exit.USAGE
            raise
        self._blobs.delete(raw.id)
        return WorkspaceTable(
            table,
            StoredTable(table, found["digest"], found["fields"], found["rows"], found["byte_size"]),
        )

    def run(self, function: Callable[[T], Outcome], task: T, stage: str = "") -> dict[str, Any]:
        """Run a worker function, with a progress bar on a terminal. Raises Failed."""
        outcomes: list[Outcome] = []

        def work() -> None:
            numba.set_num_threads(min(self._settings.worker_threads, numba.config.NUMBA_NUM_THREADS))
            pa.set_cpu_count(self._settings.worker_threads)
            outcomes.append(call(function, task))

        # In a thread: a kernel returns to Python only at its end, and signals need the main thread.
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
            if outcome.code == STORAGE_FULL:
                raise CommandFailed(self._no_room())
            raise Failed(outcome)
        return outcome

    def _no_room(self) -> str:
        return f"no space for temporary files in {self._folder.parent}; set TMPDIR to a larger folder"

    def bar(self, stage: str = "", hidden: bool = False) -> "tqdm[NoReturn]":
        """Create a progress bar from 0 to 1, shown only on a terminal and removed at its end."""
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
        remove_folder(self._folder)


def _columns() -> int | None:
    """Return the width for tqdm: None asks the terminal, 79 replaces a reported width of 0."""
    return None if os.get_terminal_size(sys.stderr.fileno()).columns else 79
