"""Queries without SQLAlchemy's execution: the same rows, value by value, and errors as before."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import Unavailable
from app.settings import Settings
from app.store.sql.connection import engines
from app.store.sql.connection.quick_statements import errors_of, execute
from app.store.sql.db import Database
from app.store.sql.models import Base, Release
from tests.conftest import DATABASES
from tests.postgres import Postgres

LEDGER = Base.metadata.tables["ledger"]

VALUES: dict[str, Any] = {
    "id": "1",
    "job_id": "j",
    "family": "ü 'quoted'",
    "released_at": datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=timezone(timedelta(hours=2))),
    "owner": "me",
    "project": None,
    "service": "DSWAP",
    "revision": 2**40,
    "source_digest": "s",
    "destination_digest": "d",
    "row_count": 0,
    "match": None,
    "risk": {"rate": 0.1, "large": 2**70, "nested": [None, True, "x"]},
    "reason": "",
    "epsilon": None,
    "sketch": {},
    "written_in": 7,
}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    given: dict[str, Any] = {"home": tmp_path}
    if request.param == "postgresql":
        given["database_url"] = request.getfixturevalue("postgres").empty_database()
    made = Database(Settings(**given))
    LEDGER.create(made.engine)
    with made.write() as session:
        session.add(Release(**VALUES))
    yield made
    made.close()


def test_a_row_is_that_of_sqlalchemy(database: Database) -> None:
    """Text, numbers, times with a zone, JSON and nulls; a parameter that is converted, too."""
    since = sa.bindparam("since", type_=LEDGER.c.released_at.type)
    query = sa.select(LEDGER).where(LEDGER.c.id == sa.bindparam("wanted"), LEDGER.c.released_at >= since)
    given = {"wanted": "1", "since": datetime(2026, 1, 1, tzinfo=UTC)}
    with database.read() as session:
        expected = session.connection().execute(query, given).one()
    for _ in range(2):  # compiled, and as compiled before
        found = database.look(query, given)
        assert found is not None
        assert {name: getattr(found, name) for name in VALUES} == dict(expected._mapping)
    assert database.look(query, given | {"wanted": "2"}) is None
    assert database.look(query, given | {"since": datetime(2027, 1, 1, tzinfo=UTC)}) is None


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_server_does_not_plan_the_statements_of_each_snapshot_again(database: Database) -> None:
    """A connection prepares a statement once, whatever ends its transactions."""
    query = sa.select(LEDGER.c.id).where(LEDGER.c.owner == sa.bindparam("owner"))
    for _ in range(8):
        with database.read() as session:
            execute(session, query, {"owner": "me"})
    listed = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%FROM ledger%'"
    with database.read() as session:
        assert session.scalar(sa.text(listed)) == 1


def test_a_lost_database_is_reported_and_opened_again(database: Database) -> None:
    query = sa.select(LEDGER.c.id).where(LEDGER.c.owner == sa.bindparam("owner"))
    with database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE ledger RENAME TO hidden")
    with pytest.raises(sa.exc.ProgrammingError if database.shared else Unavailable):
        database.look(query, {"owner": "me"})
    with database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE hidden RENAME TO ledger")
    found = database.look(query, {"owner": "me"})
    assert found is not None
    assert found.id == "1"


def test_statements_change_what_sqlalchemy_changes(database: Database) -> None:
    """Insert with nulls left out, update with and without a match, and an update that returns its rows."""
    columns = LEDGER.c
    insert = sa.insert(LEDGER)
    rename = sa.update(LEDGER).where(columns.id == sa.bindparam("wanted")).values(owner=sa.bindparam("owner"))
    count = sa.update(LEDGER).where(columns.owner == "you").values(revision=columns.revision + 1)
    count = count.returning(*columns)
    entries = []
    for quick in (True, False):
        with database.write() as session:
            if not quick:
                session.info.clear()  # the driver's connection
            values = {name: value for name, value in VALUES.items() if value is not None} | {"id": str(quick)}
            found, inserted = execute(session, insert, values)
            assert (found, inserted == 1 or not quick) == ([], True)  # SQLAlchemy does not always count
            assert execute(session, rename, {"wanted": "nobody", "owner": "you"}) == ([], 0)
            assert execute(session, rename, {"wanted": str(quick), "owner": "you"}) == ([], 1)
            (entry,), _ = execute(session, count, {})
            execute(session, rename, {"wanted": str(quick), "owner": "she"})
        entries.append(entry._asdict())
    assert entries[0] == entries[1] | {"id": "True"}
    assert entries[0]["revision"] == VALUES["revision"] + 1


def test_a_missing_parameter_is_an_error_and_no_null(database: Database) -> None:
    query = sa.select(LEDGER.c.id).where(LEDGER.c.owner == sa.bindparam("owner"))
    with database.read() as session, pytest.raises(KeyError, match="owner"):
        execute(session, query, {})


def test_an_error_of_the_driver_is_that_of_sqlalchemy(database: Database) -> None:
    """Its text has the statement, and none of the values."""
    insert = sa.insert(LEDGER)
    with database.write() as session:
        with pytest.raises(sa.exc.IntegrityError, match=r"(?i)unique") as caught:
            execute(session, insert, VALUES)
        session.rollback()
        assert isinstance(caught.value.orig, errors_of(database.engine.dialect))
        assert "INSERT INTO ledger" in str(caught.value)
        assert "quoted" not in str(caught.value)


QUERY = sa.select(LEDGER.c.id).where(LEDGER.c.owner == sa.bindparam("owner"))


def lose_connections(database: Database, postgres: Postgres) -> None:
    """End the idle connections of the database, as a server does that starts again."""
    name = database.engine.url.database
    postgres.do(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'")


def test_a_connection_that_was_idle_is_tested(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_SECONDS", 0.0)
    database = Database(Settings(home=tmp_path, database_url=postgres.empty_database()))
    LEDGER.create(database.engine)
    lose_connections(database, postgres)
    assert database.look(QUERY, {"owner": "me"}) is None
    lose_connections(database, postgres)
    with database.write() as session:
        session.add(Release(**VALUES))
    database.close()


@pytest.mark.parametrize("how", ["look", "read", "write"])
def test_a_connection_that_was_used_just_now_may_be_lost_once(
    how: str, tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction reports the fault, and the next one has another connection."""
    monkeypatch.setattr(engines, "IDLE_SECONDS", 600.0)
    database = Database(Settings(home=tmp_path, database_url=postgres.empty_database()))
    LEDGER.create(database.engine)
    lose_connections(database, postgres)

    with pytest.raises(Unavailable):
        use(database, how)
    use(database, how)
    database.close()


