"""A Dask worker falls silent just before it gets jobs: they run on another one, although it never answers."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.faults.conftest import Running, people, settings_of
from tests.faults.replicas import until
from tests.faults.test_scheduler_death import Processes
from tests.preloaded.processes import end, start_worker

pytestmark = pytest.mark.faults


_TTL = "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"


@pytest.mark.parametrize(("given", "used"), [({}, "60s"), ({_TTL: "7m"}, "7m")])
def test_the_time_after_which_a_silent_worker_is_removed(given: dict[str, str], used: str) -> None:
    """It is shorter than Dask's, unless the operator sets it."""
    program = (
        "import dask, distributed; from app.engine import checked_scheduler as scheduler;"
        "scheduler.remove_silent_workers_soon(); print(dask.config.get('distributed.scheduler.worker-ttl'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | given, stdout=subprocess.PIPE, check=True
    )
    assert ran.stdout.decode().strip() == used


def test_jobs_of_a_silent_worker_start_on_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask removes it, by default after a minute or two; when it goes on, it serves again."""
    monkeypatch.setenv(_TTL, "1s")
    with ExitStack() as after:
        cluster = Processes(tmp_path / "one")
        after.callback(cluster.close)
        silent = start_worker(cluster.environment | {"ROWVEIL_HOME": str(tmp_path / "two")})
        after.callback(end, silent)
        settings = settings_of(
            tmp_path / "home",
            engine="dask",
            scheduler_address=cluster.cluster.address,
            scheduler_insecure=True,
            units_per_job=1,
        )
        service = after.enter_context(closing(Running(settings)))
        capacity = service.jobs._lifecycle.engine.capacity
        until("both workers are up", lambda: capacity() == 4)
        os.kill(silent.pid, signal.SIGSTOP)

        def go_on() -> None:
            with suppress(ProcessLookupError):
                os.kill(silent.pid, signal.SIGCONT)

        after.callback(go_on)
        jobs = [service.submit(people()) for _ in range(4)]
        assert {service.end(job).state for job in jobs} == {"succeeded"}
        go_on()
        until("both workers are up again", lambda: capacity() == 4)
