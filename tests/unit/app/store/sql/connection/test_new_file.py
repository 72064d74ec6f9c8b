"""Processes that open a new SQLite database at the same time."""

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from app.store.sql.connection import engines


@pytest.fixture
def writing(tmp_path: Path) -> sqlite3.Connection:
    """Connection of another process that writes to the new database, which does not write ahead yet."""
    opened = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    opened.execute("CREATE TABLE first (id)")
    opened.execute("BEGIN IMMEDIATE")
    return opened


def test_a_new_database_is_opened_when_another_process_has_changed_it(
    tmp_path: Path, writing: sqlite3.Connection
) -> None:
    """SQLite by itself fails here at once, whatever its timeout."""
    timer = threading.Timer(0.1, writing.close)
    timer.start()
    opened = sqlite3.connect(tmp_path / "new.db")
    engines._prepare_sqlite(opened, None)
    assert opened.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    opened.close()
    timer.join()


def test_a_database_that_stays_locked_is_an_error(
    tmp_path: Path, writing: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LOCK_SECONDS", 0.1)
    opened = sqlite3.connect(tmp_path / "new.db")
    started = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        engines._prepare_sqlite(opened, None)
    assert time.monotonic() - started >= 0.1
    opened.close()
    writing.close()
