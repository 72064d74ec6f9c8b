"""Jobs of older versions, whose digests have another form: reruns, comparisons and the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.callers import READ, RUN, Caller
from app.errors import Conflict, ReleasedBefore
from app.formats.media_types import ARROW_STREAM
from app.jobs.service import JobService
from app.jobs.tables.views import ComparisonOptions
from app.store.sql.models import Buffer, Job, Release, Replica
from app.store.sql.replicas import moment
from providers.tables.digest import DigestForm, form_of, table_digest
from tests.faults.conftest import Running, database_of, new_job, people, settings_of
from tests.whole_tables import write_table

pytestmark = pytest.mark.faults

SEED = bytes(range(32))
LARGE = 20_000
"""Rows of a table that is a file and not in the job's row."""


@pytest.fixture(scope="module")
def service(
    database_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("forms") / "home"
    policies = {"release_policy": "warn", "release_policies": {"strict": "refuse"}}
    running = Running(settings_of(home, 1, **policies, **database_of(database_kind, request)))
    yield running
    running.close()


@contextmanager
def older_replica(service: Running) -> Iterator[None]:
    """A replica of a version that knows the first form only, next to the service.

    An embedded database has one version at a time; there the service itself behaves as the older one.
    """
    stores = service.jobs._stores
    lease, name = stores.lease, "e" * 12
    if not stores.database.shared:
        lease.digest_form = DigestForm.WHOLE
        yield
        lease.digest_form = DigestForm.PARTS
        return
    with stores.database.write() as session:
        own = session.get(Replica, lease.replica)
        assert own is not None
        assert own.runs is not None
        runs = {key: value for key, value in own.runs.items() if key != "digests"}
        until = moment(session) + timedelta(hours=1)
        session.add(
            Replica(id=name, key_id=own.key_id, folder_id=own.folder_id, lease_until=until, runs=runs)
        )
    assert lease.renew()
    yield
    with stores.database.write() as session:
        session.delete(session.get(Replica, name))
    assert lease.renew()


def table(seed: int, rows: int = 1000) -> pa.Table:
    """Rows that no other test has."""
    return people(rows).set_column(1, "income", pa.array(np.random.default_rng(seed).permutation(rows)))


def older_job(service: Running, source: pa.Table | str, **values: Any) -> Job:
    with older_replica(service):
        job = service.run(source, seed=SEED, **values)
    assert job.state == "succeeded"
    assert {form_of(job.source_digest), form_of(job.destination_digest or "")} == {DigestForm.WHOLE}
    return job


def buffer_of(service: Running, rows: pa.Table, jobs: JobService | None = None) -> Buffer:
    async def chunks() -> Any:
        for chunk in write_table(ARROW_STREAM, rows):
            yield chunk

    return service.loop.do((jobs or service.jobs).buffers.create(chunks(), ARROW_STREAM))


def rerun(service: Running, job: Job, source: Any = None) -> Job:
    return service.end(service.loop.do(service.jobs.rerun(job.id, source)))


def test_new_jobs_have_digests_by_parts(service: Running) -> None:
    source = table(1)
    job = service.run(source)
    assert job.source_digest == table_digest(source)
    assert job.source_digest.startswith("sha256t:")
    assert job.destination_digest == table_digest(service.rows(job))
    buffer = buffer_of(service, source)
    assert buffer.digest == job.source_digest
    digests = {service.run(given, seed=SEED).destination_digest for given in (buffer.id, source)}
    assert len(digests) == 1


@pytest.mark.parametrize("rows", [1000, LARGE])
def test_a_rerun_of_an_older_job_is_compared_in_its_form(service: Running, rows: int) -> None:
    """The source is given as rows, as a buffer of this version, and not at all if it was retained."""
    source = table(2, rows)
    job = older_job(service, source, retain_source=True)
    assert job.source_digest == table_digest(source, DigestForm.WHOLE)
    for given in (source, buffer_of(service, source).id, None):
        again = rerun(service, job, given)
        assert (again.state, again.reproduced) == ("succeeded", True)
        assert (again.source_digest, again.destination_digest) == (job.source_digest, job.destination_digest)
        assert service.rows(again).equals(service.rows(job))
        signed = service.loop.do(service.jobs.manifest(again.id))["manifest"]
        assert (signed["source"]["digest"], signed["destination"]["digest"]) == (
            job.source_digest,
            job.destination_digest,
        )
    for other in (table(3, rows), buffer_of(service, table(3, rows)).id):
        with pytest.raises(Conflict, match=f"expected {job.source_digest}"):
            rerun(service, job, other)


def test_a_buffer_of_an_older_version_keeps_its_form(service: Running) -> None:
    source = table(4)
    with older_replica(service):
        buffer = buffer_of(service, source)
    assert buffer.digest == table_digest(source, DigestForm.WHOLE)
    new = service.run(source, seed=SEED)
    old = service.run(buffer.id, seed=SEED)
    assert form_of(old.destination_digest or "") is DigestForm.WHOLE
    assert service.rows(old).equals(service.rows(new))
    again = rerun(service, new, buffer.id)
    assert (again.source_digest, again.reproduced) == (new.source_digest, True)


def test_a_digest_of_an_older_replica_is_not_said_to_differ(service: Running) -> None:
    """Such as that of a job by parts which it had claimed before it knew of them."""
    job = service.run(table(5), retain_source=True)
    rows = service.rows(job)
    with service.jobs._stores.database.write() as session:
        found = session.get(Job, job.id)
        assert found is not None
        found.destination_digest = table_digest(rows, DigestForm.WHOLE)
    assert rerun(service, job).reproduced is None


def test_rows_of_an_older_job_are_compared_with_a_new_buffer(service: Running) -> None:
    source = table(6)
    job = older_job(service, source)
    options = ComparisonOptions(3)
    buffer = buffer_of(service, source)
    assert service.loop.do(service.jobs.compare_rows(job.id, buffer.id, options))["rows"]
    other = buffer_of(service, table(7))
    with pytest.raises(Conflict, match="other rows than the job's source"):
        service.loop.do(service.jobs.compare_rows(job.id, other.id, options))


def entries(service: Running, job: Job) -> list[Release]:
    """The ledger's entries of a source, oldest first."""
    return list(service.loop.do(service.jobs.releases(job.source_digest, 50))[0])


def test_a_source_released_before_the_upgrade_is_found_by_its_digest(service: Running) -> None:
    source = table(8)
    first = older_job(service, source)
    second = service.run(source)
    assert (second.event_counts or {}).get("released_before") == 1
    assert "was released once before" in (second.events or [{}])[0]["message"]
    third = service.run(source, seed=SEED)  # the rows of the first job again, so nothing new is released
    assert "released_before" not in (third.event_counts or {})
    assert third.destination_digest == table_digest(service.rows(first))
    found = entries(service, second)
    assert [entry.job_id for entry in found] == [first.id, second.id, third.id]
    assert [entry.match for entry in found] == [None, "digest", "digest"]
    assert [entry.source_digest for entry in found] == [first.source_digest, *[second.source_digest] * 2]
    assert found[2].destination_digest == first.destination_digest
    with older_replica(service):
        fourth = service.run(source)
    assert "was released 2 times before" in (fourth.events or [{}])[0]["message"]
    assert entries(service, first)[-1].match == "digest"


@pytest.mark.parametrize("rows", [1000, LARGE])
def test_a_policy_refuses_a_source_released_before_the_upgrade(service: Running, rows: int) -> None:
    """At the acceptance, which knows the source by its digest only."""
    strict = service.jobs.on_behalf_of(Caller("anna", "strict", scopes=frozenset({RUN, READ})))

    def submit(given: pa.Table | str) -> Job:
        return service.end(service.loop.do(strict.submit(new_job(given, seed=SEED))))

    source = table(9, rows)
    with older_replica(service):
        first = submit(source)
        assert first.state == "succeeded"
    for given in (source, buffer_of(service, source, strict).id):
        with pytest.raises(ReleasedBefore, match="released once"):
            submit(given)
    assert submit(table(10, rows)).state == "succeeded"


def test_the_form_of_new_digests_is_known_to_every_replica(service: Running) -> None:
    """New digests have the first form as long as a replica of an older version lives."""
    lease = service.jobs._stores.lease
    forms = [lease.digest_form]
    with older_replica(service):
        forms.append(lease.digest_form)
        assert service.run(table(11)).source_digest.startswith("sha256:")
    forms.append(lease.digest_form)
    assert forms == [DigestForm.PARTS, DigestForm.WHOLE, DigestForm.PARTS]
