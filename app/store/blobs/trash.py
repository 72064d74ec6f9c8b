"""Trash of a blob store: blobs that no row named, kept for some days in case a row should have named them.

It is a folder of the store itself, so that a blob goes there and back by a rename. Below it each day has
a folder, such as ``trash/2026-11-23``. A blob in the trash stays sealed as before.
"""

import logging
from contextlib import suppress
from datetime import date
from pathlib import Path

_log = logging.getLogger("rowveil.storage")


class Trash:
    """The dated folders below one folder. Several processes may work on it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: Path, day: date) -> bool:
        """Move a blob into the folder of the day; False if it is gone. Raises OSError."""
        target = self.folder / day.isoformat() / path.name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.rename(target)
        except FileNotFoundError:
            return False
        return True

    def take_back(self, path: Path, target: Path) -> bool:
        """Move a blob out of the trash to its place; False if it is gone. Raises OSError."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.rename(target)
        except FileNotFoundError:
            return False
        return True

    def files(self) -> list[Path]:
        """Return every blob in the trash."""
        return [path for _, folder in self._days() for path in folder.glob("*")]

    def folders(self) -> list[Path]:
        """Return the folders of all days."""
        return [folder for _, folder in self._days()]

    def find(self, blob_id: str) -> Path | None:
        """Return the file of the blob; None if it is not in the trash."""
        for _, folder in self._days():
            path = folder / blob_id
            if path.is_file():
                return path
        return None

    def delete(self, blob_id: str) -> None:
        """Delete the blob for good, if it is in the trash."""
        path = self.find(blob_id)
        if path is not None:
            path.unlink(missing_ok=True)

    def empty(self, before: date) -> int:
        """Delete the folders of the days before a day; return the number of files deleted.

        A folder that a crash left half emptied is deleted by the next call.
        """
        deleted = 0
        for day, folder in self._days():
            if day >= before:
                continue
            try:
                for path in folder.iterdir():
                    path.unlink(missing_ok=True)
                    deleted += 1
                folder.rmdir()
            except FileNotFoundError:  # another replica was faster
                continue
            except OSError as error:
                _log.warning("the trash of %s cannot be emptied: %s", day, error.strerror)
        return deleted

    def _days(self) -> list[tuple[date, Path]]:
        """Return each day and its folder. Anything else in the trash is left alone."""
        days = []
        for folder in self.folder.glob("????-??-??"):
            with suppress(ValueError):
                days.append((date.fromisoformat(folder.name), folder))
        return sorted(days)
