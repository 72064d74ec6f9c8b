"""Series with real workers: concurrent jobs, killed workers, reruns, and rows changed in the database."""

import asyncio
import os
import signal
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.orm import undefer

from app.callers import THE_SERVICE, Caller
from app.errors import Conflict, Forbidden, NotFound, StateConflict
from app.ids import new_id
from app.jobs.series import task_of
from app.store.crypto.sealing import SealBroken
from app.store.sql.models import Job
from app.store.sql.series import SeriesFigures
from tests.faults import doings
from tests.faults.conftest import Running, new_job
from tests.faults.replicas import until
from tests.faults.running import PATIENCE
from tests.faults.test_binding import write

pytestmark = pytest.mark.faults


@pytest.fixture
def name() -> str:
    return f"panel-{new_id()}"


def persons(first: int, after: int) -> pa.Table:
    """Persons whose income shows whose it is."""
    return pa.table({"person": range(first, after), "income": [100 * each for each in range(first, after)]})


def submit(service: Running, name: str, source: pa.Table, **values: Any) -> Job:
    return service.submit(source, parameters={"unit_id": "person", "series": name}, **values)


def partners(service: Running, job: Job) -> dict[int, int | None]:
    table = service.rows(job)
    values = [None if value is None else value // 100 for value in table.column("income").to_pylist()]
    return dict(zip(table.column("person").to_pylist(), values, strict=True))


def found(service: Running, name: str) -> SeriesFigures:
    return service.loop.do(service.jobs.get_series(name))


def series_of(service: Running, job: Job) -> dict[str, Any]:
    figures: dict[str, Any] = service.loop.do(service.jobs.report(job.id))["provider"]["series"]
    return figures


def test_two_jobs_pair_the_same_arrivals_once(service: Running, name: str) -> None:
    """Both have read no wave when they end. The second one runs again and finds the partners of the first."""
    tables = persons(0, 20), persons(10, 30)
    jobs = [submit(service, name, table, seed=doings.HELD) for table in tables]
    for job in jobs:
        service.wait_until_held(job)
    for job in jobs:
        service.open_gate(job)
    first = service.loop.do(_first_to_end(service, jobs))
    second = jobs[1] if first.id == jobs[0].id else jobs[0]
    until("it runs again: its first result was discarded", lambda: service.get(second).attempt == 2)
    service.wait_until_held(second)
    service.open_gate(second)
    second = service.end(second)
    assert (first.state, second.state) == ("succeeded", "succeeded")
    assert (first.attempt, second.attempt, second.crashes) == (1, 2, 0)
    one, two = partners(service, first), partners(service, second)
    shared = {each for each in range(10, 20) if two[each] is not None}
    assert {each: two[each] for each in shared} == {each: one[each] for each in shared}
    assert all(one[each] not in range(10, 20) for each in set(range(10, 20)) - shared)
    assert (found(service, name).waves, found(service, name).units) == (2, 30)
    assert series_of(service, second)["known"] == 10
    # A unit without its partner in one table has it where both are.
    everyone = partners(service, service.end(submit(service, name, persons(0, 30))))
    assert everyone == two | one
    assert sorted(each for each in everyone.values() if each is not None) == list(range(30))


async def _first_to_end(service: Running, jobs: list[Job]) -> Job:
    waits = [asyncio.ensure_future(service.jobs.wait(job.id, PATIENCE)) for job in jobs]
    done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    ended = done.pop().result()
    assert ended.ended
    return ended


def test_a_killed_worker_adds_no_wave(service: Running, name: str) -> None:
    held = submit(service, name, persons(0, 20), seed=doings.HELD)
    os.kill(service.wait_until_held(held).pid, signal.SIGKILL)
    assert service.end(held).state == "failed"
    assert (found(service, name).waves, found(service, name).units) == (0, 0)
    ended = service.end(submit(service, name, persons(0, 20)))
    assert series_of(service, ended)["wave"] == 1
    assert (found(service, name).waves, found(service, name).units) == (1, 20)
    with pytest.raises(StateConflict, match="did not succeed, so that it has no wave"):
        service.loop.do(service.jobs.rerun(held.id, persons(0, 20)))


def test_a_rerun_reads_the_waves_of_its_first_run(service: Running, name: str) -> None:
    """It adds none; without the series it cannot run."""
    first = service.end(submit(service, name, persons(0, 20), retain_source=True))
    second = service.end(submit(service, name, persons(5, 40), retain_source=True))
    for job in (first, second, first):
        again = service.end(service.loop.do(service.jobs.rerun(job.id)))
        assert (again.state, again.reproduced) == ("succeeded", True), again.error
        assert series_of(service, again) == series_of(service, job)
        manifests = [service.loop.do(service.jobs.manifest(each.id))["manifest"] for each in (job, again)]
        assert manifests[0]["series"] == manifests[1]["series"]
    assert manifests[0]["series"]["wave"] == 1
    assert found(service, name).waves == 2
    service.loop.do(service.jobs.delete_series(name))
    for job in (first, second):
        with pytest.raises(StateConflict, match=f"series '{name}' was deleted with its pairs"):
            service.loop.do(service.jobs.rerun(job.id))
    service.end(submit(service, name, persons(0, 20)))
    with pytest.raises(StateConflict, match="was deleted"):  # the new series of this name is another one
        service.loop.do(service.jobs.rerun(first.id))


def test_a_series_is_not_deleted_under_a_job(service: Running, name: str) -> None:
    held = submit(service, name, persons(0, 20), seed=doings.HELD)
    service.wait_until_held(held)
    with pytest.raises(StateConflict, match="is queued or running"):
        service.loop.do(service.jobs.delete_series(name))
    service.open_gate(held)
    service.end(held)
    service.loop.do(service.jobs.delete_series(name))
    with pytest.raises(NotFound, match=f"there is no series '{name}'"):
        service.loop.do(service.jobs.delete_series(name))


def test_series_of_two_callers_have_nothing_in_common(service: Running, name: str) -> None:
    """Members of a project see each other's series, and only the owner deletes it."""
    ada, ben = Caller("ada", "census"), Caller("ben", "census")
    desks = [service.jobs.on_behalf_of(caller) for caller in (ada, ben, Caller("eve"))]
    jobs = [
        service.loop.do(
            desk.submit(
                new_job(
                    persons(0, 40),
                    parameters={"unit_id": "person", "series": name},
                    seed=bytes([number] * 32),
                )
            )
        )
        for number, desk in enumerate(desks)
    ]
    pairs = [partners(service, service.end(job)) for job in jobs]
    assert pairs[0] != pairs[1] != pairs[2]
    assert service.loop.do(desks[1].get_series(name, "ada")).series.owner == "ada"
    assert service.loop.do(desks[1].get_series(name)).series.owner == "ben"
    with pytest.raises(NotFound):
        service.loop.do(desks[2].get_series(name, "ada"))
    with pytest.raises(Forbidden, match="only its owner may delete it"):
        service.loop.do(desks[1].delete_series(name, "ada"))
    listed = service.loop.do(desks[1].list_series(200))[0]
    assert {each.series.owner for each in listed if each.series.name == name} == {"ada", "ben"}
    service.loop.do(service.jobs.on_behalf_of(THE_SERVICE).delete_series(name, "ada"))
    with pytest.raises(NotFound):
        service.loop.do(desks[0].get_series(name))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE series SET project = 'gang' WHERE id = :id",
        "UPDATE series_pairs SET wave = 1, part = 1 WHERE series_id = :id AND wave = 2",
        "UPDATE series_pairs SET series_id = :id WHERE series_id = :other",
    ],
)
def test_rows_changed_in_the_database_do_not_open(service: Running, name: str, change: str) -> None:
    """Pairs are sealed to their series and place, and the series to its owner."""
    for first in (0, 20):
        service.end(submit(service, name, persons(first, first + 20)))
    other = service.end(submit(service, f"{name}-2", persons(0, 20)))
    ids = {"id": found(service, name).series.id, "other": found(service, f"{name}-2").series.id}
    if ":other" in change:
        write(service, "DELETE FROM series_pairs WHERE series_id = :id", id=ids["id"])
    given = {key: value for key, value in ids.items() if f":{key}" in change}
    write(service, change, **given)
    failed = service.end(submit(service, name, persons(0, 20)))
    assert failed.state == "failed"
    assert failed.error is not None
    assert failed.error["code"] == "internal_error"
    assert other.state == "succeeded"


