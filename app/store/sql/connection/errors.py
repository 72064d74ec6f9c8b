"""Errors of a database, as the service raises them."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from app.errors import AppError, InvalidRequest, StorageFull, Unavailable

_TEMPORARY = (
    sa.exc.OperationalError,
    sa.exc.InterfaceError,
    sa.exc.TimeoutError,  # of the pool
)

_READ_ONLY, _NOT_SUPPORTED = "25006", "0A000"
"""SQLSTATE of a write on a server that takes none, and of a feature that the server does not have."""

_NO_RIGHT = "42501"
"""SQLSTATE of a statement for which the role has no right."""

_REFUSES_WRITES = "call_bool_check_hook"
"""Function of the server that does not let a transaction on a standby write. The service sets no other option
that it checks. The message of the error is in the language of the server (`lc_messages`)."""

DATABASE_ERRORS = (
    sa.exc.OperationalError,
    sa.exc.InterfaceError,
    sa.exc.InternalError,
    sa.exc.NotSupportedError,
    sa.exc.ProgrammingError,  # such as a missing table
)
"""Errors that do not come from the values that a transaction stores."""

_DISK_FULL = "53100"
"""SQLSTATE of a server whose disk is full; its message is in the language of the server."""

_log = logging.getLogger("rowveil.database")


REMEDY = (
    "stop the service and restore a backup with `rowveil restore-database FILE` (operations.md, Restore); "
    "a failing disk damages a database, and so does a copy over it next to a rowveil.db-wal of another state"
)
"""Advice to the operator of a damaged embedded database."""


FULL = (
    "the disk of the database is full: free space on it, such as the oldest days of blobs/trash, or enlarge "
    "it, and start again; nothing that was accepted is lost"
)
"""Advice to the operator of a database that cannot be opened for lack of space."""


class DatabaseUnusable(Exception):
    """The settings' database cannot be used."""


class RevisionUnknown(DatabaseUnusable):
    """The database's tables have no older revision of that name."""


class DatabaseDamaged(AppError):
    """The file of an embedded database is damaged; no repetition of the call helps."""


class DatabaseAway(DatabaseUnusable):
    """The database server does not respond, or rejects the connection; it may be starting."""


def kind_of(error: Exception) -> str:
    """Return the class of the driver's error; its message may have a value of a row."""
    return type(getattr(error, "orig", error)).__qualname__


@contextmanager
def translated_errors(
    note_damage: Callable[[], None] = lambda: None, cause_of: Callable[[Exception], str] = kind_of
) -> Iterator[None]:
    """Raise temporary faults as Unavailable or StorageFull, and values it cannot store as InvalidRequest.

    A damaged file is DatabaseDamaged; ``note_damage`` is called before. ``cause_of`` returns the log's words
    for an error.
    """
    try:
        yield
    except sa.exc.DataError as error:
        raise InvalidRequest(
            "a name in the request is longer than the database allows, or holds the character U+0000"
        ) from error
    except sa.exc.SQLAlchemyError as error:
        if is_damaged(error):
            _log.error("the database is damaged (%s): %s", getattr(error, "orig", error), REMEDY)
            note_damage()
            raise DatabaseDamaged(
                "the database is damaged; the operator of the service has to restore it"
            ) from error
        if not is_temporary(error):
            raise
        if is_full(error):
            _log.error("the database is full: its disk, or its file, has no space left")
            raise StorageFull("the database is full; delete buffers and jobs, or try again later") from error
        _log.error("the database is not available: %s", cause_of(error))
        raise Unavailable("the database is temporarily not available; try again") from error


def is_temporary(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether the database is away, or takes no writes now, such as a standby that is not promoted yet.

    A missing right is temporary, too: nothing but the operator's grant is needed to go on.
    """
    if isinstance(error, _TEMPORARY) or missing_right(error) is not None:
        return True
    cause = getattr(error, "orig", None)
    state = getattr(cause, "sqlstate", None)
    if state != _NOT_SUPPORTED:
        return state == _READ_ONLY
    return getattr(getattr(cause, "diag", None), "source_function", None) == _REFUSES_WRITES


def missing_right(error: BaseException | None) -> str | None:
    """Return the server's words for a right that the role lacks, which name no value, and the remedy."""
    cause = getattr(error, "orig", None)
    if getattr(cause, "sqlstate", None) != _NO_RIGHT:
        return None
    words = getattr(getattr(cause, "diag", None), "message_primary", None) or "a right is missing"
    return (
        f"{words}; grant the role of ROWVEIL_DATABASE_URL every right on the tables of its database, or let "
        "it own them"
    )


def is_damaged(error: Exception) -> bool:
    """Return whether the file of an embedded database is none, or is damaged."""
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def is_full(error: Exception) -> bool:
    """Whether the disk or the file of the database has no room."""
    cause = getattr(error, "orig", None)
    state, code = getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorcode", None)
    return state == _DISK_FULL or code == sqlite3.SQLITE_FULL
