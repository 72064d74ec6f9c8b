"""What the job's life is kept in, opened together: database, blobs, and the keys of both."""

import fcntl
import logging
import os
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from app.settings import Settings
from app.store import jobs
from app.store.audit import AuditTrail
from app.store.blobs import BlobStore
from app.store.db import Database, migrate
from app.store.kept_keys import AUDIT, FINGERPRINT, kept_key
from app.store.keys import KEY_BYTES, load_master_keys, load_signing_key
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
    instance: str
    """Names this run of the service."""
    progress_folder: Path
    scratch_folder: Path
    """Where jobs put aside what does not fit their memory."""
    _lock: int

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Take the home, bring the tables up to date, and clear away what a dead service left.

        Raises HomeInUse, KeyUnreadable.
        """
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock_home(settings.home)
        try:
            migrate(settings)
            signer = Signer(load_signing_key(settings))
            database = Database(settings)
            sealer, audit = open_keys(settings, database)
            blobs = BlobStore(settings.shared_folder.resolve() / "blobs", sealer)
            with database.read() as session:
                blobs.sweep(jobs.all_named(session))
            progress_folder = settings.shared_folder.resolve() / "progress"
            for left in progress_folder.glob("*"):
                left.unlink()
        except BaseException:
            os.close(lock)
            raise
        scratch_folder = settings.shared_folder.resolve() / "scratch"
        instance = str(uuid.uuid4())
        return cls(database, blobs, sealer, signer, audit, instance, progress_folder, scratch_folder, lock)

    def close(self) -> None:
        """Let go of the database and of the home."""
        self.database.close()
        os.close(self._lock)

    def progress_path(self, job_id: str) -> Path:
        """Where the worker tells how far the job is."""
        return self.progress_folder / job_id

    def delete_blobs(self, blobs: Iterable[str]) -> None:
        """Delete blobs that no committed row names. What stays behind, the next start sweeps."""
        for blob in blobs:
            try:
                self.blobs.delete(blob)
            except OSError as error:
                _log.warning("blob %s cannot be deleted: %s", blob, error.strerror)


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


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


def _lock_home(home: Path) -> int:
    """Held until closed, or until this process is no more, however it ends."""
    lock = os.open(home / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise HomeInUse(f"another service works on {home}; give each its own ROWVEIL_HOME") from error
    return lock
