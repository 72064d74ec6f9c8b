"""Administration commands: ``keys``, ``audit``, ``ledger``, ``rotate-keys``, ``reseal`` and others.

The first four may run while the service runs: it reads API keys at every request, and audit entries are
chained in the database whichever process writes them.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.callers import SCOPES, THE_SERVICE, Caller
from app.cli.exit_codes import Exit
from app.cli.streams import print_failure, shown
from app.errors import AppError, InvalidRequest
from app.jobs.api_keys import ApiKeys, NewKey
from app.jobs.maintenance.adoption import Adoption, StorageInUse, adopt
from app.jobs.maintenance.binding import (
    BOUND_SINCE,
    MESSAGES_SINCE,
    TERMS_SINCE,
    reseal,
    unbind,
    unbind_messages,
    unbind_terms,
)
from app.jobs.maintenance.issuers import ISSUERS_SINCE, forget_issuer, name_issuer
from app.jobs.releases.stated_epsilon import stated_epsilon
from app.jobs.stores import HomeInUse, HomeUnusable, lock_home, make_home, open_keys
from app.settings import Settings
from app.store.blobs.places import open_blobs, place_of
from app.store.crypto.key_files import KeyUnreadable, load_signing_key
from app.store.crypto.sealing import SealBroken, Sealer, Signer
from app.store.sql import ledger, replicas
from app.store.sql.audit.anchor import AnchorUnreadable, kept_anchors
from app.store.sql.audit.checkpoints import Anchor, add_checkpoint
from app.store.sql.audit.fold import CHAINS_SINCE, fold
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.audit.verification import AuditNotIntact, verify
from app.store.sql.connection.engines import shown_address, shown_url
from app.store.sql.connection.errors import REMEDY, DatabaseDamaged, DatabaseUnusable, RevisionUnknown
from app.store.sql.db import Database
from app.store.sql.deployment import StorageMismatch, StorageUnusable, pair
from app.store.sql.key_rotation import reseal_rows
from app.store.sql.migration import downgrade, migrate, require_tables
from app.store.sql.replicas import moment
from app.store.sql.restoration import database_file, restore_database
from app.store.sql.service_keys import has_kept_keys
from providers.swapping.composition import listed

_ENTRIES_AT_ONCE = 500

_OWN_LASTS = timedelta(days=90)

_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}

_REFUSED = (
    DatabaseUnusable,
    HomeUnusable,
    KeyUnreadable,
    SealBroken,
    AnchorUnreadable,
    AuditNotIntact,
    StorageInUse,
    StorageMismatch,
    StorageUnusable,
)
"""Errors with a message that names the remedy."""


def administer(settings: Settings, given: argparse.Namespace) -> int:
    """Run an administration command and return its exit status."""
    try:
        if given.command == "restore-database":  # the present database may be damaged, or gone
            return _restore(settings, given.backup)
        may_create = _may_create(given)
        if not may_create:
            _require_installation(settings)
        if given.command == "migrate":
            return _migrate(settings, given.to)
        migrate(settings)
        with _opened(settings, may_create) as (database, sealer, audit):
            if _changes_or_verifies(given):
                _print_installation(settings)
            if given.command == "audit":
                return _verify(settings, database, audit, given.anchor or [])
            if given.command == "ledger":
                return (
                    _verify_ledger(settings, database, audit)
                    if given.verify
                    else _ledger(database, given.source)
                )
            if given.command == "rotate-keys":
                return _rotate(settings, database, sealer, audit)
            if given.command == "reseal":
                return _reseal(settings, database, sealer, audit)
            if given.command == "adopt-storage":
                return _adopt(settings, database, sealer, audit, given.trash_unnamed)
            return _KEYS[given.action](settings, ApiKeys(database, audit), given)
    except HomeInUse as error:
        print_failure(f"a service uses {error.locked}; stop it, and repeat the command")
    except DatabaseDamaged:
        print_failure(f"the database of {settings.home} is damaged; {REMEDY}")
    except _REFUSED as error:
        print_failure(str(error))
        return Exit.USAGE if isinstance(error, RevisionUnknown) else Exit.FAILED
    except AppError as error:
        print_failure(error.message)
        return Exit.USAGE if isinstance(error, InvalidRequest) else Exit.FAILED
    return Exit.FAILED


def _may_create(given: argparse.Namespace) -> bool:
    """Whether the command may be the first of an installation: it then makes the database and the keys.

    With any other command, missing state means that the settings are not those of the service. A check of a
    new, empty installation would find no fault.
    """
    if given.command == "migrate":
        return given.to is None
    return given.command == "keys" and given.action in ("create", "own")


def _changes_or_verifies(given: argparse.Namespace) -> bool:
    """Whether the command's success is worth something only for the right installation."""
    if given.command == "ledger":
        return bool(given.verify)
    return given.command != "keys" or bool(given.action == "revoke")


