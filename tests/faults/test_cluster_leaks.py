"""Scheduler, workers and service keep nothing of jobs that have ended."""

import asyncio
import ctypes
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome
from app.engine.worker_process import WorkerSetup
from tests.faults import doings
from tests.faults.clusters import LocalCluster
from tests.faults.running import PATIENCE, Loop

pytestmark = pytest.mark.faults

JOBS = int(os.environ.get("LEAK_JOBS", "500"))
PAYLOAD = 100_000
"""Bytes of a task, as of one with a small table."""


def resident_bytes() -> int:
    """Memory of this process, after returning what is free to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sizes(cluster: LocalCluster, engine: DaskEngine) -> dict[str, int]:
    """Number of entries of all collections of tasks, messages, plugins and workers."""
    scheduler, client = cluster.scheduler, engine._client
    assert client is not None
    (worker,) = cluster.dask_workers()
    streams = [*scheduler.stream_comms.values(), *scheduler.client_comms.values()]
    streams += [client.scheduler_comm, worker.batched_stream]
    state = worker.state
    collections: dict[str, Any] = {
        "scheduler.tasks": scheduler.tasks,
        "scheduler.task_groups": scheduler.task_groups,
        "scheduler.task_prefixes": scheduler.task_prefixes,
        "scheduler.transition_log": scheduler.transition_log,
        "scheduler.unrunnable": scheduler.unrunnable,
        "scheduler.worker_plugins": scheduler.worker_plugins,
        "scheduler.clients": scheduler.clients,
        "scheduler.workers": scheduler.workers,
        "client.futures": client.futures,
        "client.refcount": client.refcount,
        "worker.plugins": worker.plugins,
        "worker.data": worker.data,
        "worker.tasks": state.tasks,
        "worker.log": state.log,
        "worker.stimulus_log": state.stimulus_log,
        "engine.running": engine._running,
        "engine.keys": engine._keys,
        "engine.places": engine._places,
        "engine.background": engine._background,
    }
    found = {name: len(collection) for name, collection in collections.items()}
    return found | {"messages": sum(len(stream.recent_message_log) for stream in streams)}


def test_five_hundred_jobs_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth of them is cancelled. All but the jobs themselves is in this process."""
    loop = Loop()
    setup = WorkerSetup(threads=1, memory_bytes=256 * 2**20, preload=("tests.faults.doings",))
    cluster = loop.do(LocalCluster.start(2))
    engine = DaskEngine(cluster.cluster, setup, PATIENCE)

    async def job(number: int) -> None:
        running: asyncio.Task[Outcome] = engine.run(f"job {number}", doings.give_back, os.urandom(PAYLOAD))
        if number % 10 == 0:
            await engine.cancel(f"job {number}")
        outcome = await running
        assert number % 10 == 0 or not isinstance(outcome, Failure), outcome

    async def jobs(first: int, number: int) -> None:
        for start in range(first, first + number, 10):
            await asyncio.gather(*map(job, range(start, start + 10)))

    async def settled() -> dict[str, int]:
        """The sizes when the last messages about released tasks have arrived."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = sizes(cluster, engine)
                if not any(found[name] for name in ("scheduler.tasks", "worker.tasks", "client.futures")):
                    return found
                await asyncio.sleep(0.01)

    loop.do(engine.start())
    loop.do(jobs(0, 50))
    before, memory = loop.do(settled()), resident_bytes()
    loop.do(jobs(50, JOBS), 10 * PATIENCE)
    after, grown = loop.do(settled()), resident_bytes() - memory
    loop.do(engine.close())
    plugins = [name for name in cluster.scheduler.worker_plugins if name.startswith("rowveil-")]
    loop.do(cluster.close())
    loop.close()
    with capsys.disabled():
        print(f"\n{JOBS} jobs of {PAYLOAD} bytes: memory grew by {grown / 2**20:.1f} MiB; {after}")
    assert after == before
    assert after["messages"] == 0
    assert not plugins
    assert grown < JOBS * PAYLOAD / 4
