"""Failover of a PostgreSQL: for a while the address leads to a standby that is not promoted yet."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from app.errors import Unavailable
from app.store.sql.models import Job
from tests.faults import doings
from tests.faults.conftest import Running, people, settings_of
from tests.faults.running import PATIENCE
from tests.postgres import Postgres, running_postgres

pytestmark = pytest.mark.faults


@pytest.fixture
def server() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


def start(home: Path, database: str) -> Running:
    return Running(settings_of(home, 1, database_url=database, lease_seconds=60.0))


def test_a_job_that_ends_before_the_standby_is_promoted_has_succeeded(
    tmp_path: Path, server: Postgres
) -> None:
    """Meanwhile a new job is refused with a 503."""
    service = start(tmp_path / "home", server.new_database())
    try:
        held = service.submit(people(), seed=doings.HELD)
        service.wait_until_held(held)
        server.become_standby()
        service.open_gate(held)

        async def wait() -> Job:
            return await service.jobs.wait(held.id, PATIENCE)

        waiting = service.loop.start(wait())
        sleep(1)  # the end is not recorded at the first attempts
        with pytest.raises(Unavailable):
            service.submit(people())
        assert not waiting.done()
        server.promote()
        job = waiting.result(PATIENCE)
        assert (job.state, job.error) == ("succeeded", None)
    finally:
        service.close()


def test_a_service_that_starts_waits_for_the_promotion(tmp_path: Path, server: Postgres) -> None:
    """Also if it has to migrate the tables."""
    databases = {"migrated": server.new_database(), "empty": server.empty_database()}
    for home, database in databases.items():
        server.become_standby()
        server.promote_after(1.5)
        service = start(tmp_path / home, database)
        try:
            assert service.run(people()).state == "succeeded"
        finally:
            service.close()