def _require_installation(settings: Settings) -> None:
    """Check that there is an installation, and create nothing. Raises DatabaseUnusable."""
    require_tables(settings)
    if not settings.home.is_dir() and settings.database_url.startswith("sqlite"):
        raise DatabaseUnusable(f"there is no home {settings.home}; set ROWVEIL_HOME as for the service")


def _print_installation(settings: Settings) -> None:
    """Print to standard error which installation the command uses."""
    address = shown_address(settings.database_url)
    print(shown(f"database {address}, home {settings.home.resolve()}"), file=sys.stderr)


@contextmanager
def _opened(settings: Settings, may_create: bool = False) -> Iterator[tuple[Database, Sealer, AuditTrail]]:
    """Open the database and the keys; make those of a new installation only if ``may_create``."""
    database = Database(settings)
    try:
        if may_create:
            with database.read() as session:
                may_create = not has_kept_keys(session)  # whose master key must be there
        opened = open_keys(settings, database, create=may_create)
        if may_create and settings.mode != "production":  # which makes no keys
            load_signing_key(settings)
        yield database, *opened
    finally:
        database.close()


def _operator() -> Caller:
    return Caller(f"operator:{_user()}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _create(settings: Settings, keys: ApiKeys, given: argparse.Namespace) -> int:
    scopes = [scope.strip() for scope in given.scopes.split(",") if scope.strip()]
    try:
        lasts = int(given.expires[:-1]) * _UNITS[given.expires[-1:]]
    except (ValueError, KeyError, OverflowError):
        raise InvalidRequest(
            "--expires: give a number of days, hours or minutes, such as 90d, 12h or 30m"
        ) from None
    text, kept = keys.create(NewKey(given.name, scopes, given.project, lasts), _operator())
    try:
        print(text, flush=True)
    except OSError:  # nobody has seen it
        keys.revoke(kept.id, _operator())
        raise
    print(f"key {kept.id} of {kept.name}: {kept.scopes}; until {_day(kept.expires_at)}", file=sys.stderr)
    print("It is not stored, and it is not shown again.", file=sys.stderr)
    _print_installation(settings)
    return 0


def _list(settings: Settings, keys: ApiKeys, given: argparse.Namespace) -> int:
    for key in keys.list_all():
        state = "revoked" if key.revoked_at else "expired" if key.expires_at <= datetime.now(UTC) else "valid"
        used = _day(key.last_used_at) if key.last_used_at else "never"
        print(
            f"{key.id}  {state:<7}  {key.name}  [{key.scopes}]  project {key.project or '-'}  "
            f"until {_day(key.expires_at)}  used {used}"
        )
    return 0


def _revoke(settings: Settings, keys: ApiKeys, given: argparse.Namespace) -> int:
    if not keys.revoke(given.id, _operator()):
        print(f"there is no valid key '{given.id}'; `rowveil keys list` shows all", file=sys.stderr)
        return 1
    print(f"key {given.id} is refused from now on")
    return 0


def _own(settings: Settings, keys: ApiKeys, given: argparse.Namespace) -> int:
    """Print the key of this machine's user: all scopes, 90 days, in a file of the home.

    It is created if there is none, if it has expired, or if it lacks a scope that this version has added.
    """
    if settings.auth == "off":
        print("Authentication is off (ROWVEIL_AUTH): no key is needed.")
        return 0
    if settings.mode == "production":
        print(
            "in production make a key for a named identity: `rowveil keys create --name ...`", file=sys.stderr
        )
        return 1
    path = own_key_file(settings.home)
    text = path.read_text(errors="replace").strip() if path.is_file() else ""
    known = keys.caller(text)
    if known is None or not known.scopes >= SCOPES.keys():
        name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in _user())
        text, _ = keys.create(NewKey(f"local-{name}", tuple(SCOPES), None, _OWN_LASTS), _operator())
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{text}\n")
    print(f"Your key, stored in {path}:\n{text}")
    return 0


