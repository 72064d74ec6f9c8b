"""Several workers write the destination of a job in sections: the same table, and nothing left of other runs.

Each test runs with its tables in a folder, and with its tables in a bucket.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine.engine import REVISION_GONE, Failure, Outcome, Progress
from app.engine.local_engine import EmbeddedEngine
from app.engine.progress_file import read_progress
from app.jobs.units.repeated_tasks import SLOW, RepeatPolicy
from app.jobs.units.unit_runner import JobRuns
from app.store.blobs.arrow_stream import read_table
from app.store.blobs.bucket import Bucket
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.reading import parts_of
from app.store.blobs.sealed_files import PART
from app.worker.run_job import run_job
from app.worker.run_units import GATHERED
from app.worker.staging import StagingSetup
from app.worker.tasks import FIRST_RELEASE, SwapTask
from providers.tables.digest import CHUNK_ROWS, DigestForm, table_digest
from tests.faults.running import Loop, ends_within
from tests.faults.test_unit_losses import store_in
from tests.faults.test_units import LONG, SETUP
from tests.swap_tasks import swap_task

pytestmark = pytest.mark.faults

WORKERS = 2
UNITS = 2
ROUNDS = int(os.environ.get("SECTION_ROUNDS", "6"))
ATTEMPTS = 20
"""Jobs that are tried until a section is met while it is written: on a busy machine most have ended it."""
STILL_SECONDS = 10.0
"""Time in which a section of a worker that stands still is written by another one."""
ROWS = CHUNK_ROWS + 12_345
LITTLE = 40 * 10**6
"""Memory budget in which no run of the table fits: each needs twice as much or more."""

Call = tuple[str, dict[str, Any]]

CALLS: list[Call] = [
    ("DSWAP", {"swap_fields": ["x", "still"]}),
    ("CDSWAP", {"swap_fields": ["x"], "control_field": "class", "suppression": {"policy": "suppress"}}),
    ("CDSWAP", {"swap_fields": ["x", "y"], "control_field": "class", "suppression": {"policy": "drop"}}),
    ("PABIDOT", {"fields": ["x", "y"]}),
    ("MEWS", {"swap_fields": ["x", "y"], "bins": 20}),
]


class Home:
    """Workers of this machine with a store, and what was started again on them."""

    def __init__(self, folder: Path, bucket: Bucket | None) -> None:
        self.folder = folder
        self.store = store_in(folder, bucket)
        files = None if bucket is None else StagingSetup(bucket, str(folder), remote=False)
        self.loop = Loop()
        self.engine = EmbeddedEngine(WORKERS, SETUP, LONG, files)
        self.repeated: list[str] = []
        self.runs = JobRuns(
            self.engine,
            run_job,
            LONG,
            RepeatPolicy(repeats=3, slow_factor=3.0, slow_seconds=0.5),
            self.repeated.append,
            delete_other_parts=self.store.delete_parts,
        )
        self.loop.do(self.engine.start())

    def task(self, call: Call, table: pa.Table, **changes: Any) -> SwapTask:
        """A job in as many units and sections as there are chunks."""
        folder = self.folder / os.urandom(4).hex()
        folder.mkdir()
        service, parameters = call
        task = swap_task(self.store, folder, service, table, parameters, LITTLE, units=UNITS)
        return replace(task, **changes)

    def start(self, task: SwapTask) -> Future[Outcome]:
        async def run() -> Outcome:
            return await self.runs.run(task.job_id, task, "ann")

        return self.loop.start(run())

    def done(self, task: SwapTask) -> dict[str, Any]:
        outcome = self.start(task).result(LONG)
        assert not isinstance(outcome, Failure), outcome
        return outcome

    def parts(self, task: SwapTask) -> set[str]:
        """Tokens of all parts of the destination's blob that are stored."""
        names = [path.name.split(".") for path in self.store.files() if path.name.endswith(PART)]
        return {token for blob, token, _ in names if blob == task.destination.id}

    def wait_until_others_are_gone(self, task: SwapTask, kept: set[str]) -> None:
        async def gone() -> None:
            async with asyncio.timeout(LONG):
                while self.parts(task) != kept:
                    await asyncio.sleep(0.01)

        self.loop.do(gone())

    def at(self, task: SwapTask, reached: Callable[[], bool]) -> set[int]:
        """Wait for a moment; return the busy workers."""

        async def busy() -> set[int]:
            async with asyncio.timeout(LONG):
                while not reached():
                    await asyncio.sleep(0.001)
                return {worker.pid for worker in self.engine._busy}

        return self.loop.do(busy())

    def close(self) -> None:
        self.loop.do(self.engine.close())
        self.runs.close()
        self.loop.close()


