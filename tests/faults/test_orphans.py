"""A service that dies leaves nothing on the cluster: neither a plugin nor warm worker processes."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure
from app.engine.worker_process import WorkerSetup
from tests.faults import doings
from tests.faults.clusters import LocalCluster
from tests.faults.running import PATIENCE, Loop, wait_until_gone

pytestmark = pytest.mark.faults

SETUP = WorkerSetup(threads=1, memory_bytes=512 * 2**20)
SILENCE_SECONDS = 5.0


class Bench:
    """A cluster of two workers, and the services on it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.cluster = self.loop.do(LocalCluster.start(1, workers=2))
        self._engines: list[DaskEngine] = []

    def service(self) -> DaskEngine:
        """Start a service, and return when all workers are up for it."""
        engine = self.loop.do(self._made())
        self._engines.append(engine)
        self.loop.do(self._until(lambda: engine.capacity() == 2))
        return engine

    async def _made(self) -> DaskEngine:
        engine = DaskEngine(self.cluster.cluster, SETUP, PATIENCE, SILENCE_SECONDS)
        await engine.start()
        return engine

    async def _until(self, holds) -> None:  # type: ignore[no-untyped-def]
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.05)

    def until(self, holds) -> None:  # type: ignore[no-untyped-def]
        """Return when it holds in the cluster's loop."""
        self.loop.do(self._until(holds))

    def pid(self, engine: DaskEngine) -> int:
        """Process id of a child process of the service."""

        async def ask() -> int:
            outcome = await engine.run("who", doings.who, None)
            assert not isinstance(outcome, Failure), outcome
            return int(outcome["pid"])

        return self.loop.do(ask())

    def kill(self, engine: DaskEngine) -> None:
        """Let the service end without a word, as a killed process does."""

        async def vanish() -> None:
            assert engine._monitoring is not None
            assert engine._client is not None
            engine._monitoring.cancel()
            await asyncio.wait([engine._monitoring])
            await engine._client.close()

        self._engines.remove(engine)
        self.loop.do(vanish())

    def plugins(self) -> set[str]:
        """Names of the services' plugins that the scheduler gives to workers."""
        return {name for name in self.cluster.scheduler.worker_plugins if name.startswith("rowveil-")}

    def close(self) -> None:
        for engine in self._engines:
            self.loop.do(engine.close())
        self.loop.do(self.cluster.close())
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_worker_processes_of_a_dead_service_stop_by_themselves(bench: Bench) -> None:
    """Also where no other service is left to remove its plugin."""
    dead = bench.service()
    pid = bench.pid(dead)
    bench.kill(dead)
    wait_until_gone(pid)
    assert bench.plugins() == {dead._plugin}  # until the next service starts
    living = bench.service()
    bench.until(lambda: bench.plugins() == {living._plugin})


def test_a_living_service_removes_the_plugin_of_a_dead_one_and_keeps_its_own(bench: Bench) -> None:
    dead, living = bench.service(), bench.service()
    dead_pid, living_pid = bench.pid(dead), bench.pid(living)
    bench.kill(dead)
    bench.until(lambda: bench.plugins() == {living._plugin})
    wait_until_gone(dead_pid)
    bench.until(lambda: living.capacity() == 2)
    os.kill(living_pid, 0)  # its worker process goes on


def test_a_service_that_was_only_paused_gets_its_plugin_back(bench: Bench) -> None:
    """It begins with new worker processes."""
    paused, other = bench.service(), bench.service()
    monitoring = paused._monitoring
    assert monitoring is not None

    async def pause() -> None:
        monitoring.cancel()
        await asyncio.wait([monitoring])

    async def go_on() -> None:
        paused._monitoring = asyncio.create_task(paused._monitor_cluster())

    bench.loop.do(pause())
    bench.until(lambda: bench.plugins() == {other._plugin})
    bench.loop.do(go_on())
    bench.until(lambda: bench.plugins() == {other._plugin, paused._plugin})
    bench.until(lambda: paused.capacity() == 2)
    assert bench.pid(paused)
