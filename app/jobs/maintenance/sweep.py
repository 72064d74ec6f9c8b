"""Sweep of the shared folder: blobs that no row names go to the trash, files of dead services are deleted."""

import logging
from collections.abc import Collection
from datetime import date, timedelta
from functools import partial
from pathlib import Path

from app.callers import THE_SERVICE
from app.errors import StorageFull, Unavailable
from app.jobs.maintenance.clock_watch import ClockWatch, uptime
from app.jobs.maintenance.lease import Lease
from app.store.blobs.bucket import BucketUnusable
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.folder_removal import remove_folder
from app.store.blobs.sealed_files import DRAFT, PART, BlobStore, owner_of
from app.store.sql import jobs, replicas
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database
from app.store.sql.deployment import FolderMark, StorageMismatch, StorageUnusable
from app.store.sql.replicas import moment

_log = logging.getLogger("rowveil.storage")

MOST_FILES = 100
"""Number of blobs that every sweep may take."""

MOST_SHARE = 0.1
"""Share of all blobs that a sweep may take beyond that number."""


def takes_too_much(taken: int, total: int) -> bool:
    """Whether ``taken`` of ``total`` blobs are more than dead services leave: the database may be wrong."""
    return taken > MOST_FILES and taken > MOST_SHARE * total


class Sweeper:
    """Sweeps one shared folder, on behalf of one replica."""

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        folder: Path,
        deployment_id: str,
        lease: Lease,
        audit: AuditTrail,
        unnamed: Collection[str],
        trash_days: int,
        clock: ClockWatch,
    ) -> None:
        """Sweep ``folder``, in which ``blobs`` are.

        Parameters
        ----------
        deployment_id
            Id that the folder must be marked with.
        unnamed
            Blobs that this replica has begun and that no row names yet; looked at by each sweep.
        trash_days
            Days for which the trash keeps a blob; 0: a sweep deletes at once.
        clock
            Watch over the database's clock, by whose days the trash is filled and emptied.
        """
        self._database = database
        self._blobs = blobs
        self._bucket = blobs if isinstance(blobs, BucketBlobs) else None
        self._mark = FolderMark(folder if self._bucket is None else self._bucket.bucket)
        self._deployment_id = deployment_id
        self._progress_folder, self._scratch_folder = folder / "progress", folder / "scratch"
        self._lease = lease
        self._audit = audit
        self._unnamed = unnamed
        self._trash_days = trash_days
        self._clock = clock
        self.held = 0
        """Number of blobs that the last sweep left in place because they were too many; else 0."""

    def check_folder(self) -> None:
        """Raise StorageMismatch if the folder is no longer this deployment's; StorageUnusable."""
        found = self._mark.read()
        if found != self._deployment_id:
            raise StorageMismatch(
                "the storage is not mounted any more, or was given to another database by "
                "`rowveil adopt-storage`"
            )

    def run(self) -> bool:
        """Sweep once; return False, and log why, if the storage is of another deployment or is away.

        A blob that cannot be moved is logged. Raises Unavailable.
        """
        try:
            self.check_folder()
            return self._sweep()
        except (StorageMismatch, StorageUnusable) as error:
            _log.error("nothing is swept: %s", error)
        except BucketUnusable as error:
            _log.error("the sweep was interrupted: %s", error.strerror)
        return False

    def _sweep(self) -> bool:
        """Sweep a storage of this deployment, and return True. Raises BucketUnusable, Unavailable.

        A blob is needed by a row that names it, or by its replica as long as that is alive. The order of the
        reads matters: first the folder, then the live replicas, then the named blobs. A blob that is named
        after the listing had a live owner, or is found among the named ones.
        """
        files, trashed = self._blobs.files(), self._blobs.trash.files()
        progress = list(self._progress_folder.glob("*"))
        spools = [path for path in self._scratch_folder.glob("*") if path.is_dir()]
        own, unnamed = self._lease.replica, set(self._unnamed)
        with self._database.read() as session:
            alive = replicas.alive(session) - {own}
        with self._database.read() as session:
            named = jobs.all_named(session)
            running = {f"{job_id}.{attempt}" for job_id, attempt in jobs.running(session)}
            now = moment(session)
            trusted = self._clock.trusts(now, uptime())

        drafts, parts, blobs = _separated(files)
        orphans = [path for path in blobs if path.name not in named and _ownerless(path.name, alive, unnamed)]
        back = [path for path in trashed if path.name in named]
        self._take_back(back)
        if trusted:
            self._put_away(orphans, len(blobs), now.date())
            if not back or not self._are_left(named):
                self._blobs.trash.empty(now.date() - timedelta(days=self._trash_days))
        dead = [path for path in drafts if _ownerless(_blob_of(path), alive, unnamed)]
        # A part stays as long as its blob may be read, be taken back from the trash, or be written.
        whole = {path.name for path in (*blobs, *trashed)} | named
        dead += [
            path
            for path in parts
            if _blob_of(path) not in whole and _ownerless(_blob_of(path), alive, unnamed)
        ]
        for path in (*dead, *(path for path in progress if path.name not in running)):
            _unlink(path)
        for path in spools:
            if path.name not in running:
                remove_folder(path)
        if self._bucket is not None:
            ownerless = partial(_ownerless, alive=alive, unnamed=unnamed)
            self._bucket.sweep_others(running, ownerless, now if trusted else None)
        return True

    def _put_away(self, orphans: list[Path], total: int, today: date) -> None:
        held = len(orphans) if takes_too_much(len(orphans), total) else 0
        if held:
            _log.error(
                "%d of %d tables are named by no row: more than a sweep takes by itself (%.0f %%, and "
                "%d). The database may have been restored to an older state. None was moved: see "
                "docs/operations.md, Restore",
                *(held, total, 100 * MOST_SHARE, MOST_FILES),
            )
            if held != self.held:
                self._note("storage.sweep_stopped", f"{held} of {total} tables are named by no row")
        elif orphans:
            moved = put_away(self._blobs, orphans, today, self._trash_days)
            if moved:
                self._note("storage.sweep", f"{moved} of {total} tables were named by no row")
        self.held = held

    def _take_back(self, paths: list[Path]) -> None:
        """Move blobs that a row names out of the trash, such as after the right state was restored."""
        if taken := take_back(self._blobs, paths):
            self._note("storage.take_back", f"{taken} tables in the trash are named by rows")

    def _are_left(self, named: Collection[str]) -> bool:
        """Whether a blob that a row names could not be taken back: then the trash is not emptied."""
        left = {path.name for path in self._blobs.trash.files()}.intersection(named)
        if not left - self._blobs.names():
            return False
        _log.error("%d tables that rows name are still in the trash, which is not emptied", len(left))
        return True

    def _note(self, action: str, reason: str) -> None:
        _log.info("%s: %s", action, reason)
        try:
            with self._database.write() as session:
                now, subject = moment(session), self._deployment_id
                self._audit.append(session, THE_SERVICE, action, subject, now, reason)
        except (Unavailable, StorageFull):
            _log.error("%s is not in the audit: the database is not available", action)


