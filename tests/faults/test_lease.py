"""A replica keeps its lease while the shared folder, its threads or its connections are busy."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.errors import Unavailable
from app.jobs.maintenance.lease import Lease
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.blobs.trash import Trash
from app.store.sql.db import Database
from app.store.sql.models import Replica
from app.store.sql.replicas import moment
from tests.faults.conftest import Running, settings_of
from tests.faults.running import PATIENCE
from tests.postgres import Postgres

pytestmark = pytest.mark.faults

LEASE_SECONDS = 2.0
RENEWALS = 6
"""More than are due within one lease."""


class SlowFolder:
    """A shared folder in which a sweep gets an answer only when the test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow = False
        self.asked, self._answer = threading.Event(), threading.Event()
        real = Trash.files

        def files(trash: Trash) -> list[Path]:
            if self.slow:
                self.asked.set()
                assert self._answer.wait(PATIENCE)
            return real(trash)

        monkeypatch.setattr(Trash, "files", files)

    def answer(self) -> None:
        self.slow = False
        self._answer.set()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowFolder]:
    made = SlowFolder(monkeypatch)
    yield made
    made.answer()


@pytest.fixture
def database(postgres: Postgres, tmp_path: Path) -> Iterator[Database]:
    opened = Database(Settings(home=tmp_path, database_url=postgres.new_database()))
    yield opened
    opened.close()


def settings(home: Path, database: Database) -> Settings:
    address = database.engine.url.render_as_string(hide_password=False)
    return settings_of(home, 1, database_url=address, lease_seconds=LEASE_SECONDS)


def leases(database: Database) -> dict[str, datetime]:
    with database.read() as session:
        return {row.id: row.lease_until for row in session.scalars(sa.select(Replica))}


def wait_for_renewals(database: Database, replica: str) -> None:
    """Return when the lease was renewed several times; it must not have gone meanwhile."""
    seen: set[datetime] = set()
    deadline = time.monotonic() + PATIENCE
    while len(seen) < RENEWALS:
        assert time.monotonic() < deadline, f"renewed {len(seen)} times"
        found = leases(database)
        assert replica in found, "the lease is gone"
        seen.add(found[replica])
        time.sleep(0.05)


def dead_replica(database: Database, like: str) -> str:
    """A replica that was killed: its lease has run out, and nobody has ended it yet."""
    with database.write() as session:
        known = session.get(Replica, like)
        assert known is not None
        past = moment(session) - timedelta(seconds=60)
        dead = Replica(id="d" * 12, key_id=known.key_id, folder_id=known.folder_id, lease_until=past)
        session.add(dead)
    return dead.id


def metric(running: Running, name: str, **labels: str) -> float:
    found = running.jobs.metrics.registry.get_sample_value(name, labels)
    assert found is not None
    return found


def wait_for_metric(running: Running, name: str, **labels: str) -> None:
    """Return when the counter is above 0."""
    deadline = time.monotonic() + PATIENCE
    while metric(running, name, **labels) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_lost_lease_and_failed_renewals_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease's row is gone, as after another replica found it expired; then the database is away."""
    running = Running(settings_of(tmp_path, 1, lease_seconds=LEASE_SECONDS))
    stores = running.jobs._stores
    first = stores.lease.replica
    with stores.database.write() as session:
        session.execute(sa.delete(Replica))
    wait_for_metric(running, "rowveil_leases_lost_total")
    deadline = time.monotonic() + PATIENCE
    while stores.lease.replica == first:  # it starts again under another id
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert metric(running, "rowveil_lease_renewal_failures_total") == 0

    def away(*_: object) -> bool:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "renew", away)
        wait_for_metric(running, "rowveil_lease_renewal_failures_total")
    assert metric(running, "rowveil_leases_lost_total") == 1
    running.close()


def test_a_sweep_that_takes_long_does_not_cost_the_lease(
    tmp_path: Path, database: Database, folder: SlowFolder
) -> None:
    """Otherwise the next replica ends the lease, sweeps, and loses its own, one after the other."""
    running = Running(settings(tmp_path / "one", database))
    (replica,) = leases(database)
    folder.slow = True
    dead = dead_replica(database, replica)
    assert folder.asked.wait(PATIENCE)  # it has ended the dead one's lease, and sweeps
    wait_for_renewals(database, replica)
    another = dead_replica(database, replica)
    assert another == dead
    while another in leases(database):  # and it goes on to look after others meanwhile
        time.sleep(0.05)
    folder.answer()
    running.close()
    assert leases(database) == {}


