"""A stop ends, also while what it waits for is frozen, and loses no accepted job."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.replicas import Replica, children_of, until
from tests.faults.running import parent_of
from tests.faults.test_upgrade import submit
from tests.postgres import running_postgres

pytestmark = pytest.mark.faults


@contextlib.contextmanager
def running(home: Path, database: str, **settings: str) -> Iterator[Replica]:
    """Service without a grace time for running jobs."""
    replica = Replica("two", home, database, None)
    replica.environment |= settings | {"ROWVEIL_SHUTDOWN_GRACE": "0"}
    replica.start()
    try:
        until("it is up", lambda: replica.up)
        yield replica
    finally:
        replica.close()


def stop(pid: int, after: contextlib.ExitStack) -> None:
    """Freeze a process until its end by SIGKILL."""
    os.kill(pid, signal.SIGSTOP)

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    after.callback(kill)


@pytest.mark.parametrize("frozen", ["database", "fork server"])
def test_a_stop_that_cannot_end_is_ended(tmp_path: Path, frozen: str) -> None:
    """Its log says why, and the jobs that it had accepted run at the next start.

    A database server that answers nobody would not do: after some time the service gives its connections up,
    and the stop may end by itself. One that answers new connections counts as slow, and is waited for.
    """
    with contextlib.ExitStack() as after:
        server = after.enter_context(running_postgres()) if frozen == "database" else None
        database = server.new_database() if server else f"sqlite:///{tmp_path / 'home'}/rowveil.db"
        replica = after.enter_context(running(tmp_path / "home", database))
        until("its worker is found", lambda: len(replica.workers()) == 1)  # one list may lack a process
        (worker,) = replica.workers()
        stop(worker, after)  # one job runs for ever, the other is queued
        jobs = submit(replica, 2)
        if server:
            server.freeze_sessions()
        else:
            stop(parent_of(worker), after)
        replica.end(signal.SIGTERM)
        assert "the stop has not ended within 20 s" in replica.log.read_text()
        if server:
            server.thaw()
        replica.start()
        until("it is up", lambda: replica.up)

        def states() -> set[str]:
            return {replica.client.get(f"/v1/jobs/{job}").json()["state"] for job in jobs}

        until("all have succeeded", lambda: states() == {"succeeded"})


def test_a_frozen_api_process_is_killed(tmp_path: Path) -> None:
    """It could not end by itself."""
    processes, home = {"ROWVEIL_API_PROCESSES": "2", "ROWVEIL_WORKERS": "2"}, tmp_path / "home"
    database = f"sqlite:///{home}/rowveil.db"
    with contextlib.ExitStack() as after, running(home, database, **processes) as replica:
        *_, last = children_of(replica.pid)
        stop(last, after)
        replica.end(signal.SIGTERM)
