"""Migrations next to living replicas: steps that are refused, and versions that can use the tables."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from app.settings import Settings
from app.store.sql import replicas, schema
from app.store.sql.connection.errors import DatabaseUnusable, RevisionUnknown
from app.store.sql.db import Database
from app.store.sql.migration import NEWEST_REVISION, downgrade, migrate, migration_config
from app.store.sql.models import Replica, SchemaSupport
from app.store.sql.replicas import ReplicasDiffer, moment
from tests.conftest import DATABASES, settings_on
from tests.new_tables import MIGRATE

MIGRATIONS = Path(__file__).parents[5] / "migrations"
NEXT = "2026_12_31_next"
BETWEEN = "2026_12_30_between"


@pytest.fixture(autouse=True)
def real_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "upgrade", MIGRATE)


@pytest.fixture(params=DATABASES)
def settings(real_migrations: None, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    made = settings_on(request.param, request, tmp_path / "home")
    migrate(made)
    return made


class NextVersion:
    """The next version of the service: one more step of the migrations."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, compatible: bool) -> None:
        shutil.copytree(MIGRATIONS, folder)
        step = f"""
            import sqlalchemy as sa
            from alembic import op

            revision, down_revision, compatible = "{NEXT}", "{NEWEST_REVISION}", {compatible}


            def upgrade():
                op.add_column("jobs", sa.Column("next", sa.Integer()))


            def downgrade():
                op.drop_column("jobs", "next")
            """
        (folder / "versions" / f"{NEXT}.py").write_text(dedent(step))
        self._folder, self._monkeypatch = folder, monkeypatch

    def add_between(self, compatible: bool) -> None:
        """Add a step before the newest one."""
        versions = self._folder / "versions"
        step = f"""
            revision, down_revision, compatible = "{BETWEEN}", "{NEWEST_REVISION}", {compatible}


            def upgrade():
                pass
            """
        (versions / f"{BETWEEN}.py").write_text(dedent(step))
        last = versions / f"{NEXT}.py"
        last.write_text(last.read_text().replace(NEWEST_REVISION, BETWEEN))

    def migrate(self, settings: Settings, alone: bool = False) -> None:
        with self._installed():
            migrate(settings, alone)

    def downgrade(self, settings: Settings, to: str) -> None:
        with self._installed():
            downgrade(settings, to)

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with self._monkeypatch.context() as patched:
            patched.setattr("app.store.sql.migration._migrations", lambda: self._folder)
            patched.setattr("app.store.sql.migration.NEWEST_REVISION", NEXT)
            yield


def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compatible: bool) -> NextVersion:
    return NextVersion(tmp_path / "next", monkeypatch, compatible)


def register(settings: Settings, name: str = "a" * 12) -> None:
    """Let a replica of this version begin."""
    database = Database(settings)
    try:
        with database.write() as session:
            replica = Replica(id=name, key_id="key", folder_id="folder")
            replicas.register(session, replica, 60, {"key"}, NEWEST_REVISION)
    finally:
        database.close()


def supported_by(settings: Settings) -> set[str]:
    """The versions that can use the tables."""
    database = Database(settings)
    with database.read() as session:
        found = set(session.scalars(sa.select(SchemaSupport.revision)))
    database.close()
    return found


def end_leases(settings: Settings, expire: bool = False) -> None:
    database = Database(settings)
    with database.write() as session:
        if expire:
            past = moment(session) - timedelta(seconds=1)
            session.execute(sa.update(Replica).values(lease_until=past))
        else:
            replicas.remove_all(session)
    database.close()


def columns(settings: Settings) -> set[str]:
    database = Database(settings)
    found = {column["name"] for column in sa.inspect(database.engine).get_columns("jobs")}
    database.close()
    return found


def test_a_step_that_older_replicas_cannot_work_with_is_refused_while_one_lives(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has ended or its lease has run out; a caller that is alone need not wait."""
    newer = next_version(tmp_path, monkeypatch, compatible=False)
    register(settings)
    with pytest.raises(DatabaseUnusable, match="1 replicas work on the database"):
        newer.migrate(settings)
    assert "next" not in columns(settings)
    end_leases(settings, expire=True)
    newer.migrate(settings)
    assert "next" in columns(settings)
    newer.migrate(settings)  # nothing is left to do

    with pytest.raises(DatabaseUnusable, match=f"a newer version has changed the tables \\({NEXT}\\)"):
        migrate(settings)
    with pytest.raises(ReplicasDiffer, match=r"this version .* cannot work with them"):
        register(settings, "b" * 12)


def test_who_is_alone_migrates_next_to_the_lease_of_a_killed_service(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(settings)
    next_version(tmp_path, monkeypatch, compatible=False).migrate(settings, alone=True)
    assert "next" in columns(settings)


def test_a_compatible_step_is_applied_next_to_older_replicas(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on, start again on the newer tables, and leave them as they are."""
    newer = next_version(tmp_path, monkeypatch, compatible=True)
    register(settings)
    newer.migrate(settings)
    assert "next" in columns(settings)
    migrate(settings)
    register(settings, "b" * 12)
    assert "next" in columns(settings)


@pytest.mark.parametrize(
    ("first", "second", "supported"),
    [
        (True, True, {NEWEST_REVISION, BETWEEN, NEXT}),
        (False, True, {BETWEEN, NEXT}),
        (True, False, {NEXT}),
    ],
)
def test_two_steps_at_once_are_compatible_if_both_are(
    first: bool, second: bool, supported: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version between the two can use the tables if the second step is."""
    settings = Settings(home=tmp_path / "home")
    migrate(settings)
    if first and second:
        supported = supported | supported_by(settings)
    newer = NextVersion(tmp_path / "next", monkeypatch, second)
    newer.add_between(first)
    register(settings)
    if not (first and second):
        with pytest.raises(DatabaseUnusable, match="1 replicas work"):
            newer.migrate(settings)
        end_leases(settings)
    newer.migrate(settings)
    assert supported_by(settings) == supported


def test_the_newer_version_brings_the_tables_back(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = next_version(tmp_path, monkeypatch, compatible=False)
    newer.migrate(settings)
    with pytest.raises(RevisionUnknown, match="there is no older revision '2020'"):
        newer.downgrade(settings, to="2020")
    database = Database(settings)
    with database.write() as session:
        until = moment(session) + timedelta(seconds=60)
        session.add(Replica(id="c" * 12, key_id="key", folder_id="folder", lease_until=until))
    database.close()
    with pytest.raises(DatabaseUnusable, match="1 replicas work"):
        newer.downgrade(settings, to=NEWEST_REVISION)
    end_leases(settings)
    newer.downgrade(settings, to=NEWEST_REVISION)
    assert "next" not in columns(settings)
    migrate(settings)
    register(settings)


def test_the_newest_revision_is_the_head_of_the_migrations(settings: Settings) -> None:
    database = Database(settings)
    with database.engine.connect() as connection:
        scripts = ScriptDirectory.from_config(migration_config(connection))
    database.close()
    assert scripts.get_current_head() == NEWEST_REVISION
