"""Sealing of values to their rows: once at the first start, or by `rowveil reseal`; and back again."""

import logging

from app.callers import THE_SERVICE, Caller
from app.jobs.maintenance.adoption import refuse_in_use
from app.settings import Settings
from app.store.blobs.marks import Place, delete_mark, read_mark, replace_mark
from app.store.blobs.places import open_blobs, place_of
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database
from app.store.sql.deployment import usable
from app.store.sql.replicas import moment
from app.store.sql.reseal import Binder, Resealed

BOUND_SINCE = "2026_11_23_row_binding"
"""Step of the migrations since which values are bound to their rows."""

_FILE = "rows-bound"

_TEXT = "Every row of the database seals its values to itself: docs/security.md\n"

_LOCK = 0x726F7762  # "rowb": id of the advisory lock of the resealing

_log = logging.getLogger("rowveil.storage")


def bind_once(database: Database, sealer: Sealer, blobs: BlobStore, audit: AuditTrail, place: Place) -> None:
    """Bind the values of the database to their rows, unless that has been done with this folder.

    The folder has a file that says so, and not the database: otherwise anyone who can write to the database
    could have rows that they have changed bound again. Raises StorageUnusable, Unavailable.
    """
    with usable(place):
        if read_mark(place, _FILE) is not None:
            return
        with database.only_one(_LOCK):
            if read_mark(place, _FILE) is not None:  # another replica was faster
                return
            done = Binder(database, sealer, blobs).bind()
            if done.values or done.unopened:
                _note(database, audit, THE_SERVICE, done)
            replace_mark(place, _FILE, _TEXT)


def reseal(
    settings: Settings,
    database: Database,
    sealer: Sealer,
    audit: AuditTrail,
    operator: Caller,
) -> Resealed:
    """Bind the values of a database that was restored from an older version. Raises StorageInUse.

    The caller makes sure that no other process works on an embedded database.
    """
    place = place_of(settings)
    with database.read() as session:
        refuse_in_use(settings, database, session)
    with usable(place), database.only_one(_LOCK):
        done = Binder(database, sealer, open_blobs(settings, sealer)).bind()
        _note(database, audit, operator, done)
        replace_mark(place, _FILE, _TEXT)
    return done


def unbind(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, operator: Caller
) -> Resealed:
    """Seal the values as older versions expect them, before the tables go back to one. Raises StorageInUse.

    The caller makes sure that no other process works on an embedded database.
    """
    place = place_of(settings)
    with database.read() as session:
        refuse_in_use(settings, database, session)
    with usable(place), database.only_one(_LOCK):
        delete_mark(place, _FILE)  # first: a crash from here on is repaired by the next start
        done = Binder(database, sealer, open_blobs(settings, sealer)).unbind()
        with database.write() as session:
            reason = f"{done.values} values were sealed for an older version"
            audit.append(session, operator, "rows.unbind", "rows", moment(session), reason)
    return done


def _note(database: Database, audit: AuditTrail, caller: Caller, done: Resealed) -> None:
    reason = f"{done.values} values were sealed to their rows, {done.unopened} do not open"
    _log.info("%s", reason)
    with database.write() as session:
        audit.append(session, caller, "rows.reseal", "rows", moment(session), reason)
