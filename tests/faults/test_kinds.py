"""Jobs that judge and compare: where their tables are kept, how they fail, and choices that repeat."""

import os
import signal
from collections.abc import Callable

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.errors import Conflict, InvalidRequest, NotFound
from app.jobs.requests import TableOf
from app.jobs.service import NewJob
from app.store.sql.models import Job
from providers.selection.candidates import CHOICE_REVISION
from tests.faults import doings
from tests.faults.conftest import (
    Running,
    blobs_of,
    embedded,
    new_attack,
    new_frontier,
    new_job,
    new_measures,
    people,
)

pytestmark = pytest.mark.faults

SEED = bytes(range(32))


def blobs(service: Running) -> set[str]:
    return blobs_of(service.settings)


def released(table: pa.Table) -> pa.Table:
    """The same with its incomes the other way round."""
    return table.set_column(1, "income", table.column("income").take(pa.array(range(len(table))[::-1])))


def ended(service: Running, new: NewJob) -> Job:
    return service.end(service.accept(new))


def test_judged_tables_go_with_the_end_of_the_job(service_of_files: Running) -> None:
    """Both, as a source does."""
    service = service_of_files
    before = blobs(service)
    table = people()
    job = service.accept(new_measures(table, released(table), seed=doings.HELD))
    service.wait_until_held(job)
    assert len(blobs(service) - before) == 2
    service.open_gate(job)
    job = service.end(job)
    assert (job.state, job.source_blob, job.destination_blob) == ("succeeded", None, None)
    assert (job.destination_rows, job.row_count) == (1000, 1000)
    assert blobs(service) == before
    with pytest.raises(NotFound, match="its result is its report"):
        service.rows(job)
    with pytest.raises(Conflict, match="the job's source was not retained"):
        service.loop.do(service.jobs.rerun(job.id))


def test_retained_tables_are_kept_until_the_job_is_deleted(service_of_files: Running) -> None:
    """And give the same report again."""
    service = service_of_files
    before = blobs(service)
    table = people()
    job = ended(service, new_measures(table, released(table), seed=SEED, retain_source=True))
    assert blobs(service) - before == {job.source_blob, job.destination_blob}
    again = service.end(service.loop.do(service.jobs.rerun(job.id)))
    assert again.reproduced is True
    service.loop.do(service.jobs.delete(job.id))
    assert len(blobs(service) - before) == 2  # the rerun retains them too
    service.loop.do(service.jobs.delete(again.id))
    assert blobs(service) == before


def test_a_cancelled_job_leaves_neither_table(service: Running) -> None:
    """Whether it had begun or not."""
    before = blobs(service)
    table = people()
    jobs = [service.accept(new_measures(table, released(table), seed=doings.HELD)) for _ in range(3)]
    service.wait_until_held(jobs[0])
    for job in reversed(jobs):
        assert service.loop.do(service.jobs.cancel(job.id)).state == "cancelled"
    assert blobs(service) == before


def test_a_refused_table_leaves_nothing_behind(service: Running) -> None:
    """The other table has been written already."""
    before = blobs(service)
    with pytest.raises(InvalidRequest, match="no buffer 'nobody'") as caught:
        service.accept(new_measures(people(), "nobody"))
    assert caught.value.pointer == "/destination/buffer"
    assert blobs(service) == before


def test_all_tables_of_an_attack_go_with_its_end(service_of_files: Running) -> None:
    """Also the control rows; an attack that retains them can be repeated without any, until it is deleted."""
    service = service_of_files
    before = blobs(service)
    table, control = people(), people(200)
    job = service.accept(new_attack(table, released(table), control, seed=doings.HELD))
    service.wait_until_held(job)
    assert len(blobs(service) - before) == 3
    service.open_gate(job)
    job = service.end(job)
    assert (job.state, job.source_blob, job.destination_blob, job.control_blob) == (
        "succeeded",
        None,
        None,
        None,
    )
    assert (job.control_rows, job.control_digest is None) == (200, False)
    assert blobs(service) == before
    kept = ended(service, new_attack(table, released(table), control, seed=SEED, retain_source=True))
    assert blobs(service) - before == {kept.source_blob, kept.destination_blob, kept.control_blob}
    again = service.end(service.loop.do(service.jobs.rerun(kept.id)))
    assert again.reproduced is True
    service.loop.do(service.jobs.delete(kept.id))
    assert len(blobs(service) - before) == 3  # the rerun retains them too
    service.loop.do(service.jobs.delete(again.id))
    assert blobs(service) == before


