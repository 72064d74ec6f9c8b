"""With separate owners a worker process runs tasks of one owner only; otherwise all owners share it."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.api.large_body import BodyParser
from app.callers import ANONYMOUS
from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome
from app.engine.local_engine import EmbeddedEngine
from app.engine.worker_process import WorkerSetup
from app.jobs.service import JobService
from app.settings import Settings
from tests.faults import doings
from tests.faults.clusters import LocalCluster
from tests.faults.conftest import Running
from tests.faults.new_jobs import new_job, people, settings_of
from tests.faults.running import PATIENCE, Loop, wait_until_gone

pytestmark = pytest.mark.faults

SETUP = WorkerSetup(1, 256 * 2**20, preload=("tests.faults.doings",), one_owner=True)
SHARED = replace(SETUP, one_owner=False)


class Workers:
    """An engine and its loop."""

    def __init__(self, number: int, setup: WorkerSetup = SETUP, kind: str = "local") -> None:
        self.loop = Loop()
        self.cluster: LocalCluster | None = None
        self.engine: EmbeddedEngine | DaskEngine = EmbeddedEngine(number, setup, PATIENCE)
        if kind == "dask":
            self.cluster = self.loop.do(LocalCluster.start(number))
            self.engine = DaskEngine(self.cluster.cluster, setup, PATIENCE)
        self.loop.do(self.engine.start())

    def start(self, owner: str, function: Callable[[Any], Any] = doings.who, task: Any = None) -> Future[int]:
        """Start a task of an owner; the future has the id of its process."""

        async def run() -> int:
            name = f"{owner} {id(asyncio.current_task())}"
            outcome: Outcome = await self.engine.run(name, function, task, owner=owner)
            assert not isinstance(outcome, Failure), outcome
            return int(outcome["pid"])

        return self.loop.start(run())

    def pid(self, owner: str) -> int:
        """Return the process of the owner's next task."""
        return self.start(owner).result(PATIENCE)

    def wait_until_all_are_free(self, number: int) -> None:
        async def free() -> None:
            while self.engine.capacity() < number:
                await asyncio.sleep(0.01)

        self.loop.do(free())

    def close(self) -> None:
        self.loop.do(self.engine.close())
        if self.cluster is not None:
            self.loop.do(self.cluster.close())
        self.loop.close()


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Workers: their number, set-up and kind are the parameter."""
    number, setup, kind = request.param
    running = Workers(number, setup, kind)
    running.wait_until_all_are_free(number)
    yield running
    running.close()


@pytest.mark.parametrize("workers", [(1, SETUP, "local"), (1, SETUP, "dask")], indirect=True, ids=str)
def test_another_owner_gets_another_process(workers: Workers) -> None:
    first = workers.pid("ann")
    assert workers.pid("ann") == first
    second = workers.pid("bob")
    assert second != first
    wait_until_gone(first)
    assert workers.pid("bob") == second
    assert workers.pid("ann") not in (first, second)


@pytest.mark.parametrize("workers", [(1, SHARED, "local")], indirect=True, ids=str)
def test_owners_share_a_process_by_default(workers: Workers) -> None:
    assert workers.pid("ann") == workers.pid("bob")


@pytest.mark.parametrize("workers", [(2, SETUP, "local")], indirect=True, ids=str)
def test_an_owners_own_worker_is_taken_first_and_then_one_that_served_nobody(workers: Workers) -> None:
    ann, bob = workers.pid("ann"), workers.pid("bob")
    assert ann != bob
    assert [workers.pid(owner) for owner in ("ann", "bob", "bob", "ann")] == [ann, bob, bob, ann]
    eve = workers.pid("eve")
    wait_until_gone(bob)  # idle for longest
    assert (workers.pid("ann"), workers.pid("eve")) == (ann, eve)


@pytest.mark.parametrize("workers", [(1, SETUP, "local")], indirect=True, ids=str)
def test_waiting_tasks_keep_their_order(workers: Workers, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = workers.start("ann", doings.wait_at, str(gate))
    others = [workers.start(owner) for owner in ("bob", "ann", "ann")]
    with gate.open("wb"):
        pass
    pids = [first.result(PATIENCE), *(other.result(PATIENCE) for other in others)]
    assert len({*pids}) == 3
    assert pids[2] == pids[3]


def test_jobs_and_plans_of_a_service_run_in_processes_of_their_owners(tmp_path: Path) -> None:
    running = Running(settings_of(tmp_path / "home", 1, separate_owners=True))
    new = new_job(people())

    def jobs_of(owner: str) -> JobService:
        return running.jobs.on_behalf_of(replace(ANONYMOUS, owner=owner))

    def process() -> int:
        (worker,) = running.jobs._lifecycle.engine._workers  # type: ignore[attr-defined]
        return int(worker.pid)

    def job_of(owner: str) -> int:
        assert running.end(running.loop.do(jobs_of(owner).submit(new))).state == "succeeded"
        return process()

    def plan_of(owner: str) -> int:
        assert running.loop.do(jobs_of(owner).plan("DSWAP", new.parameters, new.source))["rows"] == 1000
        return process()

    try:
        ann = job_of("ann")
        assert (job_of("ann"), plan_of("ann")) == (ann, ann)
        bob = plan_of("bob")
        assert bob != ann
        assert job_of("bob") == bob
        assert job_of("ann") not in (ann, bob)
    finally:
        running.close()


def test_large_bodies_are_parsed_in_processes_of_their_owners(tmp_path: Path) -> None:
    """One that is idle for longest is replaced: there are two."""

    async def parsed() -> list[int]:
        parser = BodyParser(Settings(home=tmp_path, separate_owners=True))
        try:
            pids = []
            for owner in ("ann", "bob", "ann", "eve"):
                assert await parser.parse(b'{"a": 1}', owner) == {"a": 1}
                assert parser._engine is not None
                pids.append(next(each.pid for each in parser._engine._workers if each.owner == owner))
            return pids
        finally:
            await parser.close()

    ann, bob, again, eve = asyncio.run(parsed())
    assert len({ann, bob, eve}) == 3
    assert again == ann