def own_key_file(home: Path) -> Path:
    """Return the path of the file with the key of this machine's user."""
    return home / "keys" / "own.key"


def _verify(settings: Settings, database: Database, audit: AuditTrail, given: Sequence[Anchor]) -> int:
    signer = Signer(load_signing_key(settings, create=False))
    anchors = [*given, *kept_anchors(settings.home)]
    with database.read() as session:
        verdict = verify(session, audit.key, signer, *anchors)
    if verdict.fault:
        print(f"the audit is not intact: {verdict.fault}", file=sys.stderr)
        return 1
    if verdict.unchained:
        print(
            f"lines 1 to {verdict.unchained} have no HMAC of their own: they are unchanged only since the "
            "next line was written. If this installation has always written HMACs, somebody removed them",
            file=sys.stderr,
        )
    if verdict.signed_by_others:
        print(
            f"{verdict.signed_by_others} checkpoints were signed by another key than the current one. If the "
            "signing key has never been replaced, somebody else has made them",
            file=sys.stderr,
        )
    with database.write() as session:  # so that the anchor stands for all lines
        newest = add_checkpoint(session, audit.key, signer, moment(session))
    print(f"the audit is intact: {verdict.lines} lines in {verdict.chains} chains.")
    if newest is not None:
        print("Keep this anchor elsewhere, and pass it next time:")
        print(newest.anchor)
    return 0


def _ledger(database: Database, source: str | None) -> int:
    """Print the releases of a source, oldest first."""
    after = None
    while True:
        with database.read() as session:
            entries, last = ledger.page(session, THE_SERVICE, source, _ENTRIES_AT_ONCE, after)
        if not entries and after is None:
            print(f"no release {'of this source ' if source else ''}is in the ledger", file=sys.stderr)
        for entry in entries:
            risk = entry.risk or {}
            measured = (
                f"  restores '{risk['field']}' in {risk['all_releases']:.0%} of the "
                f"{'units' if risk.get('unit') else 'rows'} ({risk['by']}, "
                f"{risk['releases']} releases)"
                if "field" in risk
                else ""
            )
            if (stated := stated_epsilon(entry.epsilon)) is not None:
                own, together = stated.get("epsilon"), stated.get("all_releases")
                measured += f"  epsilon {'none' if own is None else f'{own:.4g}'}, of all releases "
                measured += "none" if together is None else f"{together:.4g}"
                if fields := stated.get("fields"):
                    measured += f" for {listed(fields)}"
                measured += f" ({stated['limits']})" if "limits" in stated else ""
            line = (
                f"{_day(entry.released_at)}  {entry.service}  job {entry.job_id}  {entry.owner}  project "
                f"{entry.project or '-'}  {entry.source_digest}  {entry.row_count} rows  recognised by "
                f"{entry.match or '-'}{measured}{f'  reason: {entry.reason}' if entry.reason else ''}"
            )
            print(shown(line))
        if last is None:
            return 0
        after = last


