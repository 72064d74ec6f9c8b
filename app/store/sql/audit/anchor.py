"""Anchor of the audit log next to the keys: a checkpoint that the database must still contain.

Restoring an older state of the database does not change this file. Older versions stored the anchor of a line
of the shared chain in a file of their own, which is still read.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.store.sql.audit.checkpoints import Anchor

_FILE = Path("keys") / "audit.checkpoint"

_OLDER_FILE = Path("keys") / "audit.anchor"

_LOCK = Path("keys") / "audit.lock"


class AnchorUnreadable(Exception):
    """The anchor's file does not contain an anchor."""


@contextmanager
def anchor_lock(home: Path) -> Iterator[None]:
    """Let no other process store an anchor in this home during the block. Raises OSError."""
    path = home / _LOCK
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def kept_anchors(home: Path) -> list[Anchor]:
    """Return the stored anchors, at most one of each kind. Raises AnchorUnreadable."""
    found = [_read(home / file) for file in (_FILE, _OLDER_FILE)]
    return [anchor for anchor in found if anchor is not None]


def keep_anchor(home: Path, newest: Anchor) -> bool:
    """Store an anchor; return whether the log is at least as long as at the stored anchor.

    An anchor is never replaced by an older one, which would hide a shortened log. The caller has read the
    log under `anchor_lock`, so that no other process has stored a newer anchor since.

    Raises AnchorUnreadable.
    """
    path = home / _FILE
    before = _read(path)
    if before is not None and before.number >= newest.number:
        return before == newest
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{newest}\n")
        file.flush()
        os.fsync(file.fileno())  # an empty file after a power cut would not be an anchor
    draft.rename(path)
    return True


def remove_anchors(home: Path) -> list[Path]:
    """Remove the stored anchors, which belong to a newer state than a restored database; return their files.

    Raises OSError.
    """
    removed = [path for file in (_FILE, _OLDER_FILE) if (path := home / file).exists()]
    for path in removed:
        path.unlink()
    return removed


def _read(path: Path) -> Anchor | None:
    try:
        return Anchor.parse(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise AnchorUnreadable(
            f"{path} holds no anchor of the audit: the file was changed or damaged. Remove it, "
            "and pass an anchor that was kept elsewhere by --anchor; the service writes a new one"
        ) from None
