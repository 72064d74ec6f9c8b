"""Anchor of the audit log next to the keys: a line that the database must still contain.

Restoring an older state of the database does not change this file.
"""

import os
from pathlib import Path

from app.store.sql.audit import Anchor

_FILE = Path("keys") / "audit.anchor"


class AnchorUnreadable(Exception):
    """The anchor's file does not contain an anchor."""


def kept_anchor(home: Path) -> Anchor | None:
    """Return the stored anchor; None if there is none. Raises AnchorUnreadable."""
    try:
        return Anchor.parse((home / _FILE).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise AnchorUnreadable(
            f"{home / _FILE} holds no anchor of the audit: the file was changed or damaged. Remove it, "
            "and pass an anchor that was kept elsewhere by --anchor; the service writes a new one"
        ) from None


def keep_anchor(home: Path, head: Anchor) -> bool:
    """Store an anchor; return whether the log is at least as long as at the stored anchor.

    An anchor is never replaced by an older one, which would hide a shortened log.
    """
    before = kept_anchor(home)
    if before is not None and before.number >= head.number:
        return before.number == head.number
    path = home / _FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{head}\n")
        file.flush()
        os.fsync(file.fileno())  # an empty file after a power cut would not be an anchor
    draft.rename(path)
    return True
