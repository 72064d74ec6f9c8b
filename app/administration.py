"""``keys``, ``audit``, ``rotate-keys``: what is done beside the service, on its database and its blobs.

All of it may be done while the service runs: it reads keys at every call, and the audit's lines
follow one another whoever writes them.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.callers import SCOPES, Caller
from app.errors import AppError
from app.jobs.api_keys import ApiKeys, NewKey
from app.jobs.stores import open_keys
from app.settings import Settings
from app.store.audit import Anchor, AuditTrail
from app.store.audit_anchor import AnchorUnreadable, kept_anchor
from app.store.blobs import BlobStore
from app.store.db import Database, DatabaseUnusable, migrate
from app.store.keys import KeyUnreadable
from app.store.replicas import moment
from app.store.rotation import reseal_rows
from app.store.seal import SealBroken, Sealer

_OWN_LASTS = timedelta(days=90)
_DEFAULT_LASTS = "90d"
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Say which there are, and what they take."""
    keys = commands.add_parser("keys", help="make, list and revoke API keys").add_subparsers(
        dest="action", required=True
    )
    create = keys.add_parser("create", help="make a key, and print it this once")
    create.add_argument("--name", required=True, help="the identity; keys of one name are one identity")
    create.add_argument(
        "--scopes", default="run,read", help=f"separated by commas, of {', '.join(SCOPES)}; default: run,read"
    )
    create.add_argument("--project", help="whose members see each other's jobs and buffers")
    create.add_argument("--expires", default=_DEFAULT_LASTS, help="after so long, such as 90d or 12h")
    keys.add_parser("list", help="every key, without the key itself")
    keys.add_parser("revoke", help="refuse a key from now on").add_argument("id")
    keys.add_parser("own", help="print the key of this machine's own user, made where there is none")

    commands.add_parser("rotate-keys", help="seal everything anew under the first master key")

    audit = commands.add_parser("audit", help="the record of who did what").add_subparsers(
        dest="action", required=True
    )
    verify = audit.add_parser("verify", help="find the first line that was altered or taken out")
    verify.add_argument("--anchor", type=Anchor.parse, help="<number>:<mac>, as printed before")


def administer(settings: Settings, given: argparse.Namespace) -> int:
    """Do what the command line says; its exit status."""
    try:
        migrate(settings)
        with _opened(settings) as (database, sealer, audit):
            if given.command == "audit":
                anchors = [given.anchor, kept_anchor(settings.home)]
                return _verify(database, audit, [anchor for anchor in anchors if anchor is not None])
            if given.command == "rotate-keys":
                return _rotate(settings, database, sealer, audit)
            return _KEYS[given.action](settings, ApiKeys(database, audit), given)
    except (DatabaseUnusable, KeyUnreadable, SealBroken, AnchorUnreadable) as error:
        print(error, file=sys.stderr)
    except AppError as error:
        print(error.message, file=sys.stderr)
    return 1


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Database, Sealer, AuditTrail]]:
    database = Database(settings)
    try:
        yield database, *open_keys(settings, database)
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
        print("--expires is a number of days, hours or minutes, such as 90d, 12h or 30m", file=sys.stderr)
        return 2
    text, kept = keys.create(NewKey(given.name, scopes, given.project, lasts), _operator())
    print(text)
    print(f"key {kept.id} of {kept.name}: {kept.scopes}; until {_day(kept.expires_at)}", file=sys.stderr)
    print("It is kept nowhere: this is the one time that it is shown.", file=sys.stderr)
    return 0


def _list(settings: Settings, keys: ApiKeys, given: argparse.Namespace) -> int:
    for key in keys.every():
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
    """Print the key of this machine's own user; with all scopes, for 90 days, in a file of the home."""
    if settings.auth == "off":
        print("Authentication is off (ROWVEIL_AUTH): no key is needed.")
        return 0
    if settings.mode == "production":
        print("in production a key is made for somebody: `rowveil keys create --name ...`", file=sys.stderr)
        return 1
    path = own_key_file(settings.home)
    text = path.read_text().strip() if path.is_file() else ""
    if keys.caller(text) is None:
        name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in _user())
        text, _ = keys.create(NewKey(f"local-{name}", tuple(SCOPES), None, _OWN_LASTS), _operator())
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{text}\n")
    print(f"Your key, kept in {path}:\n{text}")
    return 0


def own_key_file(home: Path) -> Path:
    """Where the key of the machine's own user is kept."""
    return home / "keys" / "own.key"


def _verify(database: Database, audit: AuditTrail, anchors: list[Anchor]) -> int:
    with database.read() as session:
        verdict = audit.verify(session, *anchors)
    if verdict.fault:
        print(f"the audit does not hold: {verdict.fault}", file=sys.stderr)
        return 1
    if verdict.unchained:
        print(
            f"lines 1 to {verdict.unchained} have no HMAC of their own: they hold as they were when the next "
            "was written. Where Rowveil is no older than its chain, somebody took them off",
            file=sys.stderr,
        )
    print(f"the audit holds: {verdict.head.number} lines. Keep this anchor elsewhere, and give it next time:")
    print(verdict.head)
    return 0


def _rotate(settings: Settings, database: Database, sealer: Sealer, audit: AuditTrail) -> int:
    blobs = BlobStore(settings.shared_folder.resolve() / "blobs", sealer)
    rows = files = 0
    while (more := (reseal_rows(database, sealer), blobs.reseal())) != (0, 0):
        rows, files = rows + more[0], files + more[1]
    done = f"{rows} values and {files} blobs"
    with database.write() as session:
        audit.append(session, _operator(), "keys.rotate", "master", moment(session), f"sealed anew: {done}")
    print(f"sealed anew under the first master key: {done}. The other master keys open nothing any more.")
    return 0


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


_KEYS = {"create": _create, "list": _list, "revoke": _revoke, "own": _own}