def put_away(blobs: BlobStore, paths: Collection[Path], today: date, trash_days: int) -> int:
    """Move the blobs into the trash of the day, or delete them if it keeps none; return how many went."""
    moved = 0
    for path in paths:
        try:
            if trash_days == 0:
                path.unlink()
                moved += 1
            else:
                moved += blobs.trash.put(path, today)
        except FileNotFoundError:  # another replica was faster
            continue
        except OSError as error:
            _log.warning("table %s cannot be moved to the trash: %s", path.name, error.strerror)
    return moved


def take_back(blobs: BlobStore, paths: Collection[Path]) -> int:
    """Move the blobs out of the trash, unless they are in their place; return how many went."""
    in_place = blobs.names() if paths else set()
    taken = 0
    for path in paths:
        if path.name in in_place:
            continue
        try:
            taken += blobs.take_back(path)
        except OSError as error:
            _log.warning("table %s cannot be taken out of the trash: %s", path.name, error.strerror)
    return taken


def _ownerless(blob: str, alive: Collection[str], unnamed: Collection[str]) -> bool:
    return owner_of(blob) not in alive and blob not in unnamed


def _separated(files: Collection[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """Separate drafts, which no row can ever name, and parts of blobs from blobs."""
    drafts = [path for path in files if path.name.endswith(DRAFT)]
    parts = [path for path in files if path.name.endswith(PART)]
    return drafts, parts, [path for path in files if not path.name.endswith((DRAFT, PART))]


def _blob_of(path: Path) -> str:
    """Return the id of the blob of a draft or part."""
    return path.name.partition(".")[0]


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s cannot be deleted: %s", path.name, error.strerror)
