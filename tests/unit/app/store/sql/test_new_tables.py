"""Tables that tests make by repeating the statements of a migration are those of the migration."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from app.settings import Settings
from app.store.sql import schema
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from app.store.sql.models import Base
from tests.conftest import DATABASES, settings_without_tables
from tests.new_tables import MIGRATE, NewTables


def _described(settings: Settings) -> tuple[list[Any], dict[str, Any]]:
    """Return the differences from the models, and columns, indexes, keys and rows of every table."""
    database = Database(settings)
    try:
        with database.engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            seen = sa.inspect(connection)
            tables = {
                name: (
                    [repr(column) for column in seen.get_columns(name)],
                    [_described_index(index) for index in seen.get_indexes(name)],
                    seen.get_pk_constraint(name),
                    seen.get_unique_constraints(name),
                    seen.get_foreign_keys(name),
                    seen.get_check_constraints(name),
                    _rows(connection, name),
                )
                for name in seen.get_table_names()
            }
            return compare_metadata(context, Base.metadata), tables
    finally:
        database.close()


def _described_index(index: Any) -> dict[str, Any]:
    options = {name: str(value) for name, value in index["dialect_options"].items()}
    return {**index, "dialect_options": options}


def _rows(connection: sa.Connection, table: str) -> list[tuple[Any, ...]]:
    """Return the rows without their times."""
    names = [column["name"] for column in sa.inspect(connection).get_columns(table)]
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names if not name.endswith("_at")]
    return sorted(tuple(row) for row in connection.execute(sa.select(*columns).select_from(sa.table(table))))


@pytest.mark.parametrize("kind", DATABASES)
def test_the_second_database_is_as_the_first(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is migrated, the second is not."""
    migrated: list[str] = []

    def counted(connection: sa.Connection, config: Any, alone: bool) -> None:
        migrated.append(connection.dialect.name)
        MIGRATE(connection, config, alone)

    monkeypatch.setattr("tests.new_tables.MIGRATE", counted)
    monkeypatch.setattr(schema, "upgrade", NewTables().upgrade)
    first, second = (settings_without_tables(kind, request, tmp_path / name) for name in ("first", "second"))
    for settings in (first, second):
        migrate(settings)
    assert len(migrated) == 1
    assert _described(first) == _described(second)
    differences, tables = _described(second)
    assert differences == []
    assert set(tables) == {*Base.metadata.tables, "alembic_version"}