def test_a_run_may_be_deleted_while_its_release_is_attacked(service_of_files: Running) -> None:
    """The attack has a name of its own for each table, and a key that opens it."""
    service = service_of_files
    before = blobs(service)
    run = ended(service, new_job(people(), seed=SEED, retain_source=True))
    attack = new_attack(
        TableOf(run.id, "source"), TableOf(run.id, "destination"), seed=doings.HELD, job=run.id
    )
    job = service.accept(attack)
    service.wait_until_held(job)
    service.loop.do(service.jobs.delete(run.id))
    assert len(blobs(service) - before) == 2
    service.open_gate(job)
    job = service.end(job)
    assert (job.state, job.source_digest, job.destination_digest) == (
        "succeeded",
        run.source_digest,
        run.destination_digest,
    )
    assert blobs(service) == before
    with pytest.raises(InvalidRequest, match="there is no job"):
        service.accept(attack)


def test_a_release_whose_rows_have_expired_is_not_attacked(service: Running) -> None:
    run = ended(service, new_job(people(), seed=SEED))
    with service.jobs._stores.database.write() as session:
        gone = dict.fromkeys(("destination_blob", "sealed_destination_key", "sealed_destination"))
        session.execute(sa.update(Job).where(Job.id == run.id).values(gone))
    with pytest.raises(Conflict, match="rows have expired") as caught:
        service.accept(new_attack(people(), TableOf(run.id, "destination"), job=run.id))
    assert caught.value.pointer == "/destination"


def test_a_killed_worker_fails_its_frontier_alone(service: Running) -> None:
    """It fails like a swap, and no file remains."""
    before = blobs(service)
    job = service.accept(new_frontier(people(), seed=doings.HELD))
    os.kill(service.wait_until_held(job).pid, signal.SIGKILL)
    failed = service.end(job)
    assert failed.error is not None
    assert (failed.state, failed.error["code"]) == ("failed", "worker_died")
    assert ended(service, new_frontier(people(), seed=SEED)).state == "succeeded"
    assert blobs(service) == before


def test_a_rerun_of_a_failed_frontier_reproduces_nothing(service: Running) -> None:
    """There is no report to compare with."""
    job = service.accept(new_frontier(people(), seed=doings.HELD, retain_source=True))
    os.kill(service.wait_until_held(job).pid, signal.SIGKILL)
    service.end(job)
    again = service.loop.do(service.jobs.rerun(job.id))
    service.wait_until_held(again)
    service.open_gate(again)
    again = service.end(again)
    assert (again.state, again.reproduced) == ("succeeded", None)


@embedded
def test_a_choice_does_not_depend_on_workers_or_threads(start: Callable[..., Running]) -> None:
    """The same master seed: the same candidate, the same bytes, the same points."""
    table = people(3000)
    measures = {"sample": 500, "fields": ["income", "city"]}  # income numbers the rows: it is asked for
    candidates = {"count": 3, "rank_by": ["pscr", "distortion"]}
    options = {"candidates": candidates, "measures": measures, "choice_revision": CHOICE_REVISION}
    found = []
    for workers, threads in ((1, 2), (2, 1)):
        several = start(f"home{workers}", workers=workers, worker_threads=threads)
        chosen = several.accept(new_job(table, service="DSWAP", seed=SEED, options=options))
        compared = several.accept(new_frontier(table, seed=SEED, options={"measures": {"sample": 500}}))
        reports = [several.loop.do(several.jobs.report(several.end(job).id)) for job in (chosen, compared)]
        for line in reports[0]["candidates"]["table"]:
            del line["seed_fingerprint"]  # which each installation makes with a key of its own
        found.append((several.get(chosen).destination_digest, *reports))
        several.close()
    assert found[0] == found[1]
