"""Upgrade and downgrade of a database to the revision of a version, as a start and the command line do it."""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from app.errors import Unavailable
from app.settings import Settings
from app.store.sql import schema
from app.store.sql.connection.engines import BEGIN, shown_cause, shown_url
from app.store.sql.connection.errors import (
    DATABASE_ERRORS,
    FULL,
    REMEDY,
    DatabaseAway,
    DatabaseUnusable,
    is_damaged,
    is_full,
    is_temporary,
    missing_right,
)
from app.store.sql.db import Database

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST_REVISION = "2026_11_30b_outbox_receivers"
"""Revision of the newest migration, which this version was made for."""

_CHECK_SECONDS = 5.0
"""Time for which a start checks a database that was not closed."""

_MIGRATING = 0x726F7776  # "rowv": id of the advisory lock of migrations


def migrate(settings: Settings, alone: bool = False) -> None:
    """Upgrade the tables to the newest revision; create the database file if there is none.

    A database that has the newest revision is only read, without Alembic, which takes long to import.

    Parameters
    ----------
    settings
        Settings with the address of the database.
    alone
        Whether the caller makes sure that no other process uses the database. Otherwise a step that older
        replicas cannot work with is refused while one lives.

    Raises
    ------
    DatabaseUnusable
        The address is invalid, the file cannot be opened, or the tables cannot be migrated now.
    DatabaseAway
        The server does not respond.
    """
    database = Database(settings)
    try:
        with _translated_migration(database), database.engine.connect() as connection:
            at_newest = schema.current_revision(connection) == NEWEST_REVISION
            if at_newest and schema.supports(connection, NEWEST_REVISION):
                return
        with _migrating(database) as connection:
            schema.upgrade(connection, migration_config(connection), alone)
    finally:
        database.close()


def check_after_crash(settings: Settings) -> None:
    """Check the file of an embedded database that was not closed, before anything uses it.

    A clean stop leaves no write-ahead log. If there is one, the process was killed, or a file was copied over
    the database while the log of another state was left. Then all pages are read, for a limited time.

    Raises DatabaseUnusable: the database is damaged.
    """
    database = Database(settings)
    try:
        if not database.has_log():
            return
        with _translated_migration(database):
            fault = database.find_fault(_CHECK_SECONDS)
    finally:
        database.close()
    if fault is not None:
        shown = shown_url(database.engine.url)
        raise DatabaseUnusable(f"the database {shown} is damaged: {fault}; {REMEDY}")


def require_tables(settings: Settings) -> None:
    """Check that the database exists and has tables; create nothing, not even the folder of its file.

    Raises DatabaseUnusable, also if there is no such database; DatabaseAway.
    """
    try:
        url = sa.make_url(settings.database_url)
    except (sa.exc.ArgumentError, ValueError):
        url = None  # which `Database` reports
    file = _file_of(url) if url is not None else None
    if url is not None and file is not None and not (file.is_file() and file.stat().st_size):
        raise _no_database(url)
    database = Database(settings)
    try:
        with _translated_migration(database), database.engine.connect() as connection:
            if schema.current_revision(connection) is None:
                raise _no_database(database.engine.url)
    finally:
        database.close()


def _file_of(url: sa.URL) -> Path | None:
    """Return the file of a SQLite database; None if it has none, or is addressed by a URI."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith(("file:", ":")):
        return None
    return Path(url.database)


def _no_database(url: sa.URL) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"there is no database at {shown_url(url)}; set ROWVEIL_HOME or ROWVEIL_DATABASE_URL as for the "
        "service"
    )


def downgrade(
    settings: Settings, to: str, alone: bool = False, prepare: Callable[[Collection[str]], None] | None = None
) -> None:
    """Bring the tables back to an older revision, for an older version.

    Parameters
    ----------
    settings
        Settings with the address of the database.
    to
        The revision.
    alone
        As for `migrate`.
    prepare
        Function that changes what the older version could not read. It gets the revisions that are about to
        be undone, and is called when nothing refuses the downgrade.

    Raises
    ------
    DatabaseUnusable
        As `migrate`, or a step cannot be undone now. RevisionUnknown: there is no such older revision.
    DatabaseAway
        The server does not respond.
    """
    database = Database(settings)
    try:
        with _migrating(database) as connection:
            config = migration_config(connection)
            undone = schema.check_downgrade(connection, config, to, alone)
            if prepare is not None:
                connection.rollback()  # it has transactions of its own
                prepare(undone)
            schema.downgrade(connection, config, to, alone)
    finally:
        database.close()


@contextmanager
def _migrating(database: Database) -> Iterator[sa.Connection]:
    """Open a transaction that changes the tables, while no other process does; it is committed at the end."""
    with (
        _translated_migration(database),
        database.only_one(_MIGRATING),
        database.engine.connect() as opened,
    ):
        # SQLite refuses to write at once in a transaction that has read what another process then changed.
        connection = opened.execution_options(**{BEGIN: "BEGIN IMMEDIATE"})
        yield connection
        connection.commit()


@contextmanager
def _translated_migration(database: Database) -> Iterator[None]:
    try:
        yield
    except schema.MigrationRefused as error:
        raise DatabaseUnusable(str(error)) from None
    except Unavailable as error:
        if (missing := missing_right(error.__cause__)) is not None:
            shown = shown_url(database.engine.url)
            raise DatabaseUnusable(f"the database {shown} refuses a statement: {missing}") from None
        raise DatabaseAway(error.message) from None
    except (*DATABASE_ERRORS, sa.exc.DatabaseError) as error:
        if not (is_temporary(error) or is_damaged(error)):
            raise
        shown = shown_url(database.engine.url)
        kind = DatabaseAway if database.shared else DatabaseUnusable
        cause = shown_cause(error, database.engine.url)
        message = f"the database {shown} cannot be opened: {cause}"
        if is_full(error) or database.lacks_space():  # then SQLite cannot make its shared memory, either
            message = f"{message}; {FULL}"
        if is_damaged(error):
            message = f"the database {shown} is damaged: {cause}; {REMEDY}"
        raise kind(message) from None


def migration_config(connection: sa.Connection) -> "Config":
    """Return Alembic's configuration for this connection."""
    from alembic.config import Config

    config = Config(stdout=sys.stdout)  # its default is what it was when Alembic was imported
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrations() -> Path:
    """Return the folder of migrations, in the installed package or next to it in the source tree."""
    package = Path(__file__).parents[2]
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise FileNotFoundError("the migrations are neither in the package nor next to it")
