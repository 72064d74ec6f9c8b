"""What the job's life is kept in, opened together: database, blobs, and the keys of both."""

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from app.errors import StorageFull, Unavailable
from app.jobs.lease import Lease
from app.settings import Settings
from app.store import jobs, replicas
from app.store.audit import AuditTrail
from app.store.blobs import BlobAccess, BlobStore, owner_of
from app.store.db import Database, Transaction, migrate
from app.store.kept_keys import AUDIT, FINGERPRINT, kept_key
from app.store.keys import KEY_BYTES, load_folder_id, load_master_keys, load_signing_key
from app.store.models import Job
from app.store.seal import Sealer, Signer, first_fingerprint_key

_log = logging.getLogger("rowveil.jobs")


class HomeInUse(Exception):
    """Another service works on this home."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that outlives the service."""

    database: Database
    blobs: BlobStore
    sealer: Sealer
    signer: Signer
    audit: AuditTrail
    lease: Lease
    """Under which this run of the service works."""
    progress_folder: Path
    scratch_folder: Path
    """Where jobs put aside what does not fit their memory."""
    _lock: int | None
    _unnamed: set[str]
    """Blobs that were begun here, and that no row names yet."""

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Bring the tables up to date, begin a lease, and clear away what dead services left.

        A database that is one process's own takes the home along: nobody else may work on it.

        Raises HomeInUse, KeyUnreadable, DatabaseUnusable, ReplicasDiffer.
        """
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = Database(settings)
        lock = None if database.shared else _lock_home(settings.home)
        try:
            migrate(settings)
            signer = Signer(load_signing_key(settings))
            sealer, audit = open_keys(settings, database)
            folder = settings.shared_folder.resolve()
            lease = Lease(database, sealer, load_folder_id(folder), settings.lease_seconds)
            lease.begin()
            stores = cls(
                database,
                BlobStore(folder / "blobs", sealer),
                sealer,
                signer,
                audit,
                lease,
                folder / "progress",
                folder / "scratch",
                lock,
                set(),
            )
            stores.sweep()
        except BaseException:
            database.close()
            if lock is not None:
                os.close(lock)
            raise
        return stores

    def close(self) -> None:
        """Let go of the database and of the home."""
        self.database.close()
        if self._lock is not None:
            os.close(self._lock)

    def progress_path(self, job: Job) -> Path:
        """Where the worker tells how far this attempt at the job is."""
        return self.progress_folder / f"{job.id}.{job.attempt}"

    def new_blob(self) -> BlobAccess:
        """Access to a blob that is still to be written, and to be named by a row or dropped."""
        access = self.blobs.allocate(self.lease.replica)
        self._unnamed.add(access.id)
        return access

    def begin_to_name(self, session: Transaction, blobs: Collection[str]) -> None:
        """Of new blobs, before the transaction names them in a row.

        Raises LeaseLost: they may have been swept by now.
        """
        replicas.hold(session, {owner_of(blob) for blob in blobs})
        jobs.lock_blobs(session, blobs)

    def named(self, blobs: Iterable[str]) -> None:
        """Of new blobs, when the transaction that names them has committed."""
        self._unnamed.difference_update(blobs)

    def drop(self, blobs: Collection[str]) -> None:
        """Delete new blobs, unless a row names them after all: a commit may come about untold."""
        try:
            with self.database.write() as session:
                unnamed = jobs.unnamed(session, blobs)
            self.delete_blobs(unnamed)
        except (Unavailable, StorageFull):
            _log.warning("%d blobs are left to the next sweep", len(blobs))
        self._unnamed.difference_update(blobs)

    def delete_blobs(self, blobs: Iterable[str]) -> None:
        """Delete blobs that no committed row names. What stays behind, the next sweep takes."""
        for blob in blobs:
            try:
                self.blobs.delete(blob)
            except OSError as error:
                _log.warning("blob %s cannot be deleted: %s", blob, error.strerror)

    def sweep(self) -> None:
        """Delete every file that nobody needs.

        A blob is needed by a row that names it, or by the replica that made it as long as that is
        alive. What is there is listed first, and who is alive asked before what is named: a blob that
        came to be named meanwhile had an owner that was alive, or is found to be named.
        """
        files, progress = self.blobs.files(), list(self.progress_folder.glob("*"))
        shelves = [path for path in self.scratch_folder.glob("*") if path.is_dir()]
        mine, unnamed = self.lease.replica, set(self._unnamed)
        with self.database.read() as session:
            alive = replicas.alive(session) - {mine}
        with self.database.read() as session:
            named = jobs.all_named(session)
            running = {f"{job_id}.{attempt}" for job_id, attempt in jobs.running(session)}
        for path in files:
            blob = path.name.partition(".")[0]  # of a draft as well
            if path.name not in named and owner_of(blob) not in alive and blob not in unnamed:
                path.unlink(missing_ok=True)
        for path in progress:
            if path.name not in running:
                path.unlink(missing_ok=True)
        for path in shelves:
            if path.name not in running:
                shutil.rmtree(path, ignore_errors=True)


def open_keys(settings: Settings, database: Database) -> tuple[Sealer, AuditTrail]:
    """What seals and opens, and what writes the audit, with the keys that the database keeps sealed.

    Raises KeyUnreadable, SealBroken (none of the master keys is the one that sealed them).
    """
    masters = load_master_keys(settings)
    sealer = Sealer(masters)
    with database.write() as session:
        fingerprint = kept_key(session, sealer, FINGERPRINT, first_fingerprint_key(masters))
        audit = kept_key(session, sealer, AUDIT, secrets.token_bytes(KEY_BYTES))
    return Sealer(masters, fingerprint), AuditTrail(audit)


def _lock_home(home: Path) -> int:
    """Held until closed, or until this process is no more, however it ends."""
    lock = os.open(home / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise HomeInUse(
            f"another service works on {home}; give each its own ROWVEIL_HOME, or all of them one PostgreSQL "
            "(ROWVEIL_DATABASE_URL)"
        ) from error
    return lock
