"""Order of jobs, plans and uploads of several callers, with a real worker, on both databases."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
import sqlalchemy as sa

from app.callers import Caller
from app.errors import LimitReached
from app.ids import new_id
from app.jobs.fairness.turns import Task
from app.jobs.requests import Priority
from app.store.sql.models import Job
from providers import PROVIDERS
from tests.faults import doings
from tests.faults.conftest import Running, new_job, people
from tests.faults.running import PATIENCE
from tests.faults.uploads import CSV, pieces

pytestmark = pytest.mark.faults

Start = Callable[..., Running]

MANY = 1000


def submit(service: Running, owner: str, count: int = 1, priority: Priority = "normal") -> list[Job]:
    """Jobs of one caller, accepted in this order."""
    jobs, new = service.jobs.on_behalf_of(Caller(owner)), new_job(people(2), priority=priority)

    async def submit_all() -> list[Job]:
        return [await jobs.submit(new) for _ in range(count)]

    return service.loop.do(submit_all())


def add_copies(service: Running, job: Job, count: int) -> None:
    """Queue copies of a job with the turns that further jobs of its caller would get; they do not run."""
    table = cast(sa.Table, Job.__table__)
    with service.jobs._stores.database.write() as session:
        row = dict(session.execute(sa.select(table).where(table.c.id == job.id)).mappings().one())
        last = row["ranked_at"]
        turns = [last + timedelta(seconds=number + 1) for number in range(count)]
        session.execute(sa.insert(table), [row | {"id": new_id(), "ranked_at": turn} for turn in turns])


def hold(service: Running) -> Job:
    """A job of somebody's that keeps the only worker."""
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    return held


def starts(service: Running, jobs: list[Job]) -> list[datetime]:
    """The times at which jobs have started so far."""
    found = [service.get(job).started_at for job in jobs]
    return [started for started in found if started is not None]


def plan(service: Running, owner: str) -> Any:
    """A plan that is being computed."""
    provider, source = PROVIDERS["DSWAP"], people(2)
    params = provider.check(provider.params.model_validate({"swap_fields": ["income"]}), source.schema)
    return service.loop.start(service.jobs.on_behalf_of(Caller(owner)).plan("DSWAP", params, source))


def upload(service: Running, owner: str) -> Any:
    """An upload that is on its way."""
    return service.loop.start(
        service.jobs.on_behalf_of(Caller(owner)).buffers.create(pieces(CSV), "text/csv")
    )


def wait_until_waiting(service: Running, count: int) -> None:
    """Return when ``count`` plans and uploads wait for their turn."""
    turns = service.jobs._dispatcher._turns

    async def waiting() -> None:
        while sum(task.turn is not None for task in turns._tasks.values()) < count:
            await asyncio.sleep(0.01)

    service.loop.do(waiting())


def starts_of_tasks(service: Running, monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """Return the times at which plans and uploads start, which are added as they come."""
    turns, begun = service.jobs._dispatcher._turns, list[datetime]()
    begin = turns.start

    def noted(task: Task) -> None:
        begun.append(datetime.now(UTC))
        begin(task)

    monkeypatch.setattr(turns, "start", noted)
    return begun


def test_a_single_job_does_not_wait_for_a_thousand_of_another_caller(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts after at most one of the others; so do a plan and an upload of callers without any job."""
    one = start(workers=1, caller_jobs=2 * MANY)
    held = hold(one)
    many = submit(one, "greedy", 20)
    add_copies(one, many[-1], MANY - len(many))
    (single,) = submit(one, "modest")
    begun = starts_of_tasks(one, monkeypatch)
    others = [plan(one, "planner"), upload(one, "uploader")]
    wait_until_waiting(one, 2)
    one.open_gate(held)
    started = one.end(single).started_at
    assert started is not None
    for future in others:
        future.result(PATIENCE)
    began = starts(one, many)
    assert sum(moment < started for moment in began) <= 1
    assert len(begun) == 2
    assert all(sum(moment < at for moment in began) <= 1 for at in begun)


def test_a_job_does_not_wait_for_all_uploads_of_another_caller(start: Start) -> None:
    """Plans and uploads wait in the same order as jobs, and not at the head of the queue."""
    one = start(workers=1)
    held = hold(one)
    uploads = [upload(one, "greedy") for _ in range(30)]
    wait_until_waiting(one, 30)
    (single,) = submit(one, "modest")
    one.open_gate(held)
    started = one.end(single).started_at
    assert started is not None
    made = [future.result(PATIENCE).created_at for future in uploads]
    assert sum(moment < started for moment in made) <= 2


def test_callers_take_turns(start: Start) -> None:
    one = start(workers=1)
    held = hold(one)
    jobs = {owner: submit(one, owner, count) for owner, count in (("a", 6), ("b", 3), ("c", 2))}
    one.open_gate(held)
    moments = {one.end(job).started_at: owner for owner, own in jobs.items() for job in own}
    order = "".join(moments[moment] for moment in sorted(moments))  # type: ignore[type-var]
    assert order == "abcabcabaaa"


def test_a_job_of_high_priority_goes_before_the_turns_of_all(start: Start) -> None:
    """A caller with many of them leaves every fifth start to the others."""
    one = start(workers=1)
    held = hold(one)
    normal = submit(one, "a", 3)
    high = submit(one, "b", 20, "high")
    one.open_gate(held)
    ends = {one.end(job).started_at: job.priority for job in (*normal, *high)}
    order = [ends[moment] for moment in sorted(ends)]  # type: ignore[type-var]
    positions = [index for index, priority in enumerate(order) if priority == "normal"]
    assert positions == [2, 7, 12]  # after 2, and then after 4 more each: the half of a step first


def test_plans_and_uploads_count_as_jobs(start: Start) -> None:
    """A caller at its limit of jobs gets neither; its plans and uploads count as well."""
    one = start(workers=1, caller_jobs=3)
    held = hold(one)
    submit(one, "a", 2)
    first = plan(one, "a")
    wait_until_waiting(one, 1)
    for refused in (plan(one, "a"), upload(one, "a")):
        with pytest.raises(LimitReached, match="ROWVEIL_CALLER_JOBS"):
            refused.result(PATIENCE)
    with pytest.raises(LimitReached):
        submit(one, "a")
    other = submit(one, "b")
    one.open_gate(held)
    first.result(PATIENCE)
    assert one.end(other[0]).state == "succeeded"
    plan(one, "a").result(PATIENCE)


def test_a_plan_that_nobody_waits_for_gives_up_its_turn(start: Start) -> None:
    one = start(workers=1, max_wait_seconds=0.2, default_wait_seconds=0)
    held = hold(one)
    given_up = plan(one, "a")
    assert "no worker became free" in str(given_up.exception(PATIENCE))
    assert one.jobs._dispatcher._turns.waiting() == []
    one.open_gate(held)
    one.end(held)