@pytest.fixture(scope="module", params=["folder", "bucket"])
def home(
    request: pytest.FixtureRequest,
    new_bucket: Callable[[], Bucket],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("home"), new_bucket() if request.param == "bucket" else None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table(
        {
            "x": number % 1009 / 8,
            "class": np.where(number % 700_000 == 0, number, number % 70),
            "y": number * 7919 % ROWS / 4,
            "still": number.astype(np.uint8),
        }
    )


def assembling(task: SwapTask) -> bool:
    return (read_progress(Path(task.progress_path)) or Progress()).fraction >= GATHERED


@pytest.mark.parametrize("call", CALLS, ids=["DSWAP", "CDSWAP", "CDSWAP that drops", "PABIDOT", "MEWS"])
def test_sections_are_the_destination_of_one_worker(home: Home, table: pa.Table, call: Call) -> None:
    """Digest, rows, digests of the fields, report and events are equal; the table is in two parts."""
    whole = home.task(call, table, units=1)
    shared = home.task(call, table, source=whole.source)
    expected, found = home.done(whole), home.done(shared)
    assert not home.parts(whole)
    parts = parts_of(shared.destination)
    home.wait_until_others_are_gone(shared, {part.token for part in parts})  # a slow section may run twice
    assert len(parts) == UNITS
    for key in ("destination", "events", "event_counts", "report"):
        assert found[key] == expected[key], key
    released = read_table(shared.destination)
    assert table_digest(released) == found["destination"]["digest"]
    one, other = (BlobTable(task.destination, ROWS).field_digests() for task in (whole, shared))
    assert one == other
    assert (read_progress(Path(shared.progress_path)) or Progress()).fraction == 1.0
    assert not list(Path(shared.scratch_folder).iterdir())
    for task in (whole, shared):
        home.store.delete(task.destination.id)
    assert not home.parts(shared)


def test_a_destination_in_parts_is_the_source_of_the_next_job(home: Home, table: pa.Table) -> None:
    first = home.task(CALLS[0], table)
    home.done(first)
    second = home.task(CALLS[1], table, source=first.destination)
    digest = home.done(second)["destination"]["digest"]
    again = home.task(CALLS[1], table, source=first.destination, units=1)
    assert home.done(again)["destination"]["digest"] == digest


@pytest.mark.parametrize("call", CALLS[1:3], ids=["no row is dropped", "a row is dropped"])
def test_a_digest_of_the_older_form_is_taken_by_one_worker(home: Home, table: pa.Table, call: Call) -> None:
    shared = home.task(call, table, digest_form=DigestForm.WHOLE)
    whole = home.task(call, table, digest_form=DigestForm.WHOLE, units=1, source=shared.source)
    found, expected = home.done(shared), home.done(whole)
    assert found["destination"] == expected["destination"]
    assert not home.parts(shared)


@pytest.mark.parametrize("form", list(DigestForm))
def test_the_digest_decides_whether_another_revision_reruns_a_divided_job(
    home: Home, table: pa.Table, form: DigestForm
) -> None:
    def rerun(digest: str) -> Outcome:
        options = {FIRST_RELEASE: {"revision": 2, "destination_digest": digest}}
        return home.start(home.task(CALLS[0], table, digest_form=form, options=options)).result(LONG)

    digest = home.done(home.task(CALLS[0], table, digest_form=form))["destination"]["digest"]
    again, refused = rerun(digest), rerun(digest[:-1] + ("1" if digest[-1] == "0" else "0"))
    assert isinstance(again, dict)
    assert again["destination"]["digest"] == digest
    assert isinstance(refused, Failure)
    assert refused.code == REVISION_GONE


def test_what_is_left_of_a_table_may_be_less_than_a_section(home: Home, table: pa.Table) -> None:
    """Most rows are dropped, so that one worker writes the others. Two sections were expected before."""
    last = pa.array(np.where(np.arange(ROWS) < ROWS - 1000, np.arange(ROWS), -1))
    given = table.append_column("group", last)
    parameters = {"swap_fields": ["x", "y"], "control_field": "group", "suppression": {"policy": "drop"}}
    shared = home.task(("CDSWAP", parameters), given)
    whole = home.task(("CDSWAP", parameters), given, units=1, source=shared.source)
    found, expected = home.done(shared), home.done(whole)
    for key in ("destination", "events", "event_counts", "report"):
        assert found[key] == expected[key], key
    assert read_table(shared.destination).num_rows == 1000
    assert not home.parts(shared)


def test_rows_that_cannot_be_swapped_are_refused_with_their_number(home: Home, table: pa.Table) -> None:
    """Each section counts its own; the message is that of a run by one worker. No part is left."""
    service, parameters = CALLS[1]
    call = service, parameters | {"suppression": {"policy": "fail"}}
    shared = home.task(call, table)
    whole = home.task(call, table, units=1, source=shared.source)
    found, expected = (home.start(task).result(LONG) for task in (shared, whole))
    assert isinstance(found, Failure)
    assert found == expected
    assert not home.parts(shared)
    assert shared.destination.id not in home.store.names()


def test_workers_that_are_killed_in_sections_change_nothing(home: Home, table: pa.Table) -> None:
    """One in each round, in any section or while the sections are joined. Parts of lost runs are deleted.

    A job may end before its worker is killed: then there are more rounds.
    """
    draw = random.Random(3)
    home.repeated.clear()
    first = home.task(CALLS[0], table)
    undisturbed = home.start(first)
    home.at(first, partial(assembling, first))
    began = time.monotonic()
    done = undisturbed.result(LONG)
    seconds = time.monotonic() - began
    assert not isinstance(done, Failure), done
    digest = done["destination"]["digest"]
    killed = 0
    for number in range(4 * ROUNDS):
        if number >= ROUNDS and killed > ROUNDS / 2 and home.repeated:
            break
        task = home.task(CALLS[0], table, source=first.source)
        outcome = home.start(task)
        home.at(task, partial(assembling, task))
        home.loop.do(asyncio.sleep(draw.random() * seconds))
        busy = home.at(task, lambda: True)
        if not outcome.done() and busy:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(sorted(busy)), signal.SIGKILL)
                killed += 1
        else:
            seconds *= 0.7  # the undisturbed job was slower than this one
        found = outcome.result(LONG)
        assert not isinstance(found, Failure), found
        assert found["destination"]["digest"] == digest
        assert table_digest(read_table(task.destination)) == digest
        home.wait_until_others_are_gone(task, {part.token for part in parts_of(task.destination)})
        assert not list(Path(task.scratch_folder).iterdir())
        home.store.delete(task.destination.id)
    assert killed > ROUNDS / 2
    assert home.repeated


