"""Sealing of values to their rows: once at the first start, or by `rowveil reseal`; and back again."""

import logging
from collections.abc import Callable

from app.callers import THE_SERVICE, Caller
from app.jobs.maintenance.adoption import refuse_in_use
from app.settings import Settings
from app.store.blobs.marks import Place, delete_mark, read_mark, replace_mark
from app.store.blobs.places import open_blobs, place_of
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.key_files import load_signing_key
from app.store.crypto.sealing import Sealer, Signer
from app.store.sql.audit.checkpoints import newest_checkpoint, vouch_for_early_lines
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database
from app.store.sql.deployment import usable
from app.store.sql.replicas import moment
from app.store.sql.reseal import Binder, Resealed

BOUND_SINCE = "2026_11_23_row_binding"
"""Step of the migrations since which values are bound to their rows."""

TERMS_SINCE = "2026_11_26_job_terms"
"""Step of the migrations since which seeds are bound to the terms of their jobs."""

MESSAGES_SINCE = "2026_11_30_message_binding"
"""Step of the migrations since which the webhooks of messages are bound to these."""

_FILE = "rows-bound"

_TEXT_WITHOUT_TERMS = "Every row of the database seals its values to itself: docs/security.md\n"

_TEXT_WITHOUT_MESSAGES = (
    "Every row of the database seals its values to itself and to its terms: docs/security.md\n"
)

_TEXT = "Every row of the database seals its values to itself, its terms and its message: docs/security.md\n"

_LOCK = 0x726F7762  # "rowb": id of the advisory lock of the resealing

_log = logging.getLogger("rowveil.storage")


def bind_once(
    database: Database, sealer: Sealer, signer: Signer, blobs: BlobStore, audit: AuditTrail, place: Place
) -> None:
    """Bind the values of the database to their rows, unless this has been done with this folder.

    A file of the folder records this, not the database. Otherwise anyone who can write to the database could
    change rows and have them bound again. If the file is of a version that did not bind terms, or messages,
    only these are bound. Without the file, a checkpoint covers the lines of the audit log from before there
    were HMACs. Raises StorageUnusable, Unavailable.
    """
    with usable(place):
        if read_mark(place, _FILE) == _TEXT:
            return
        with database.only_one(_LOCK):
            mark = read_mark(place, _FILE)
            if mark == _TEXT:  # another replica was faster
                return
            if mark is None:
                with database.write() as session:
                    if newest_checkpoint(session) is None:
                        vouch_for_early_lines(session, audit.key, signer, moment(session))
            binder = Binder(database, sealer, blobs)
            if mark is None:
                done = binder.bind()
            else:
                done = binder.bind_messages() if mark == _TEXT_WITHOUT_MESSAGES else binder.bind_terms()
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

    Lines of its audit log without any HMAC get a checkpoint that covers their present state.
    The caller makes sure that no other process works on an embedded database.
    """
    place = place_of(settings)
    with database.read() as session:
        refuse_in_use(database, session)
    with usable(place), database.only_one(_LOCK):
        done = Binder(database, sealer, open_blobs(settings, sealer)).bind()
        with database.write() as session:
            signer = Signer(load_signing_key(settings))
            done.early_lines = vouch_for_early_lines(session, audit.key, signer, moment(session))
        _note(database, audit, operator, done)
        replace_mark(place, _FILE, _TEXT)
    return done


def unbind_messages(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, operator: Caller
) -> Resealed:
    """Seal webhooks of messages to jobs, before the tables go back to an older version. Raises StorageInUse.

    The caller makes sure that no other process works on an embedded database.
    """

    def change_mark(place: Place) -> None:
        if read_mark(place, _FILE) == _TEXT:
            replace_mark(place, _FILE, _TEXT_WITHOUT_MESSAGES)

    done = _go_back(settings, database, sealer, change_mark, Binder.unbind_messages)
    _note_way_back(database, audit, operator, f"{done.values} webhooks of messages were sealed to jobs")
    return done


def unbind_terms(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, operator: Caller
) -> Resealed:
    """Seal seeds without terms, before the tables go back to an older version. Raises StorageInUse.

    The caller makes sure that no other process works on an embedded database.
    """

    def change_mark(place: Place) -> None:
        if read_mark(place, _FILE) is not None:
            replace_mark(place, _FILE, _TEXT_WITHOUT_TERMS)

    done = _go_back(settings, database, sealer, change_mark, Binder.unbind_terms)
    _note_way_back(database, audit, operator, f"{done.values} seeds were sealed without terms")
    return done


def unbind(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, operator: Caller
) -> Resealed:
    """Seal the values as older versions expect them, before the tables go back to one. Raises StorageInUse.

    The caller makes sure that no other process works on an embedded database.
    """
    done = _go_back(settings, database, sealer, lambda place: delete_mark(place, _FILE), Binder.unbind)
    _note_way_back(database, audit, operator, f"{done.values} values were sealed")
    return done


def _go_back(
    settings: Settings,
    database: Database,
    sealer: Sealer,
    change_mark: Callable[[Place], None],
    unbound: Callable[[Binder], Resealed],
) -> Resealed:
    place = place_of(settings)
    with database.read() as session:
        refuse_in_use(database, session)
    with usable(place), database.only_one(_LOCK):
        change_mark(place)  # first: a crash from here on is repaired by the next start
        return unbound(Binder(database, sealer, open_blobs(settings, sealer)))


def _note_way_back(database: Database, audit: AuditTrail, operator: Caller, done: str) -> None:
    with database.write() as session:
        audit.append(
            session, operator, "rows.unbind", "rows", moment(session), f"{done} for an older version"
        )


def _note(database: Database, audit: AuditTrail, caller: Caller, done: Resealed) -> None:
    reason = f"{done.values} values were sealed to their rows, {done.unopened} do not open"
    _log.info("%s", reason)
    with database.write() as session:
        audit.append(session, caller, "rows.reseal", "rows", moment(session), reason)
