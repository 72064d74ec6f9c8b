"""Issuers in the owners of tokens: once at the first start with one, or by `rowveil reseal`; and back.

Versions before wrote ``oidc:`` and the subject. The issuer of these rows is the one of the first start: there
was only one setting for it.
"""

import logging

from app.callers import ISSUER_PREFIX, OIDC_BEFORE, THE_SERVICE, Caller, issuer_prefix
from app.jobs.maintenance.adoption import refuse_in_use
from app.settings import Settings
from app.store.blobs.marks import Place, delete_mark, place_name, read_mark, replace_mark
from app.store.blobs.places import place_of
from app.store.crypto.sealing import Sealer
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database
from app.store.sql.deployment import StorageUnusable, usable
from app.store.sql.replicas import moment
from app.store.sql.reseal import DISOWNED, REOWNED, Renamed, Renamer

ISSUERS_SINCE = "2026_11_23h_issuers"
"""Step of the migrations since which the owners of tokens have their issuer."""

_FILE = "first-issuer"

_LOCK = 0x726F7769  # "rowi": id of the advisory lock of the renaming

_log = logging.getLogger("rowveil.storage")


def name_issuer_once(settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail) -> None:
    """Give the rows of tokens' owners to the issuer of the settings, unless that has been done.

    The folder has a file that says so and names the issuer, and not the database: otherwise rows from a
    restored dump would go to the issuer of the day. Without an issuer in the settings nothing happens.

    Raises
    ------
    StorageInUse
        There are such rows, and a replica's lease holds: it could be running one of the jobs.
    StorageUnusable
    Unavailable
    """
    place = place_of(settings)
    if not settings.oidc_issuer:
        return
    with usable(place):
        if read_mark(place, _FILE) is not None:
            return
        with database.only_one(_LOCK):
            if read_mark(place, _FILE) is not None:  # another replica was faster
                return
            _name_issuer(settings, database, sealer, audit, THE_SERVICE)


def name_issuer(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, caller: Caller
) -> Renamed:
    """Give the rows of tokens' owners to the first issuer: that of the folder's file, else of the settings.

    The caller makes sure that no other process works on an embedded database.
    Raises StorageInUse, StorageUnusable.
    """
    with usable(place_of(settings)), database.only_one(_LOCK):
        return _name_issuer(settings, database, sealer, audit, caller)


def forget_issuer(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, operator: Caller
) -> Renamed:
    """Write the owners of the settings' issuer in the older form, before a downgrade of the tables.

    Rows of other issuers keep their owners, which no caller has in an older version.
    The caller makes sure that no other process works on an embedded database.
    Raises StorageInUse, StorageUnusable.
    """
    place = place_of(settings)
    with usable(place), database.only_one(_LOCK):
        with database.read() as session:
            refuse_in_use(database, session)
        delete_mark(place, _FILE)  # first: a crash from here on is repaired by the next start
        if not settings.oidc_issuer:
            return Renamed()
        prefix = issuer_prefix(settings.oidc_issuer)
        return _rename(settings, database, sealer, audit, operator, prefix, back=True)


def _name_issuer(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, caller: Caller
) -> Renamed:
    place = place_of(settings)
    prefix = _first(place) or (issuer_prefix(settings.oidc_issuer) if settings.oidc_issuer else "")
    if not prefix:
        return Renamed()
    done = _rename(settings, database, sealer, audit, caller, prefix, back=False)
    replace_mark(place, _FILE, f"{prefix}\n")
    return done


def _rename(
    settings: Settings,
    database: Database,
    sealer: Sealer,
    audit: AuditTrail,
    caller: Caller,
    prefix: str,
    back: bool,
) -> Renamed:
    renamer = Renamer(database, sealer, *((prefix, OIDC_BEFORE) if back else (OIDC_BEFORE, prefix)))
    if not renamer.is_needed():
        return Renamed()
    with database.write() as session:
        refuse_in_use(database, session)
        # First, because an interrupted run is repeated: the ledger is verified by the last such line.
        reason = "the issuer is taken out of owners" if back else "owners of older versions get their issuer"
        audit.append(session, caller, DISOWNED if back else REOWNED, prefix, moment(session), reason)
    done = renamer.run()
    _log.info("%d rows have other names of their owners, %d do not open", done.rows, done.unopened)
    return done


def _first(place: Place) -> str | None:
    """Return the prefix of the first issuer; None if none is known. Raises StorageUnusable, OSError."""
    text = read_mark(place, _FILE)
    if text is None:
        return None
    prefix = text.strip()
    if not ISSUER_PREFIX.fullmatch(prefix):
        raise StorageUnusable(f"{_FILE} of {place_name(place)} names no issuer: restore it from a backup")
    return prefix
