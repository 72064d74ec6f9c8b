"""Small files that all replicas of a service share, in the shared folder or as objects of the bucket.

Each records a fact about the storage that must not come from the database, such as the deployment of the
storage.
"""

import os
import secrets
from pathlib import Path

from app.store.blobs.bucket import Bucket
from app.store.blobs.folder_flush import flush_folder

Place = Path | Bucket
"""Shared folder of a service, or its bucket."""


def place_name(place: Place) -> str:
    """Return the place with its kind, for a message."""
    return f"the shared folder {place}" if isinstance(place, Path) else f"the bucket {place}"


def read_mark(place: Place, name: str) -> str | None:
    """Return the text of a mark; None if there is none. Raises OSError."""
    if isinstance(place, Bucket):
        content = place.get(name)
        return None if content is None else content.decode("ascii", errors="replace")
    try:
        return (place / name).read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None


def create_mark(place: Place, name: str, text: str) -> str:
    """Write a mark unless there is one; return the text that is there then. Raises OSError."""
    if isinstance(place, Bucket):
        return place.create(name, text.encode()).decode("ascii", errors="replace")
    draft = _draft(place, name, text)
    try:
        os.link(draft, place / name)  # fails if the file exists, which a rename would replace
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    flush_folder(place)
    return (place / name).read_text(encoding="ascii", errors="replace")


def replace_mark(place: Place, name: str, text: str) -> None:
    """Write a mark in the place of an earlier one. Raises OSError."""
    if isinstance(place, Bucket):
        place.put(name, text.encode())
        return
    _draft(place, name, text).rename(place / name)
    flush_folder(place)


def delete_mark(place: Place, name: str) -> None:
    """Delete a mark, if there is one. Raises OSError."""
    if isinstance(place, Bucket):
        place.delete([name])
    else:
        (place / name).unlink(missing_ok=True)


def _draft(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.{secrets.token_hex(4)}"
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return draft
