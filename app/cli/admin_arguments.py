"""Arguments of the administration commands, which `app.cli.admin` runs."""

import argparse
from pathlib import Path
from typing import Any

from app.callers import SCOPES
from app.store.sql.audit.checkpoints import Anchor

_DEFAULT_LASTS = "90d"


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `keys`."""
    actions = parser.add_subparsers(dest="action", required=True)
    create = _add_action(actions, "create", "make a key and print it once")
    create.add_argument(
        "--name", required=True, help="name of the identity; keys with the same name share one identity"
    )
    create.add_argument(
        "--scopes", default="run,read", help=f"comma-separated list of {', '.join(SCOPES)}; default: run,read"
    )
    create.add_argument("--project", help="project whose members see each other's jobs and buffers")
    create.add_argument(
        "--expires", default=_DEFAULT_LASTS, help="time until the key expires, such as 90d or 12h"
    )
    _add_action(actions, "list", "list all keys, without their secrets")
    revoke = _add_action(actions, "revoke", "revoke a key, which is refused from now on")
    revoke.add_argument("id", help="id of the key, as `keys list` prints it")
    _add_action(actions, "own", "print the key of this machine's user; make it if there is none")


def _add_action(actions: Any, name: str, about: str) -> argparse.ArgumentParser:
    """Add an action of a command, with its description; return its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}."
    )
    return parser


def add_migrate(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `migrate`."""
    parser.add_argument("--to", help="revision of an older version's tables, to migrate back to")


def add_adopt_storage(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `adopt-storage`."""
    parser.add_argument(
        "--trash-unnamed",
        action="store_true",
        help="also move the tables that no row names to the trash, however many they are",
    )


def add_restore_database(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `restore-database`."""
    parser.add_argument(
        "backup",
        metavar="FILE",
        type=Path,
        help="backup of the database, as `.backup` of sqlite3 makes it; FILE-wal next to it is a part of it",
    )


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit`."""
    actions = parser.add_subparsers(dest="action", required=True)
    checked = _add_action(actions, "verify", "find the first line that was altered or removed")
    checked.add_argument(
        "--anchor",
        type=_anchor,
        action="append",
        help="anchor to check, c<number>:<mac>, as printed before or published; may be repeated",
    )


def _anchor(text: str) -> Anchor:
    try:
        return Anchor.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ledger`."""
    parser.add_argument("source", nargs="?", help="digest of a source; default: the releases of all sources")
    parser.add_argument(
        "--verify", action="store_true", help="find entries that do not match the audit log; print no release"
    )