@pytest.mark.parametrize(
    ("rerun_of", "cause"), [("NULL", "names a series of another owner"), ("id", "seed was changed")]
)
def test_a_job_that_names_anothers_series_gets_no_pairs(
    service: Running, name: str, rerun_of: str, cause: str
) -> None:
    """Its rows would show them. A job of the thief does not become a rerun of the owner's."""
    desk, thief = (service.jobs.on_behalf_of(Caller(each, "census")) for each in ("ada", "eve"))
    new = new_job(persons(0, 40), parameters={"unit_id": "person", "series": name})
    first, job = (service.end(service.loop.do(each.submit(new))) for each in (desk, thief))
    change = f"UPDATE jobs SET series_id = :series, series_base = 1, rerun_of = {rerun_of} WHERE id = :id"
    write(service, change, series=service.loop.do(desk.get_series(name)).series.id, id=job.id)
    stores = service.jobs._stores
    with stores.database.read() as session:
        jobs = [session.get_one(Job, each.id, options=[undefer(Job.sealed_seed)]) for each in (first, job)]
        assert task_of(session, stores.sealer, jobs[0]) is not None
        with pytest.raises(SealBroken, match=cause):
            task_of(session, stores.sealer, jobs[1])


def test_a_colleague_reruns_a_job_of_a_series(service: Running, name: str) -> None:
    """Also a rerun of another colleague, as long as a job of the series' owner has the seed."""
    callers = [Caller(each, "census") for each in ("ada", "ben", "cy")]
    desks = [service.jobs.on_behalf_of(each) for each in callers]
    parameters = {"unit_id": "person", "series": name}
    new = new_job(persons(0, 40), parameters=parameters, retain_source=True)
    first = job = service.end(service.loop.do(desks[0].submit(new)))
    for desk in desks[1:]:
        job = service.end(service.loop.do(desk.rerun(job.id)))
        assert (job.state, job.reproduced) == ("succeeded", True), job.error
    service.loop.do(desks[0].delete(first.id))
    with pytest.raises(StateConflict, match="is of another caller, whose job with this seed was deleted"):
        service.loop.do(desks[1].rerun(job.id))


def test_ids_of_another_type_are_refused(service: Running, name: str) -> None:
    """The same persons as text would all be new."""
    service.end(submit(service, name, persons(0, 20)))
    table = persons(0, 20)
    texts = table.set_column(0, "person", table.column("person").cast(pa.string()))
    failed = service.end(submit(service, name, texts))
    assert failed.error is not None
    assert "the ids of this table are text, and those of series" in failed.error["detail"]
    assert found(service, name).waves == 1


def test_a_table_that_differs_is_no_rerun(service: Running, name: str) -> None:
    job = service.end(submit(service, name, persons(0, 20)))
    with pytest.raises(Conflict, match="not the job's own"):
        service.loop.do(service.jobs.rerun(job.id, persons(0, 21)))