def test_a_section_that_stands_still_is_written_by_another_worker(home: Home, table: pa.Table) -> None:
    """Sections are short: a worker that was stopped outside of them goes on, and another job is tried."""
    source = home.task(CALLS[0], table).source
    for _ in range(ATTEMPTS):
        task = home.task(CALLS[0], table, source=source)
        home.repeated.clear()
        outcome = home.start(task)
        busy = home.at(task, partial(assembling, task))
        stopped = min(busy, default=None)
        written_by_another = False
        if stopped is not None:
            os.kill(stopped, signal.SIGSTOP)
            wait([outcome], STILL_SECONDS)
            # A worker that stands in a section is replaced; one that had ended it may be given the next task.
            if outcome.done() and SLOW in home.repeated:
                written_by_another = ends_within(stopped, STILL_SECONDS)
            if not written_by_another:
                with suppress(ProcessLookupError):
                    os.kill(stopped, signal.SIGCONT)
        found = outcome.result(LONG)
        assert not isinstance(found, Failure), found
        home.wait_until_others_are_gone(task, {part.token for part in parts_of(task.destination)})
        assert table_digest(read_table(task.destination)) == found["destination"]["digest"]
        if written_by_another:
            assert SLOW in home.repeated
            return
    pytest.fail("no section was stopped")


def test_a_job_that_is_cancelled_in_its_sections_leaves_no_part(home: Home, table: pa.Table) -> None:
    """Sections are short: after one that ended before it was cancelled, another job is tried."""
    source = home.task(CALLS[0], table).source
    for _ in range(ATTEMPTS):
        task = home.task(CALLS[0], table, source=source)
        outcome = home.start(task)
        home.at(task, partial(assembling, task))
        home.loop.do(home.runs.cancel(task.job_id))
        ended = outcome.result(LONG)
        if isinstance(ended, Failure):
            break
    assert isinstance(ended, Failure)
    assert ended.code == "cancelled"
    assert not home.parts(task)
    assert task.destination.id not in home.store.names()
    assert not list(Path(task.scratch_folder).iterdir())
