"""Errors of a database that callers get as problems, recognised by codes and not by words."""

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from app.errors import StorageFull, Unavailable
from app.settings import Settings
from app.store.sql.connection.errors import DatabaseUnusable
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from tests.postgres import Postgres


@pytest.fixture
def server(postgres: Postgres) -> Iterator[Database]:
    database = Database(Settings(database_url=postgres.new_database()))
    yield database
    database.close()


def failing(state: str, words: str) -> sa.TextClause:
    return sa.text(f"DO $$ BEGIN RAISE EXCEPTION '{words}' USING ERRCODE = '{state}'; END $$")


@pytest.mark.parametrize(
    ("state", "words", "expected"),
    [
        (
            "53100",
            "konnte Datei nicht erweitern: Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
            StorageFull,
        ),
        ("55P03", "the lock of No space left on device", Unavailable),
    ],
)
def test_a_full_disk_of_the_server_is_recognised_in_any_language(
    server: Database, state: str, words: str, expected: type[Exception]
) -> None:
    with pytest.raises(expected) as raised, server.write() as session:
        session.execute(failing(state, words))
    assert isinstance(raised.value.__cause__, sa.exc.OperationalError)
    assert isinstance(raised.value.__cause__.orig, psycopg.Error)


def test_the_log_says_why_there_is_no_connection(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a limit of connections, without the password. Of a statement it has the kind of the error."""
    address = postgres.new_database_with_password("limited", "pa55word")
    database = Database(Settings(database_url=address.replace("limited@", "limited:pa55word@")))
    try:
        with pytest.raises(Unavailable), database.write() as session:
            session.execute(failing("55P03", "9f2c"))
        postgres.do("ALTER ROLE limited CONNECTION LIMIT 0")
        database.engine.dispose()
        with pytest.raises(Unavailable), database.read():
            pass
    finally:
        database.close()
        postgres.do("ALTER ROLE limited CONNECTION LIMIT -1")
    of_statement, of_connection = caplog.messages
    assert of_statement == "the database is not available: LockNotAvailable"
    assert 'FATAL: too many connections for role "limited"' in of_connection
    assert "pa55word" not in caplog.text


def test_a_missing_right_is_a_503_and_the_log_names_it(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator can grant it while the service runs; the end of a job is recorded after that."""
    address = postgres.new_database_with_password("reader", "pa55word").replace("reader@", "reader:pa55word@")
    migrate(Settings(database_url=address))
    database = Database(Settings(database_url=address))
    try:
        with database.write() as session:  # as an owner, from whom the operator has taken rights
            session.execute(sa.text("REVOKE DELETE ON replicas FROM reader"))
        with pytest.raises(Unavailable), database.write() as session:
            session.execute(sa.text("DELETE FROM replicas"))
        with pytest.raises(Unavailable), database.write() as session:
            session.execute(failing("42501", "Berechtigung fehlt"))
    finally:
        database.close()
    first, second = caplog.messages
    assert first == (
        "the database is not available: permission denied for table replicas; grant the role of "
        "ROWVEIL_DATABASE_URL every right on the tables of its database, or let it own them"
    )
    assert "Berechtigung fehlt" in second


def test_a_start_without_the_right_to_change_the_tables_says_so(postgres: Postgres) -> None:
    """PostgreSQL 15 and newer let only its owner create tables in a new database's schema `public`."""
    owner = postgres.new_database_with_password("owner", "pa55word").replace("owner@", "owner:pa55word@")
    postgres.new_database_with_password("stranger", "pa55word")
    stranger = owner.replace("owner:pa55word@", "stranger:pa55word@")
    with pytest.raises(DatabaseUnusable, match="permission denied for schema public; grant the role"):
        migrate(Settings(database_url=stranger))
