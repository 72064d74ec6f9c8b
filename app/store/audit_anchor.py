"""The audit's anchor that the service leaves beside its keys: a line that the database must still have.

Whoever can turn the database back to an older state cannot reach this file by the same way.
"""

import os
from pathlib import Path

from app.store.audit import Anchor

_FILE = Path("keys") / "audit.anchor"


class AnchorUnreadable(Exception):
    """The file of the anchor holds none."""


def kept_anchor(home: Path) -> Anchor | None:
    """The anchor that was left last; None where there is none. Raises AnchorUnreadable."""
    try:
        return Anchor.parse((home / _FILE).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise AnchorUnreadable(
            f"{home / _FILE} holds no anchor of the audit: somebody changed it, or a disk lost it. Take the "
            "file away, and give one that was kept elsewhere by --anchor; the service leaves a new one"
        ) from None


def keep_anchor(home: Path, head: Anchor) -> bool:
    """Leave this one; whether the audit is at least as long as it was.

    An anchor is never moved back: it would hide what it is there to show.
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
        os.fsync(file.fileno())  # an empty file would be no anchor, and would be left as it is
    draft.rename(path)
    return True
