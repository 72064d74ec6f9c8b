"""Upgrade and downgrade of the tables while other replicas may be at work.

A step of the migrations is compatible if its module says ``compatible = True``: replicas of the versions that
could work with the tables before it can go on while and after it is applied, and can be started again. Any
other step is refused while a replica lives. The table ``schema_support`` has the revisions whose version of
the service can work with the tables as they are, so that a replica of an older version can start after a
compatible step, and one that cannot is refused.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING

import sqlalchemy as sa

from app.store.sql.connection.errors import RevisionUnknown
from app.store.sql.models import Replica, SchemaSupport

if TYPE_CHECKING:  # Alembic takes long to import, and most starts need no migration
    from alembic.config import Config
    from alembic.script import ScriptDirectory


class MigrationRefused(Exception):
    """The tables cannot be changed now, or cannot be used by this version."""


def upgrade(connection: sa.Connection, config: "Config", alone: bool) -> None:
    """Upgrade the tables, or leave them if they are newer and can be used. Raises MigrationRefused.

    ``alone``: whether the caller makes sure that no other process uses the database.
    """
    command, scripts = _alembic(config)
    newest, current = str(scripts.get_current_head()), current_revision(connection)
    known = [script.revision for script in scripts.walk_revisions()]  # newest first
    if current is not None and current not in known:
        if supports(connection, newest):
            return
        raise MigrationRefused(
            f"a newer version has changed the tables ({current}), and this one cannot work with them: start "
            f"the newer one, or let it run `rowveil migrate --to {newest}`"
        )
    pending = known if current is None else known[: known.index(current)]
    compatible = [_is_compatible(scripts, revision) for revision in pending]
    since = compatible.index(False) if False in compatible else len(pending)  # newest steps, all compatible
    if current is not None and since < len(pending) and not alone:
        _refuse_living(connection)
    _disable_timeout(connection)
    command.upgrade(config, "head")
    _note_support(connection, known[: since + 1], keep=current is not None and since == len(pending))


def check_downgrade(connection: sa.Connection, config: "Config", revision: str, alone: bool) -> list[str]:
    """Return the revisions that a downgrade undoes, newest first. Raises MigrationRefused, RevisionUnknown.

    A step that cannot be undone at any time has a function ``refusal(connection)``, which returns a reason.
    """
    _, scripts = _alembic(config)
    known = [script.revision for script in scripts.walk_revisions()]
    current = current_revision(connection)
    if current not in known:
        raise MigrationRefused(f"the tables have the revision {current}, which this version does not know")
    older = known[known.index(current) :]
    if revision not in older:
        raise RevisionUnknown(
            f"there is no older revision '{revision}'; there are {', '.join(reversed(older))}"
        )
    if not alone:
        _refuse_living(connection)
    undone = older[: older.index(revision)]
    for step in undone:
        refusal = getattr(_module(scripts, step), "refusal", None)
        if refusal is not None and (reason := refusal(connection)):
            raise MigrationRefused(reason)
    return undone


def downgrade(connection: sa.Connection, config: "Config", revision: str, alone: bool) -> None:
    """Bring the tables to an older revision. Raises MigrationRefused."""
    command, _ = _alembic(config)
    _disable_timeout(connection)
    check_downgrade(connection, config, revision, alone)
    command.downgrade(config, revision)
    if sa.inspect(connection).has_table(SchemaSupport.__tablename__):
        _note_support(connection, [revision], keep=False)


def current_revision(connection: sa.Connection) -> str | None:
    """Return the revision of the tables; None if there are none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return revision


def supports(connection: sa.Connection, revision: str) -> bool:
    """Whether the version of that revision can work with the tables as they are."""
    if not sa.inspect(connection).has_table(SchemaSupport.__tablename__):
        return False
    found = sa.select(SchemaSupport.revision).where(SchemaSupport.revision == revision)
    return connection.scalar(found) is not None


def _alembic(config: "Config") -> tuple[ModuleType, "ScriptDirectory"]:
    """Import Alembic; return its commands and the steps of the migrations."""
    from alembic import command
    from alembic.script import ScriptDirectory

    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs every plugin at INFO
    return command, ScriptDirectory.from_config(config)


def _is_compatible(scripts: "ScriptDirectory", revision: str) -> bool:
    return bool(getattr(_module(scripts, revision), "compatible", False))


def _module(scripts: "ScriptDirectory", revision: str) -> ModuleType:
    script = scripts.get_revision(revision)
    assert script is not None
    return script.module


def _disable_timeout(connection: sa.Connection) -> None:
    """Let the transaction's statements take longer than the statements of a request."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))


def _note_support(connection: sa.Connection, revisions: Sequence[str], keep: bool) -> None:
    """Note whose versions can work with the tables; ``keep``: in addition to those that could before."""
    if not keep:
        connection.execute(sa.delete(SchemaSupport))
    for revision in revisions:
        if not supports(connection, revision):
            connection.execute(sa.insert(SchemaSupport).values(revision=revision))


def _refuse_living(connection: sa.Connection) -> None:
    """Raise MigrationRefused if a replica's lease holds; keep new leases out until the transaction ends."""
    if not sa.inspect(connection).has_table(Replica.__tablename__):
        return
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("LOCK TABLE replicas IN SHARE ROW EXCLUSIVE MODE"))
        now: sa.ColumnElement[datetime] = sa.func.clock_timestamp()
    else:
        now = sa.literal(datetime.now(UTC), Replica.lease_until.type)
    living = sa.select(sa.func.count()).select_from(Replica).where(Replica.lease_until > now)
    number = connection.scalar(living)
    if number:
        raise MigrationRefused(
            f"{number} replicas work on the database, and a step of the migration does not allow that: stop "
            "them first, then start this version; the lease of one that was killed expires by itself"
        )