def _verify_ledger(settings: Settings, database: Database, audit: AuditTrail) -> int:
    """Compare the ledger with the audit log, which is verified first: its lines are the evidence."""
    signer, anchors = Signer(load_signing_key(settings)), kept_anchors(settings.home)
    with database.read() as session:
        verdict = verify(session, audit.key, signer, *anchors)
        faulty = ledger.unrecorded(session)
    if verdict.fault:
        print(f"the audit is not intact: {verdict.fault}. The ledger cannot be verified", file=sys.stderr)
    for job in faulty:
        print(f"the ledger's entry of job {job} was changed, removed or added", file=sys.stderr)
    if faulty or verdict.fault:
        return 1
    print("every entry of the ledger matches the audit log")
    return 0


def _rotate(settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail) -> int:
    blobs = open_blobs(settings, sealer)
    # Another place than the database's is refused: the tables in the right one would keep their old keys.
    pair(database, blobs, place_of(settings))
    if _others_seal(settings, database, sealer, "nothing was changed"):
        return 1
    rows = files = 0
    while (more := (reseal_rows(database, sealer), blobs.reseal())) != (0, 0):
        rows, files = rows + more[0], files + more[1]
    done = f"{rows} values and {files} blobs"
    with database.write() as session:
        audit.append(session, _operator(), "keys.rotate", "master", moment(session), f"sealed again: {done}")
    if _others_seal(
        settings, database, sealer, f"{done} were encrypted again, and others may have been stored since"
    ):
        return 1  # it has started during the rotation
    print(
        f"encrypted again under the first master key: {done}. The other master keys no longer open anything."
    )
    return 0


def _others_seal(settings: Settings, database: Database, sealer: Sealer, so_far: str) -> bool:
    """Whether a running replica seals with another master key; print the keys and the remedy.

    Such a replica may not know the first key given here, and then opens nothing that is sealed with it.
    """
    if not _service_may_run(settings, database):
        return False  # a lease is that of a killed one
    with database.read() as session:
        others = replicas.other_keys(session, sealer.key_id)
    if others:
        print_failure(
            f"a running service seals with the master key {', '.join(others)}, and the first one given to "
            f"this command is {sealer.key_id}: {so_far}. Give every replica and this command the same keys, "
            "the new one first, restart the replicas, and repeat the command. (The lease of a killed replica "
            "expires after ROWVEIL_LEASE_SECONDS)"
        )
    return bool(others)


def _service_may_run(settings: Settings, database: Database) -> bool:
    """Whether a service may run on the database; that of an embedded one locks its home."""
    if database.shared:
        return True
    try:
        lock_home(settings).close()
    except HomeInUse:
        return True
    return False


def _migrate(settings: Settings, to: str | None) -> int:
    """Bring the tables to the newest revision, or back to an older one."""
    if to is None:
        migrate(settings)
        return 0
    with _opened(settings) as (database, sealer, audit):
        _print_installation(settings)
        lock = None if database.shared else lock_home(settings)

        def prepare(undone: Collection[str]) -> None:
            if CHAINS_SINCE in undone:
                _refuse_altered(settings, database, audit)
            if ISSUERS_SINCE in undone:
                renamed = forget_issuer(settings, database, sealer, audit, _operator())
                print(f"owners without their issuer, as an older version expects them: {renamed.rows} rows.")
                if renamed.unopened:
                    print(f"{renamed.unopened} rows do not open; they keep their owners.")
            if MESSAGES_SINCE in undone:
                done = unbind_messages(settings, database, sealer, audit, _operator())
                print(f"messages to webhooks, as an older version expects them: {done.values} values.")
            if TERMS_SINCE in undone:
                done = unbind_terms(settings, database, sealer, audit, _operator())
                print(f"seeds without terms, as an older version expects them: {done.values} values.")
            if BOUND_SINCE in undone:
                done = unbind(settings, database, sealer, audit, _operator())
                print(f"sealed as an older version expects it: {done.values} values.")
            if CHAINS_SINCE in undone:
                with database.write() as session:
                    copied = fold(session, audit.key)
                print(f"copied to the audit's chain that an older version knows: {copied} lines.")

        try:
            downgrade(settings, to, alone=lock is not None, prepare=prepare)
        finally:
            if lock is not None:
                lock.close()
    print(f"the database has the tables of revision {to}.")
    return 0


