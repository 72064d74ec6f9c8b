"""Transactions in the event loop that are committed together: what each keeps, undoes, sees and waits for."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from app.errors import StorageFull, Unavailable
from app.loop_threads import LoopThreads
from app.settings import Settings
from app.store.sql import usage
from app.store.sql.connection.quick_statements import execute
from app.store.sql.db import Database
from app.store.sql.models import Base, Caller
from app.store.sql.replicas import moment

CALLERS = Base.metadata.tables["callers"]

ENTER = sa.insert(CALLERS)

SEEN = sa.select(CALLERS.c.owner).order_by(CALLERS.c.owner)


class Commits:
    """Counts the commits of a database."""

    def __init__(self, database: Database) -> None:
        self.count = 0
        event.listen(database.engine, "commit", self._counted)

    def _counted(self, _connection: sa.Connection) -> None:
        self.count += 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(Settings(home=tmp_path))
    CALLERS.create(made.engine)
    yield made
    made.close()


def in_loop(database: Database, use: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def with_group() -> Any:
        database.use_loop(Path(str(database.engine.url.database)).parent)
        return await use()

    return asyncio.run(with_group())


def start(database: Database, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    started = database.in_loop(function, *arguments)
    assert started is not None
    return started


def owners(database: Database) -> list[str]:
    """Return what another connection sees."""
    with database.read() as session:
        return [owner for (owner,) in session.execute(SEEN)]


def test_functions_of_one_turn_share_a_commit_and_see_each_other(database: Database) -> None:
    commits = Commits(database)
    seen: dict[str, list[str]] = {}

    def enter(owner: str) -> str:
        with database.write() as session:
            usage.lock(session, owner, moment(session))
            seen[owner] = [name for (name,) in execute(session, SEEN, {})[0]]
        assert owner in owners(database)  # committed when the block has ended
        return owner

    async def use() -> list[Any]:
        return await asyncio.gather(*(start(database, enter, owner) for owner in "abc"))

    assert in_loop(database, use) == ["a", "b", "c"]
    assert seen == {"a": ["a"], "b": ["a", "b"], "c": ["a", "b", "c"]}
    assert commits.count == 1


@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_function_that_fails_undoes_its_own_changes_only(database: Database, failing: str) -> None:
    def enter(owner: str) -> None:
        with database.write() as session:
            usage.lock(session, owner, moment(session))
            if owner == failing:
                raise LookupError(owner)

    async def use() -> list[Any]:
        started = [start(database, enter, owner) for owner in "abc"]
        return await asyncio.gather(*started, return_exceptions=True)

    results = in_loop(database, use)
    assert [isinstance(result, LookupError) for result in results] == [owner == failing for owner in "abc"]
    assert owners(database) == [owner for owner in "abc" if owner != failing]


def test_a_commit_that_fails_fails_every_function_and_leaves_nothing(database: Database) -> None:
    """Also the one whose own error may follow from changes that were not committed."""

    def enter(owner: str) -> None:
        with database.write() as session:
            usage.lock(session, owner, moment(session))
            if owner == "b":
                raise LookupError(owner)

    def fail(_connection: sa.Connection) -> None:
        raise sa.exc.OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    async def use() -> list[Any]:
        event.listen(database.engine, "commit", fail)
        failed = await asyncio.gather(
            *(start(database, enter, owner) for owner in "ab"), return_exceptions=True
        )
        event.remove(database.engine, "commit", fail)
        await start(database, enter, "c")
        return failed

    assert [type(error) for error in in_loop(database, use)] == [Unavailable, Unavailable]
    assert owners(database) == ["c"]


def fill(database: Database, pages: int) -> None:
    """Leave room for a few pages, as on a disk that is nearly full."""
    group = database._group
    assert group is not None
    assert group._connection is not None
    raw = group._connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    (now,) = raw.execute("PRAGMA page_count").fetchone()
    raw.execute(f"PRAGMA max_page_count={now + pages}")


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_full_disk_loses_nothing_that_was_reported_as_committed(
    database: Database, failing: str, handled: bool
) -> None:
    """SQLite undoes the whole transaction then, not only the changes of the one whose statement fails."""

    def enter(owner: str) -> None:
        with database.write() as session:
            usage.lock(session, owner, moment(session))
            if owner == failing:
                try:
                    execute(session, ENTER, {"owner": "x" * 10_000_000, "seen_at": moment(session)})
                except sa.exc.OperationalError:
                    if not handled:
                        raise

    async def use() -> list[Any]:
        await start(database, enter, "first")
        fill(database, 20)
        started = [start(database, enter, owner) for owner in "abc"]
        return await asyncio.gather(*started, return_exceptions=True)

    results = in_loop(database, use)
    committed = [owner for owner, result in zip("abc", results, strict=True) if result is None]
    assert owners(database) == sorted(["first", *committed])
    assert failing not in committed
    expected = Unavailable if handled else StorageFull
    assert {type(result) for result in results if result is not None} == {expected}


def test_a_flush_that_fails_fails_all_functions_of_its_batch(database: Database) -> None:
    """The session undoes the whole transaction; each function reports that it may be tried again."""

    def enter(owner: str) -> None:
        with database.write() as session:
            if owner == "b":
                session.add(Caller(owner="a", seen_at=moment(session)))
                session.flush()
            usage.lock(session, owner, moment(session))

    async def use() -> list[Any]:
        started = [start(database, enter, owner) for owner in "abc"]
        return await asyncio.gather(*started, return_exceptions=True)

    one, two, three = in_loop(database, use)
    assert isinstance(one, Unavailable)
    assert isinstance(two, sa.exc.IntegrityError)
    assert three is None
    assert owners(database) == ["c"]


def test_a_function_that_comes_during_a_commit_shares_the_next_one(database: Database) -> None:
    commits, committing, resumed = Commits(database), threading.Event(), threading.Event()

    def enter(owner: str) -> None:
        with database.write() as session:
            usage.lock(session, owner, moment(session))

    def hold(_connection: sa.Connection) -> None:
        committing.set()
        assert resumed.wait(10)

    async def use() -> None:
        event.listen(database.engine, "commit", hold, insert=True)
        first = start(database, enter, "a")
        await asyncio.to_thread(committing.wait, 10)
        others = [start(database, enter, owner) for owner in "bc"]
        assert not first.done()
        resumed.set()
        await asyncio.gather(first, *others)

    in_loop(database, use)
    assert owners(database) == ["a", "b", "c"]
    assert commits.count == 2


@pytest.mark.parametrize("holder", ["thread", "process"])
def test_a_lock_of_another_thread_or_process_does_not_block_the_event_loop(
    database: Database, tmp_path: Path, holder: str
) -> None:
    """A process is stood for by a connection that does not know the lock of this one."""
    has_lock, release = threading.Event(), threading.Event()

    def hold() -> None:
        if holder == "thread":
            with database.write() as session:
                usage.lock(session, "holder", moment(session))
                has_lock.set()
                assert release.wait(10)
            return
        other = sqlite3.connect(str(database.engine.url.database), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        has_lock.set()
        assert release.wait(10)
        other.execute("COMMIT")
        other.close()

    def enter() -> None:
        with database.write() as session:
            usage.lock(session, "a", moment(session))

    async def use() -> None:
        held = asyncio.create_task(asyncio.to_thread(hold))
        await asyncio.to_thread(has_lock.wait, 10)
        waiting = start(database, enter)
        await asyncio.sleep(0.05)  # the event loop runs
        assert not waiting.done()
        release.set()
        await waiting
        await held

    in_loop(database, use)
    assert "a" in owners(database)


def test_a_function_runs_to_its_end_if_nobody_waits_for_it(database: Database) -> None:
    ended: list[str] = []

    def enter() -> None:
        with database.write() as session:
            usage.lock(session, "a", moment(session))
        ended.append("a")

    async def use() -> None:
        started = start(database, enter)
        started.cancel()
        while not ended:
            await asyncio.sleep(0.01)

    in_loop(database, use)
    assert owners(database) == ["a"]


def test_a_transaction_that_would_wait_for_the_event_loop_itself_is_refused(database: Database) -> None:
    def enter_twice() -> None:
        with database.write() as session:
            usage.lock(session, "a", moment(session))
            with database.write():
                pass

    def enter() -> None:
        with database.write() as session:
            usage.lock(session, "b", moment(session))

    async def use() -> None:
        with pytest.raises(RuntimeError, match="within a transaction"):
            await start(database, enter_twice)
        started = start(database, enter)
        with pytest.raises(RuntimeError, match="in the event loop"), database.write():
            pass
        await started

    in_loop(database, use)
    assert owners(database) == ["b"]


def test_long_work_is_done_in_a_thread(database: Database) -> None:
    def ask(threads: LoopThreads) -> tuple[int, int]:
        return database.aside(threads, threading.get_ident), threading.get_ident()

    async def use() -> tuple[int, int]:
        threads = LoopThreads(1, "test")
        found: tuple[int, int] = await start(database, ask, threads)
        await asyncio.to_thread(threads.shutdown)
        return found

    aside, own = in_loop(database, use)
    assert own == threading.get_ident()
    assert aside != own


def test_a_server_needs_threads(tmp_path: Path) -> None:
    database = Database(Settings(database_url="postgresql://nobody@localhost/none"))

    async def use() -> None:
        database.use_loop(tmp_path)
        assert database.in_loop(lambda: None) is None

    asyncio.run(use())
    database.close()


def test_tables_on_another_disk_need_threads(database: Database) -> None:
    """A share that does not respond must not stop the event loop."""

    async def use(folder: Path) -> bool:
        database.use_loop(folder)
        started = database.in_loop(lambda: None)
        if started is not None:
            await started
        return started is not None

    assert not asyncio.run(use(Path("/proc")))
    assert asyncio.run(use(Path(str(database.engine.url.database)).parent))


def test_what_a_failed_first_function_leaves_is_free(database: Database) -> None:
    """Its batch is given up at once: threads get the lock, and nothing is committed."""
    commits = Commits(database)

    def fail() -> None:
        with database.write() as session:
            usage.lock(session, "a", moment(session))
            raise LookupError

    def enter() -> None:
        with database.write() as session:
            usage.lock(session, "b", moment(session))

    async def use() -> None:
        failed = start(database, fail)
        enter()  # in the event loop's own thread, which nothing holds up
        with pytest.raises(LookupError):
            await failed

    in_loop(database, use)
    assert owners(database) == ["b"]
    assert commits.count == 1
