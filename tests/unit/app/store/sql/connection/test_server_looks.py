"""Single queries on PostgreSQL in the event loop, on connections that wait without a thread."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from app.errors import InvalidRequest, Unavailable
from app.settings import Settings
from app.store.sql.connection import server_looks
from app.store.sql.db import Database
from app.telemetry.request_id import REQUEST_ID
from tests.postgres import Postgres, running_postgres

PATIENCE = 60.0
SLEEP = sa.select(
    sa.func.pg_sleep(sa.bindparam("seconds", type_=sa.Float)).label("slept"),
    sa.func.pg_backend_pid().label("pid"),
)
PROCESS = sa.select(sa.func.pg_backend_pid().label("pid"))
ROOT = sa.select(sa.func.sqrt(sa.bindparam("number", type_=sa.Float), type_=sa.String).label("root"))


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    opened = Database(Settings(database_url=postgres.new_database()))
    yield opened
    opened.close()


def in_loop(database: Database, use: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine whose looks wait in the event loop, and close the database in it."""

    async def run() -> Any:
        database.use_loop(None)
        try:
            return await asyncio.wait_for(use(), PATIENCE)
        finally:
            await asyncio.to_thread(database.close)

    return asyncio.run(run())


def test_a_look_waits_in_the_event_loop_and_leaves_it_to_others(database: Database) -> None:
    def look() -> tuple[int, int]:
        before = threading.get_ident()
        database.look(SLEEP, {"seconds": 1.0})
        return before, threading.get_ident()

    async def use() -> tuple[tuple[int, int], int]:
        looking = asyncio.ensure_future(database.looking(look))
        turns = 0
        while not looking.done():
            await asyncio.sleep(0.01)
            turns += 1
        return looking.result(), turns

    threads, turns = in_loop(database, use)
    assert set(threads) == {threading.get_ident()}
    assert turns > 1


def test_more_looks_than_connections_wait_for_their_turn(database: Database) -> None:
    def look(number: int) -> tuple[int, int]:
        found = database.look(SLEEP, {"seconds": 0.01})
        assert found is not None
        return number, found.pid

    async def use() -> list[tuple[int, int]]:
        return await asyncio.gather(*(database.looking(look, number) for number in range(40)))

    found = in_loop(database, use)
    assert [number for number, _ in found] == list(range(40))
    assert 1 < len({process for _, process in found}) <= server_looks._MOST


def test_free_connections_are_not_in_use(database: Database) -> None:
    async def use() -> tuple[int, int]:
        slow = asyncio.ensure_future(database.looking(database.look, SLEEP, {"seconds": 3.0}))
        await database.looking(database.look, PROCESS, {})
        while database.connections()[0] != 1:
            await asyncio.sleep(0.01)
        assert not slow.done()
        await slow
        return database.connections()

    used, most = in_loop(database, use)
    assert (used, most) == (0, 15)


def test_an_error_of_a_query_keeps_its_connection(database: Database) -> None:
    async def use() -> None:
        first = await database.looking(database.look, PROCESS, {})
        with pytest.raises(InvalidRequest) as refused:
            await database.looking(database.look, ROOT, {"number": -1.0})
        assert "square root of a negative number" in str(refused.value.__cause__)
        assert await database.looking(database.look, PROCESS, {}) == first

    in_loop(database, use)


def test_a_look_that_nobody_waits_for_ends_and_frees_its_connection(database: Database) -> None:
    async def use() -> None:
        abandoned = [
            asyncio.ensure_future(database.looking(database.look, SLEEP, {"seconds": 0.1})) for _ in range(10)
        ]
        await asyncio.sleep(0.05)
        for look in abandoned:
            look.cancel()
        assert await database.looking(database.look, PROCESS, {}) is not None
        while database.connections()[0]:
            await asyncio.sleep(0.01)

    in_loop(database, use)


def test_a_look_has_the_context_of_its_request(database: Database) -> None:
    """Log lines take the request's id from it, before and after the wait."""

    def look() -> tuple[str, str]:
        before = REQUEST_ID.get()
        database.look(SLEEP, {"seconds": 0.01})
        return before, REQUEST_ID.get()

    async def request(number: int) -> tuple[str, str]:
        REQUEST_ID.set(str(number))
        return await database.looking(look)

    async def use() -> list[tuple[str, str]]:
        return await asyncio.gather(*(request(number) for number in range(20)))

    assert in_loop(database, use) == [(str(number), str(number)) for number in range(20)]


def test_a_thread_looks_as_before(database: Database) -> None:
    async def use() -> Any:
        return await asyncio.to_thread(database.look, PROCESS, {})

    assert in_loop(database, use).pid > 0


@contextmanager
def another_server() -> Iterator[tuple[Postgres, Database]]:
    """Run a server that the test may kill, with a database."""
    with running_postgres() as server:
        database = Database(Settings(database_url=server.new_database()))
        yield server, database
        database.close()


async def all_connections(database: Database) -> set[int]:
    """Open all connections for look-ups; return the ids of their processes."""
    found = await asyncio.gather(
        *(database.looking(database.look, SLEEP, {"seconds": 0.05}) for _ in range(server_looks._MOST))
    )
    return {row.pid for row in found if row is not None}


def rest(database: Database, seconds: float) -> None:
    """Let all free connections have been without use for some more seconds."""
    looks = database._server_looks
    assert looks is not None
    assert looks.idle == server_looks._MOST
    looks._idle[:] = [(used_at - seconds, connection) for used_at, connection in looks._idle]


def test_a_restart_of_the_server_between_two_looks_fails_none() -> None:
    """A connection that was not used for a second is tested, and replaced with all others if it is broken."""

    async def use() -> None:
        before = await all_connections(database)
        server.kill()
        server.start()
        rest(database, 2.0)
        assert before.isdisjoint(await all_connections(database))

    with another_server() as (server, database):
        in_loop(database, use)


def test_a_connection_that_responds_after_a_second_is_kept(database: Database) -> None:
    async def use() -> None:
        before = await all_connections(database)
        rest(database, 2.0)
        assert await all_connections(database) == before

    in_loop(database, use)


def test_a_restart_of_the_server_fails_looks_for_a_moment() -> None:
    async def use() -> None:
        await all_connections(database)
        slow = asyncio.ensure_future(database.looking(database.look, SLEEP, {"seconds": 30.0}))
        await asyncio.sleep(0.2)
        server.kill()
        with pytest.raises(Unavailable):
            await slow
        with pytest.raises(Unavailable):
            await database.looking(database.look, PROCESS, {})
        server.start()
        await all_connections(database)
        assert database.connections()[0] == 0

    with another_server() as (server, database):
        in_loop(database, use)


def test_no_connection_is_left_when_the_database_is_closed(database: Database) -> None:
    address = database.engine.url.render_as_string(hide_password=False)

    async def use() -> None:
        await asyncio.gather(*(database.looking(database.look, SLEEP, {"seconds": 0.05}) for _ in range(4)))

    in_loop(database, use)
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(address.replace("postgresql+psycopg", "postgresql"), autocommit=True) as opened:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # a server process ends a moment after its connection
            (others,) = opened.execute(count).fetchone() or (0,)
            if others == 1:
                return
            time.sleep(0.02)
        pytest.fail(f"{others - 1} connections are left")
