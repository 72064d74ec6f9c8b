"""A shared folder that does not respond: calls without files go on, others are refused."""

import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from app.errors import Unavailable
from app.jobs.lifecycle import _THREADS
from app.jobs.maintenance import deletions, health, metrics_snapshot
from tests.faults import doings
from tests.faults.conftest import Running, new_job, people
from tests.faults.running import PATIENCE
from tests.faults.uploads import CSV, pieces, upload

pytestmark = [
    pytest.mark.faults,
    pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True),
]

Start = Callable[..., Running]
MORE = 2 * _THREADS
"""More calls than the calls without files have threads."""
SYSTEM_CALLS = [
    (io, "open"),
    *((os, name) for name in ("open", "unlink", "scandir", "stat", "statvfs", "mkdir")),
]


class HangingFolder:
    """A folder in which every system call of this process waits until the folder responds again."""

    def __init__(self, folder: Path) -> None:
        self._folders = tuple(f"{folder}/{name}" for name in ("blobs", "progress", "scratch", "deployment"))
        self.responds = threading.Event()

    def hang(self, patch: pytest.MonkeyPatch) -> None:
        for module, name in SYSTEM_CALLS:
            patch.setattr(module, name, self._hanging(getattr(module, name)))

    def _hanging(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*arguments: Any, **named: Any) -> Any:
            path = arguments[0] if arguments else None
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folders):
                assert self.responds.wait(PATIENCE)
            return call(*arguments, **named)

        return waiting


def test_calls_without_files_go_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start(workers=1)
    do, begin, jobs = one.loop.do, one.loop.start, one.jobs
    tables = [upload(one) for _ in range(MORE)]
    kept = upload(one)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    queued = one.submit(people())
    params = new_job(people()).parameters
    folder = HangingFolder(one.settings.home)
    monkeypatch.setattr(deletions, "HANGING_SECONDS", 0.1)
    monkeypatch.setattr(metrics_snapshot, "_MEASURING_SECONDS", 0.1)
    monkeypatch.setattr(health, "_CHECK_SECONDS", 2.0)  # a busy machine checks the database in this time
    with monkeypatch.context() as patch:
        folder.hang(patch)
        try:
            waiting: list[Future[Any]] = [
                begin(jobs.buffers.create(pieces(CSV), "text/csv")) for _ in range(MORE)
            ]
            waiting += [begin(jobs.plan("DSWAP", params, kept.id)) for _ in range(_THREADS)]
            waiting.append(begin(jobs.purge()))
            for table in tables:
                do(jobs.buffers.delete(table.id), PATIENCE / 3)
            for _ in range(MORE):
                assert b"rowveil_database_up 1" in do(jobs.metrics_text(), PATIENCE / 3)
            assert do(jobs.health(), PATIENCE / 3) | {"workers": ""} == {
                "database": "ok", "storage": "not available", "workers": "",
            }  # fmt: skip
            accepted = do(jobs.submit(new_job(people())), PATIENCE / 3)
            assert do(jobs.cancel(queued.id), PATIENCE / 3).state == "cancelled"
            assert do(jobs.cancel(held.id), PATIENCE / 3).state == "cancelled"
            waiting += [begin(jobs.plan("DSWAP", params, kept.id)) for _ in range(MORE)]
            page, _ = do(jobs.list(None, None, 10), PATIENCE / 3)
            assert accepted.id in {job.id for job in page}
            with monkeypatch.context() as impatient:  # ended before the folder responds: uploads go on then
                impatient.setattr("app.file_threads.HANGING_SECONDS", -1.0)
                with pytest.raises(Unavailable, match="does not respond"):
                    do(jobs.plan("DSWAP", params, kept.id), PATIENCE / 3)
        finally:
            folder.responds.set()
        for call in waiting:
            call.result(PATIENCE)
    assert one.end(accepted).state == "succeeded"
    one.close()
    assert one.jobs._stores.blobs.names() == {kept.blob} | {call.result().blob for call in waiting[:MORE]}