def _refuse_altered(settings: Settings, database: Database, audit: AuditTrail) -> None:
    """Raise AuditNotIntact if a line was altered: the copy for an older version gives all lines new HMACs."""
    with database.read() as session:
        verdict = verify(session, audit.key, Signer(load_signing_key(settings)))
    if verdict.fault:
        raise AuditNotIntact(
            f"the audit is not intact: {verdict.fault}. An older version would accept it as intact, because "
            "its lines are copied with new HMACs. Restore a backup with an intact audit, or keep this version"
        )


def _restore(settings: Settings, backup: Path) -> int:
    database_file(settings)  # that of a server is restored by its own commands
    make_home(settings.home)
    lock = lock_home(settings)
    try:
        done = restore_database(settings, backup)
    finally:
        lock.close()
    print(f"{done.database} is the state of {backup} from now on: {done.jobs} jobs.")
    for path in done.removed:
        print(f"removed, because it belongs to the state that was replaced: {path}")
    for lost in done.lost_releases or ():
        print(shown(f"no longer in the ledger: {'  '.join(lost)}"))
    if done.lost_releases is None:
        print("No replaced ledger can be read: releases after the backup, if any, are not in the ledger.")
    if done.lost_releases != []:
        keep = "Keep this output. " if done.lost_releases else ""
        print(
            f"The service does not count these releases any more. {keep}Run each of them again with its "
            "seed, parameters and source, which gives the same bytes and a new entry, or do not release its "
            "source again."
        )
    print("Start the service, and run `rowveil audit verify`.")
    return 0


def _reseal(settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail) -> int:
    lock = None if database.shared else lock_home(settings)
    try:
        pair(database, open_blobs(settings, sealer), place_of(settings))
        done = reseal(settings, database, sealer, audit, _operator())
        renamed = name_issuer(settings, database, sealer, audit, _operator())
    finally:
        if lock is not None:
            lock.close()
    print(f"sealed to their rows: {done.values} values.")
    if done.early_lines:
        print(f"lines of the audit without an HMAC, which a checkpoint now covers: {done.early_lines}.")
    if done.unopened:
        print(f"{done.unopened} values do not open, or their table is missing; they stay as they are.")
    if renamed.rows or renamed.unopened:
        print(f"owners with their issuer: {renamed.rows} rows; {renamed.unopened} rows do not open.")
    return 0


def _adopt(
    settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail, trash_unnamed: bool
) -> int:
    lock = None if database.shared else lock_home(settings)
    try:
        done = adopt(settings, database, sealer, audit, _operator(), trash_unnamed)
    finally:
        if lock is not None:
            lock.close()
    address = shown_url(database.engine.url)
    print(f"{done.place} belongs to {address} from now on: deployment {done.deployment_id}.")
    print(f"Tables in the {done.kind}: {done.stored}, of which rows name {done.named}.")
    print(f"Tables that rows name and that are not in the {done.kind}: {done.missing}.")
    if done.taken_back:
        print(f"Tables taken back from the trash, because rows name them: {done.taken_back}.")
    _print_unnamed(done, settings.trash_days)
    return 0


def _print_unnamed(done: Adoption, days: int) -> None:
    fate = f"kept there for {days} days" if days else "deleted, since ROWVEIL_TRASH_DAYS is 0"
    if done.trashed:
        print(f"Tables that no row named and that were moved to the trash: {done.trashed} ({fate}).")
    if done.unnamed and done.waits:
        print(
            f"Tables that no row names: {done.unnamed}, more than a sweep moves by itself. They stay where "
            "they are; `rowveil adopt-storage --trash-unnamed` moves them to the trash."
        )
    elif done.unnamed:
        print(f"Tables that no row names: {done.unnamed}. The next start moves them to the trash ({fate}).")


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


_KEYS = {"create": _create, "list": _list, "revoke": _revoke, "own": _own}