def use(database: Database, how: str) -> None:
    """Run a query in one of the ways of `Database`."""
    if how == "look":
        database.look(QUERY, {"owner": "me"})
        return
    with getattr(database, how)() as session:
        execute(session, QUERY, {"owner": "me"})


@pytest.mark.parametrize("how", ["look", "read", "write"])
def test_a_server_that_is_away_is_reported_each_time(how: str, tmp_path: Path, postgres: Postgres) -> None:
    """The first transaction loses its connection; the others get none."""
    database = Database(Settings(home=tmp_path, database_url=postgres.empty_database()))
    LEDGER.create(database.engine)
    postgres.kill()
    try:
        for _ in range(3):
            with pytest.raises(Unavailable):
                use(database, how)
    finally:
        postgres.start()
    use(database, how)
    database.close()


@pytest.mark.parametrize(
    "add",
    [
        lambda session: session.add(Release(**VALUES)),
        lambda session: execute(session, sa.insert(LEDGER), VALUES),
    ],
)
def test_a_server_that_takes_no_writes_is_unavailable(
    add: Callable[[Session], object], tmp_path: Path, postgres: Postgres
) -> None:
    database = Database(Settings(home=tmp_path, database_url=postgres.empty_database()))
    LEDGER.create(database.engine)

    def write() -> None:
        with database.write() as session:
            session.execute(sa.text("SET TRANSACTION READ ONLY"))
            add(session)

    with pytest.raises(Unavailable):
        write()
    use(database, "write")
    database.close()


def test_an_embedded_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    """A look, like a transaction, is answered by 503 until the file can be opened again."""
    file = tmp_path / "rowveil.db"
    database = Database(Settings(home=tmp_path))
    assert database.engine.url.database == str(file)
    file.mkdir()
    with pytest.raises(Unavailable):
        database.look(QUERY, {"owner": "me"})
    file.rmdir()
    LEDGER.create(database.engine)
    assert database.look(QUERY, {"owner": "me"}) is None
    database.close()
