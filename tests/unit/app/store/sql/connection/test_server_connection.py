"""Statements of PostgreSQL through libpq: in threads and fibers, in transactions, prepared, after errors."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

import psycopg
import pytest
import sqlalchemy as sa

from app.settings import Settings
from app.store.sql.connection import server_connection
from app.store.sql.connection.fibers import Fibers
from app.store.sql.connection.server_connection import ServerConnection
from app.store.sql.db import Database
from tests.postgres import Postgres

T = TypeVar("T")

VALUES = ["ü 'x' %", 7, 2**40, -1.5e300, True, datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=UTC), b"\x00\xff" * 9]
TYPES = ["text", "int", "bigint", "float8", "boolean", "timestamptz", "bytea"]
ECHO = "SELECT " + ", ".join(f"${number}::{name}" for number, name in enumerate(TYPES, 1))


@pytest.fixture
def connection(postgres: Postgres) -> Iterator[ServerConnection]:
    url = sa.make_url(postgres.empty_database()).set(drivername="postgresql")
    with ServerConnection.connect(url.render_as_string(hide_password=False)) as opened:
        yield opened


def in_thread(function: Callable[[], T]) -> T:
    return function()


def in_fiber(function: Callable[[], T]) -> T:
    async def run() -> T:
        return await Fibers().run(function)

    return asyncio.run(run())


WAYS = pytest.mark.parametrize("way", [in_thread, in_fiber])


def rows(connection: ServerConnection, text: str, *values: Any) -> list[tuple[Any, ...]]:
    return connection.statements.run(text.encode(), values)[0]


def prepared(connection: ServerConnection) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
    assert isinstance(count, int)
    return count


@WAYS
def test_values_come_back_as_they_were_sent(connection: ServerConnection, way: Any) -> None:
    for _ in range(2):  # prepared, and prepared before
        assert way(lambda: rows(connection, ECHO, *VALUES)) == [tuple(VALUES)]
    assert way(lambda: rows(connection, ECHO, *[None] * len(VALUES))) == [(None,) * len(VALUES)]


@WAYS
def test_results_are_those_of_a_cursor(connection: ServerConnection, way: Any) -> None:
    text = "SELECT sum(n), count(*), now(), '[1, {\"a\": null}]'::jsonb FROM generate_series(1, 9) n"
    expected = connection.execute(text).fetchall()
    assert isinstance(expected[0][0], int | Decimal)
    assert way(lambda: rows(connection, text)) == expected
    assert way(lambda: rows(connection, text + " WHERE $1", True)) == expected


@WAYS
def test_rows_longer_than_a_buffer_of_the_socket(connection: ServerConnection, way: Any) -> None:
    long = b"\x01\x02" * 4_000_000
    assert way(lambda: rows(connection, "SELECT $1::bytea", long)) == [(long,)]


@WAYS
def test_the_number_of_changed_rows(connection: ServerConnection, way: Any) -> None:
    rows(connection, "CREATE TABLE t (n int)")
    insert = b"INSERT INTO t SELECT generate_series(1, $1)"
    assert way(lambda: connection.statements.run(insert, [5])) == ([], 5)
    assert way(lambda: connection.statements.run(b"UPDATE t SET n = 0 WHERE n > $1", [2])) == ([], 3)
    assert way(lambda: connection.statements.run(b"DELETE FROM t WHERE n = $1", [9])) == ([], 0)


@WAYS
@pytest.mark.parametrize("values", [(), (True,)], ids=["with_the_beginning", "after_it"])
def test_the_first_statement_begins_the_transaction_of_the_connection(
    connection: ServerConnection, way: Any, values: tuple[Any, ...]
) -> None:
    connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
    asked = "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
    asked += " WHERE $1" if values else ""
    assert way(lambda: rows(connection, asked, *values)) == [("repeatable read", "on")]
    assert not connection.statements.idle
    way(connection.rollback)
    assert connection.statements.idle
    connection.read_only = False
    assert way(lambda: rows(connection, asked, *values)) == [("repeatable read", "off")]


@WAYS
def test_transactions_end_as_they_should(connection: ServerConnection, way: Any) -> None:
    def add_two() -> None:
        rows(connection, "INSERT INTO t VALUES ($1)", 1)
        connection.commit()
        rows(connection, "INSERT INTO t VALUES ($1)", 2)
        connection.rollback()

    rows(connection, "CREATE TABLE t (n int)")
    connection.commit()
    way(add_two)
    assert rows(connection, "SELECT n FROM t") == [(1,)]


@WAYS
def test_without_transactions_each_statement_is_committed(connection: ServerConnection, way: Any) -> None:
    connection.autocommit = True
    way(lambda: rows(connection, "CREATE TABLE t AS SELECT 1 AS n"))
    assert connection.statements.idle
    assert way(lambda: rows(connection, "SELECT n FROM t WHERE n = $1", 1)) == [(1,)]
    assert connection.statements.idle


@WAYS
def test_prepared_statements_survive_a_rollback(connection: ServerConnection, way: Any) -> None:
    for _ in range(9):  # psycopg prepares a statement of its own after five times
        assert way(lambda: rows(connection, "SELECT $1::int", 1)) == [(1,)]
        assert prepared(connection) == 1
        connection.rollback()


@WAYS
def test_an_error_is_that_of_the_driver_and_the_next_transaction_works(
    connection: ServerConnection, way: Any
) -> None:
    def divide(by: int) -> list[tuple[Any, ...]]:
        return rows(connection, "SELECT 6 / $1::int", by)

    assert way(lambda: divide(2)) == [(3,)]
    with pytest.raises(psycopg.errors.DivisionByZero):
        way(lambda: divide(0))
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        way(lambda: divide(2))
    connection.rollback()
    assert way(lambda: divide(3)) == [(2,)]
    with pytest.raises(psycopg.errors.SyntaxError):
        way(lambda: rows(connection, "SELECT FROM FROM $1", 1))


@WAYS
def test_a_statement_prepared_before_a_column_got_another_type_fails_once(
    connection: ServerConnection, way: Any, postgres: Postgres
) -> None:
    connection.autocommit = True
    rows(connection, "CREATE TABLE t AS SELECT 1 AS n")
    assert way(lambda: rows(connection, "SELECT n FROM t WHERE $1", True)) == [(1,)]
    rows(connection, "ALTER TABLE t ALTER COLUMN n TYPE text")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan"):
        way(lambda: rows(connection, "SELECT n FROM t WHERE $1", True))
    assert way(lambda: rows(connection, "SELECT n FROM t WHERE $1", True)) == [("1",)]


def test_no_more_statements_stay_prepared_than_the_limit(
    connection: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "_MOST_PREPARED", 4)
    for number in range(10):
        assert rows(connection, f"SELECT $1::int + {number}", 1) == [(1 + number,)]
        assert prepared(connection) <= 4
    assert rows(connection, "SELECT $1::int + 0", 2) == [(2,)]


def test_integers_of_all_sizes_are_parameters_of_one_statement(connection: ServerConnection) -> None:
    for number in (1, 2**20, 2**40, -(2**63)):
        assert rows(connection, "SELECT $1::bigint", number) == [(number,)]


@WAYS
def test_a_connection_that_the_server_ends_is_broken(
    connection: ServerConnection, way: Any, postgres: Postgres
) -> None:
    ((process,),) = rows(connection, "SELECT pg_backend_pid()")
    url = sa.make_url(postgres.empty_database()).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False)) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])
    with pytest.raises(psycopg.OperationalError):
        way(lambda: rows(connection, "SELECT $1::int", 1))
    assert connection.closed
    with pytest.raises(psycopg.OperationalError):
        way(lambda: rows(connection, "SELECT 1"))


def test_connections_of_the_service_are_of_this_kind(postgres: Postgres) -> None:
    database = Database(Settings(database_url=postgres.empty_database()))
    with database.engine.connect() as connection:
        assert isinstance(connection.connection.driver_connection, ServerConnection)
    database.close()
