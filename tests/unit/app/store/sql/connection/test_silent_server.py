"""Waits for a server that does not respond end, and those for a slow statement do not."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.errors import Unavailable
from app.settings import Settings
from app.store.sql.connection import silent_server
from app.store.sql.db import Database
from tests.postgres import Postgres, running_postgres

_PATIENCE = 60.0
_SLOW = sa.select(sa.literal(1).label("one")).where(sa.func.pg_sleep(2.0).is_not(None))
_QUICK = sa.select(sa.literal(1).label("one"))


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as started:
        yield started


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOOK": 0.1, "SILENT": 0.5, "ANSWER": 2}.items():
        monkeypatch.setattr(silent_server, f"_{name}_SECONDS", value)


@pytest.mark.usefixtures("_impatient")
def test_only_waits_for_a_silent_server_end(server: Postgres, tmp_path: Path) -> None:
    """This holds for threads, transactions and the event loop; afterwards the database is used as before."""
    database = Database(Settings(database_url=server.empty_database(), home=tmp_path))

    def read() -> int:
        with database.read() as session:
            return session.scalars(_QUICK).one()

    def look() -> int:
        (found,) = database.look_at_all(_QUICK, {})
        return int(found.one)

    async def run() -> None:
        database.use_loop(None)
        slow = database.looking(database.look_at_all, _SLOW, {})
        assert len(await slow) == len(await asyncio.to_thread(database.look_at_all, _SLOW, {})) == 1
        with ThreadPoolExecutor() as threads:
            server.freeze()
            try:
                loop = asyncio.get_running_loop()
                waits = [loop.run_in_executor(threads, wait) for wait in (read, look)]
                ends = await asyncio.wait_for(
                    asyncio.gather(*waits, database.looking(look), return_exceptions=True), _PATIENCE
                )
            finally:
                server.thaw()
            assert all(isinstance(end, Unavailable) for end in ends), ends
            assert await asyncio.to_thread(read) == await database.looking(look) == 1

    try:
        asyncio.run(run())
    finally:
        database.close()
