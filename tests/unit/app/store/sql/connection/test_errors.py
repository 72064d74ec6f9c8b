"""Errors of a database that callers get as problems, recognised by codes and not by words."""

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from app.errors import StorageFull, Unavailable
from app.settings import Settings
from app.store.sql.db import Database
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
