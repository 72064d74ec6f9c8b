"""`rowveil adopt-storage`: refused while a replica works, and what it does and prints."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.sql.deployment import FolderMark, StorageMismatch
from app.store.sql.models import AuditLine, Deployment, Replica
from app.store.sql.replicas import moment
from tests.conftest import new_address
from tests.unit.app.jobs.maintenance.test_sweep import name_all, names, put, trashed
from tests.unit.app.store.sql.test_replicas import run_out

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a PostgreSQL, also of the commands."""
    address = new_address("postgresql", request)
    assert address is not None
    monkeypatch.setenv("ROWVEIL_HOME", str(tmp_path))
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", address)
    return Settings()


@pytest.fixture
def stores(settings: Settings) -> Iterator[Stores]:
    """A replica that works."""
    opened = Stores.open(settings)
    yield opened
    opened.close()


def lease_until(stores: Stores, ahead: timedelta) -> None:
    """Let the replica's lease hold until a time ahead."""
    with stores.database.write() as session:
        replica = session.get_one(Replica, stores.lease.replica)
        replica.lease_until = moment(session) + ahead


def test_it_is_refused_while_a_replica_works(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """Until its lease has ended or run out; nothing was changed before."""
    mark = FolderMark(stores.blobs.folder.parent)
    before = mark.read()
    assert main(["adopt-storage"]) == 1
    assert "1 replicas work on the database: stop them first" in capsys.readouterr().err
    assert mark.read() == before
    lease_until(stores, timedelta(days=3))  # it was renewed by a clock that was ahead
    assert main(["adopt-storage"]) == 1
    stated = capsys.readouterr().err.partition("holds its lease until ")[2].partition(" UTC at the latest")[0]
    with stores.database.read() as session:
        now = moment(session)
    assert timedelta(0) < datetime.fromisoformat(stated).replace(tzinfo=UTC) - now < timedelta(minutes=2)
    assert mark.read() == before
    stores.sweep()
    run_out(stores.database, stores.lease.replica)
    assert main(["adopt-storage"]) == 0
    after = mark.read()
    assert after != before
    with stores.database.read() as session:
        found = session.scalars(sa.select(Deployment)).one()
        (line,) = session.scalars(sa.select(AuditLine).where(AuditLine.action == "storage.adopt"))
    assert (found.deployment_id, found.in_folder) == (after, True)
    assert line.subject == after
    assert (line.who or "").startswith("operator:")
    with pytest.raises(StorageMismatch):
        stores.sweeper.check_folder()


def test_it_takes_back_what_rows_name_and_says_what_is_missing(
    stores: Stores, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third, lost = names(4)
    put(stores, first, second)
    stores.sweep()
    assert trashed(stores) == {first, second}
    put(stores, third)
    name_all(stores, [first, lost])
    stores.lease.release()
    assert main(["adopt-storage"]) == 0
    printed = capsys.readouterr().out
    assert "Tables in the folder: 2, of which rows name 1." in printed
    assert "Tables that rows name and that are not in the folder: 1." in printed
    assert "Tables taken back from the trash, because rows name them: 1." in printed
    assert "Tables that no row names: 1. The next start moves them to the trash" in printed
    assert (stores.blobs.names(), trashed(stores)) == ({first, third}, {second})
    again = Stores.open(settings)
    assert (again.blobs.names(), trashed(again)) == ({first}, {second, third})
    again.close()


def test_it_gives_a_folder_to_a_database_that_starts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither has an id yet; and after a folder was lost with its mark."""
    monkeypatch.setenv("ROWVEIL_HOME", str(tmp_path))
    assert main(["keys", "create", "--name", "ann"]) == 0  # an installation before its first start
    assert main(["adopt-storage"]) == 0
    Stores.open(Settings()).close()
    (tmp_path / "deployment").unlink()
    with pytest.raises(StorageMismatch, match="not mounted"):
        Stores.open(Settings())
    assert main(["adopt-storage"]) == 0
    Stores.open(Settings()).close()
    assert "Tables in the folder: 0, of which rows name 0." in capsys.readouterr().out


def test_a_folder_that_cannot_be_marked_leaves_the_database_as_it_was(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = FolderMark(stores.blobs.folder.parent)
    before = mark.read()
    path = stores.blobs.folder.parent / "deployment"
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    stores.lease.release()
    assert main(["adopt-storage"]) == 1
    assert "cannot be used" in capsys.readouterr().err
    with stores.database.read() as session:
        assert session.scalars(sa.select(Deployment.deployment_id)).one() == before
        assert not list(session.scalars(sa.select(AuditLine.number)))
