"""Run the migrations on the given connection, or on the settings' database."""

from alembic import context

from app.settings import Settings
from app.store.sql.db import Database
from app.store.sql.models import Base


def _run(connection: object) -> None:
    context.configure(
        connection=connection,  # type: ignore[arg-type]  # Alembic's stub of attributes is untyped
        target_metadata=Base.metadata,
        render_as_batch=True,  # SQLite changes a table by copying it
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    database = Database(Settings())
    with database.engine.begin() as opened:
        _run(opened)
    database.close()
