"""A job service with real workers, shared by the tests of a module."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.engine.engine import Progress, TaskFunction
from app.jobs.service import JobService, NewJob
from app.settings import Settings
from app.store.blobs.places import open_blobs
from app.store.crypto.sealing import Sealer
from app.store.sql.models import Job
from tests.conftest import BUCKET, DATABASES, SHARED, settings_of_kind
from tests.faults import doings
from tests.faults.new_jobs import new_attack, new_frontier, new_job, new_measures, people, settings_of
from tests.faults.running import PATIENCE, Loop

__all__ = ["new_attack", "new_frontier", "new_job", "new_measures", "people", "settings_of"]


class Running:
    """A job service and the loop it runs in."""

    def __init__(self, settings: Settings, work: TaskFunction = doings.swap_as_instructed) -> None:
        self.settings = settings
        self.loop = Loop()
        self.jobs = JobService(settings, work)
        try:
            self.loop.do(self.jobs.start())
        except BaseException:
            self.loop.close()
            raise

    def close(self) -> None:
        """Shut the service down in order."""
        self.loop.do(self.jobs.close())
        self.loop.close()

    def submit(self, source: pa.Table | str, **values: Any) -> Job:
        """A job of DSWAP on the field ``income``."""
        return self.accept(new_job(source, **values))

    def accept(self, new: NewJob) -> Job:
        """A job of any kind."""
        return self.loop.do(self.jobs.submit(new))

    def run(self, source: pa.Table | str, **values: Any) -> Job:
        """The same, ended."""
        return self.end(self.submit(source, **values))

    def end(self, job: Job) -> Job:
        """The job when it has ended, and its tables are deleted that are no longer used."""
        ended = self.loop.do(self.jobs.wait(job.id, PATIENCE))
        assert ended.ended, ended.state

        async def recorded() -> None:
            async with asyncio.timeout(PATIENCE):
                while job.id in self.jobs._dispatcher._tracked:
                    await asyncio.sleep(0.001)

        self.loop.do(recorded())
        return ended

    def get(self, job: Job) -> Job:
        """The job as it is now."""
        return self.loop.do(self.jobs.get(job.id))

    def rows(self, job: Job) -> pa.Table:
        """The destination buffer."""
        return self.loop.do(self.jobs.destination(job.id))

    def wait_until_held(self, job: Job) -> Progress:
        """The progress of the job when its worker waits at the gate."""

        async def held() -> Progress:
            async for update, progress in self.jobs.updates(job.id):
                if progress.stage == doings.STAGE_HELD:
                    return progress
                assert not update.ended, update.error
            raise AssertionError("the job ended without being held")

        return self.loop.do(held())

    def wait_until(self, job: Job, state: str) -> None:
        """Return when the job has a state."""

        async def reached() -> None:
            async for update, _ in self.jobs.updates(job.id):
                if update.state == state:
                    return
            raise AssertionError(f"the job ended without being {state}")

        self.loop.do(reached())

    def open_gate(self, job: Job) -> None:
        """Let a held job go on."""
        doings.gate_of(self.settings.home, job.id).write_text("")

    def open_gates(self) -> None:
        """Let all jobs go on that wait at a gate."""
        for gate in doings.gates_in(self.settings.home):
            with contextlib.suppress(OSError):  # nobody waits there
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))


embedded = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
"""Marks tests that do not depend on the database, or need the embedded one."""


in_bucket = pytest.mark.parametrize("database_kind", [*DATABASES, BUCKET], indirect=True)
"""Marks tests that move tables, and run on a bucket too."""

in_folder = pytest.mark.parametrize("database_kind", DATABASES, indirect=True)
"""Marks tests of the shared folder, or of small tables, which are in their job's row."""

embedded_or_bucket = pytest.mark.parametrize("database_kind", ["sqlite", BUCKET], indirect=True)
"""Marks tests that do not depend on the database, and move tables."""


@pytest.fixture(scope="module", params=["sqlite", SHARED])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Kind of database of the services under test."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def service(
    database_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("shared") / "home"
    running = Running(settings_of(home, 2, **database_of(database_kind, request)))
    yield running
    running.close()


@pytest.fixture(scope="module")
def service_of_files(
    database_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A service that writes small tables to files too."""
    home = tmp_path_factory.mktemp("files") / "home"
    small = {"small_table_bytes": 0} | database_of(database_kind, request)
    running = Running(settings_of(home, 2, **small))
    yield running
    running.close()


@pytest.fixture(autouse=True)
def no_job_stays_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails while it holds a job takes no worker from the tests after it."""
    names = {"service", "service_of_files"} & set(request.fixturenames)
    found = [request.getfixturevalue(name) for name in names]  # a parameter of a test may have such a name
    yield
    for running in found:
        if isinstance(running, Running):
            running.open_gates()


@pytest.fixture
def database(database_kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The setting of the test's own database; nothing for one below the home."""
    return database_of(database_kind, request)


@pytest.fixture
def start(tmp_path: Path, database: dict[str, str]) -> Iterator[Callable[..., Running]]:
    """Starts services of the test's own; those left open are closed."""
    started: list[Running] = []

    def begin(home: str = "home", workers: int = 1, **values: Any) -> Running:
        running = Running(settings_of(tmp_path / home, workers, **database | values))
        started.append(running)
        return running

    yield begin
    for running in started:
        if running.loop.running:
            running.close()


def database_of(kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of an empty database and an empty bucket; nothing for those below the home."""
    return settings_of_kind(kind, request)


def blobs_of(settings: Settings) -> set[str]:
    """Return the names of the stored blobs: of the objects of a bucket, or of all files in the folder."""
    if settings.storage:
        return open_blobs(settings, Sealer([bytes(32)])).names()
    return {path.name for path in files_below(settings.home / "blobs")}


def files_below(home: Path) -> Sequence[Path]:
    """Every plain file that the service keeps, its keys aside."""
    return [path for path in home.rglob("*") if path.is_file() and path.parent.name != "keys"]
