"""The migrations make exactly the tables of the models, and unmake them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.settings import Settings
from app.store.sql import schema
from app.store.sql.db import Database
from app.store.sql.migration import NEWEST_REVISION, migrate, migration_config
from app.store.sql.models import Base, Delivery, Job
from tests.conftest import DATABASES, settings_without_tables
from tests.new_tables import MIGRATE


def tables(settings: Settings) -> set[str]:
    database = Database(settings)
    try:
        return set(sa.inspect(database.engine).get_table_names()) - {"alembic_version", "sqlite_sequence"}
    finally:
        database.close()


def downgrade_to_base(settings: Settings) -> None:
    """Undo all migrations."""
    database = Database(settings)
    try:
        with database.engine.connect() as connection:
            command.downgrade(migration_config(connection), "base")
            connection.commit()
    finally:
        database.close()


@pytest.fixture(autouse=True)
def real_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "upgrade", MIGRATE)


@pytest.fixture(params=DATABASES)
def settings(real_migrations: None, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return settings_without_tables(request.param, request, tmp_path)


def test_up_down_and_up_again(settings: Settings) -> None:
    migrate(settings)
    assert tables(settings) == set(Base.metadata.tables)
    downgrade_to_base(settings)
    assert tables(settings) == set()
    migrate(settings)
    migrate(settings)
    assert tables(settings) == set(Base.metadata.tables)


def test_small_tables_are_not_lost_with_their_columns(settings: Settings) -> None:
    """The way back is refused while a job has one, and free when it is deleted."""
    migrate(settings)
    database = Database(settings)
    now = datetime.now(UTC)
    job = Job(
        id="job", service="DSWAP", revision=1, state="succeeded", parameters={}, sealed_seed=b"", seed_bits=1,
        seed_fingerprint="", created_at=now, ranked_at=now, row_count=1, source_digest="", source_fields=[],
        inline=True, retain_source=False, sealed_destination=b"sealed", report_level="none",
    )  # fmt: skip
    with database.write() as session:
        session.add(job)
    with pytest.raises(RuntimeError, match="1 jobs have small tables"):
        downgrade_to_base(settings)
    with database.write() as session:
        session.execute(sa.delete(Job))
    database.close()
    downgrade_to_base(settings)
    assert tables(settings) == set()


def test_attacks_are_not_taken_for_swaps_by_an_older_version(settings: Settings) -> None:
    """The way back is refused while there is one."""
    migrate(settings)
    database = Database(settings)
    now = datetime.now(UTC)
    job = Job(
        id="job", service="attacks", revision=1, state="succeeded", parameters={}, sealed_seed=b"",
        seed_bits=1, seed_fingerprint="", created_at=now, ranked_at=now, row_count=1, source_digest="",
        source_fields=[], inline=False, retain_source=False, report_level="full",
    )  # fmt: skip
    with database.write() as session:
        session.add(job)
    with pytest.raises(RuntimeError, match="1 jobs are attacks"):
        downgrade_to_base(settings)
    with database.write() as session:
        session.execute(sa.delete(Job))
    database.close()
    downgrade_to_base(settings)
    assert tables(settings) == set()


def test_an_older_replica_works_with_the_columns_of_annotations(settings: Settings) -> None:
    """Its statements do not name them: its jobs have none, and those of others keep theirs until deleted."""
    migrate(settings)
    database = Database(settings)
    now = datetime.now(UTC)
    known = [column for column in Job.__table__.columns if column.name not in ("name", "label", "notes")]
    older = sa.Table("jobs", sa.MetaData(), *(column._copy() for column in known))
    row = {
        "owner": "ada", "service": "DSWAP", "revision": 1, "state": "queued", "parameters": {},
        "sealed_seed": b"", "seed_bits": 1, "seed_fingerprint": "", "created_at": now, "ranked_at": now,
        "row_count": 1, "source_digest": "", "source_fields": [], "inline": True, "retain_source": False,
        "report_level": "none", "priority": "normal", "byte_size": 0, "attempt": 0, "crashes": 0,
        "cancel_requested": False,
    }  # fmt: skip
    with database.write() as session:
        session.execute(sa.insert(older).values(id="old", **row))
        session.add(Job(id="new", **row, name="Second wave", label="wave-2", notes="by Ada"))
    with database.write() as session:
        session.execute(sa.update(older).values(state="cancelled", finished_at=now))
        jobs = {job.id: (job.name, job.label, job.notes) for job in session.scalars(sa.select(Job))}
        assert jobs == {"old": (None, None, None), "new": ("Second wave", "wave-2", "by Ada")}
        session.execute(sa.delete(older).where(older.c.id == "new"))
    with database.read() as session:
        assert [job.id for job in session.scalars(sa.select(Job))] == ["old"]
    database.close()


def test_pending_messages_get_the_owners_of_their_jobs(settings: Settings) -> None:
    """Messages that an older replica adds later have none."""
    migrate(settings)
    database = Database(settings)
    now = datetime.now(UTC)
    job = Job(
        id="job", owner="ada", service="DSWAP", revision=1, state="succeeded", parameters={}, sealed_seed=b"",
        seed_bits=1, seed_fingerprint="", created_at=now, ranked_at=now, row_count=1, source_digest="",
        source_fields=[], inline=True, retain_source=False, report_level="none",
    )  # fmt: skip
    columns = Delivery.__table__.columns
    added = ("owner", "receiver")
    older = sa.Table("deliveries", sa.MetaData(), *(col._copy() for col in columns if col.name not in added))
    message = {"job_id": "job", "body": "{}", "state": "pending", "attempts": 0, "due_at": now}
    with database.write() as session:
        session.add(job)
    with database.engine.connect() as connection:
        command.downgrade(migration_config(connection), "2026_11_26_job_terms")
        connection.execute(sa.insert(older).values(id="pending", **message))
        connection.execute(sa.insert(older).values(id="ended", **(message | {"state": "delivered"})))
        connection.execute(sa.insert(older).values(id="deleted", **(message | {"job_id": "gone"})))
        connection.commit()
    migrate(settings)
    with database.write() as session:
        session.execute(sa.insert(older).values(id="older replica", **message))
        owners = {row.id: row.owner for row in session.scalars(sa.select(Delivery))}
    assert owners == {"pending": "ada", "ended": "", "deleted": "", "older replica": ""}
    database.close()


def test_the_models_are_what_the_migrations_make(settings: Settings) -> None:
    migrate(settings)
    database = Database(settings)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        command.check(migration_config(connection))
    database.close()


def test_migrations_form_one_line_and_are_named_by_date(settings: Settings) -> None:
    database = Database(settings)
    with database.engine.connect() as connection:
        scripts = ScriptDirectory.from_config(migration_config(connection))
        assert len(scripts.get_heads()) == 1
        names = [Path(script.path).name for script in scripts.walk_revisions()]
    database.close()
    assert names == sorted(names, reverse=True)
    assert all(name[:4].isdigit() and name[4] == "_" for name in names)


def test_processes_that_migrate_at_once_wait_for_each_other(settings: Settings) -> None:
    """A service and `rowveil migrate`, for example, also on SQLite."""
    processes = 4
    start = threading.Barrier(processes)

    def start_together(_: int) -> None:
        start.wait()
        migrate(settings)

    with ThreadPoolExecutor(processes) as threads:
        list(threads.map(start_together, range(processes)))
    assert tables(settings) == set(Base.metadata.tables)


def test_the_newest_revision_is_the_last_migration() -> None:
    """A start compares the tables' revision with a constant, because Alembic takes long to import."""
    with sa.create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(migration_config(connection))
    assert scripts.get_heads() == [NEWEST_REVISION]
