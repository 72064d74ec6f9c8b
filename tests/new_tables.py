"""Tables of new databases: migrated once in a test process, and made by the same statements from then on.

A migration takes 0.2 s of processor time, most of it in Alembic, and hundreds of tests begin with an empty
database. Tests of the migrations themselves use `tests.new_tables.MIGRATE`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import sqlalchemy as sa

from app.store.sql import schema

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATE = schema.upgrade
"""The upgrade that the service uses."""

_READS = ("SELECT", "PRAGMA")

_Statement = tuple[str, Any]


class NewTables:
    """Upgrade that repeats the statements of the first one on each further empty database."""

    def __init__(self) -> None:
        self._statements: dict[tuple[str, str], list[_Statement]] = {}

    def upgrade(self, connection: sa.Connection, config: "Config", alone: bool) -> None:
        """Upgrade the tables. Raises MigrationRefused. See `app.store.sql.schema.upgrade`."""
        if sa.inspect(connection).get_table_names():
            MIGRATE(connection, config, alone)
            return
        made_by = connection.dialect.name, str(config.get_main_option("script_location"))
        if made_by not in self._statements:
            with _noted(connection) as statements:
                MIGRATE(connection, config, alone)
            self._statements[made_by] = statements
        else:
            for statement, parameters in self._statements[made_by]:
                connection.exec_driver_sql(statement, parameters or None).close()


@contextmanager
def _noted(connection: sa.Connection) -> Iterator[list[_Statement]]:
    """Collect the statements that change something, in order."""
    statements: list[_Statement] = []

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if cursor.description is None or not statement.lstrip().startswith(_READS):
            statements.append((statement, parameters))

    sa.event.listen(connection, "after_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(connection, "after_cursor_execute", note)


@contextmanager
def made_once() -> Iterator[None]:
    """Let the services and stores of this process make new tables in this way."""
    with mock.patch.object(schema, "upgrade", NewTables().upgrade):
        yield