def test_a_sweep_at_the_start_does_not_cost_the_lease(
    tmp_path: Path, database: Database, folder: SlowFolder
) -> None:
    folder.slow = True
    opened: list[Stores] = []
    thread = threading.Thread(target=lambda: opened.append(Stores.open(settings(tmp_path, database))))
    thread.start()
    assert folder.asked.wait(PATIENCE)
    (replica,) = leases(database)
    wait_for_renewals(database, replica)
    folder.answer()
    thread.join(PATIENCE)
    (stores,) = opened
    assert stores.lease.replica == replica
    stores.close()


def test_a_lease_is_renewed_while_every_other_connection_and_thread_is_taken(
    tmp_path: Path, database: Database
) -> None:
    running = Running(settings(tmp_path / "one", database))
    (replica,) = leases(database)
    stores, threads = running.jobs._stores, running.jobs._threads
    held, go_on = threading.Barrier(9), threading.Event()

    def hold(wait: Callable[[], object]) -> None:
        with contextlib.suppress(Exception):
            wait()
        go_on.wait(PATIENCE)

    for _ in range(8):
        threads.submit(hold, held.wait)
    held.wait(PATIENCE)
    engine = stores.database.engine
    with contextlib.ExitStack() as taken:
        with contextlib.suppress(sa.exc.TimeoutError):
            while True:
                taken.enter_context(engine.connect())
                in_use, limit = stores.database.connections()
                if in_use == limit:
                    break
        wait_for_renewals(database, replica)
        with contextlib.suppress(sa.exc.TimeoutError):  # one that was in use then may be free since
            taken.enter_context(engine.connect())
        wait_for_metric(running, "rowveil_pool_full_seconds_total", pool="connections")
    go_on.set()
    running.close()


def test_a_jump_of_the_clock_ends_no_lease_of_a_living_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With SQLite the machine's clock measures leases: another process gets time to renew its own."""
    running = Running(settings_of(tmp_path, 1))
    try:
        stores, heartbeat = running.jobs._stores, running.jobs._lifecycle.heartbeat
        with stores.database.write() as session:
            known = session.get(Replica, stores.lease.replica)
            assert known is not None
            until = moment(session) + timedelta(seconds=stores.lease.seconds)
            session.add(
                Replica(id="e" * 12, key_id=known.key_id, folder_id=known.folder_id, lease_until=until)
            )
        heartbeat._patient_until = 0.0
        now, jump = time.time, 3600.0
        monkeypatch.setattr(time, "time", lambda: now() + jump)
        monkeypatch.setattr(
            "app.store.sql.replicas.moment", lambda session: moment(session) + timedelta(seconds=jump)
        )
        running.loop.do(heartbeat._look_after_leases())
        assert "e" * 12 in leases(stores.database)
        heartbeat._patient_until = 0.0  # the time of a lease later
        take_over = running.jobs._dispatcher.take_over_stalled

        async def jumping(*arguments: Any) -> None:
            monkeypatch.setattr(time, "time", lambda: now() + 2 * jump)
            monkeypatch.setattr(
                "app.store.sql.replicas.moment", lambda session: moment(session) + timedelta(seconds=2 * jump)
            )
            await take_over(*arguments)

        with stores.database.write() as session:  # renewed after the first jump
            change = sa.update(Replica).where(Replica.id == "e" * 12)
            session.execute(change.values(lease_until=until + timedelta(seconds=jump)))
        with monkeypatch.context() as patch:
            patch.setattr(running.jobs._dispatcher, "take_over_stalled", jumping)
            running.loop.do(heartbeat._look_after_leases())  # the clock jumps after it was read
        assert "e" * 12 in leases(stores.database)
        running.loop.do(heartbeat._look_after_leases())
        assert "e" * 12 in leases(stores.database)
        heartbeat._patient_until = 0.0  # the time of a lease later: it was not renewed
        running.loop.do(heartbeat._look_after_leases())
        assert "e" * 12 not in leases(stores.database)
    finally:
        running.close()
