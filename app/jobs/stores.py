"""Stores of the job service, opened together: database, blobs, and the keys of both."""

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.engine.progress_file import make_progress_file
from app.errors import AppError, StorageFull, Unavailable
from app.jobs.maintenance.binding import bind_once
from app.jobs.maintenance.clock_watch import ClockWatch
from app.jobs.maintenance.deletions import Deletions
from app.jobs.maintenance.issuers import name_issuer_once
from app.jobs.maintenance.lease import Lease, renewed
from app.jobs.maintenance.sweep import Sweeper
from app.processes.api_process import ApiProcess
from app.settings import Settings
from app.store.blobs.places import load_folder_id, open_blobs, place_of
from app.store.blobs.sealed_files import BlobAccess, BlobMissing, BlobStore, owner_of, small_table
from app.store.crypto.key_files import KEY_BYTES, load_master_keys, load_signing_key
from app.store.crypto.sealing import Binding, SealBroken, Sealer, Signer, first_fingerprint_key
from app.store.sql import jobs, replicas
from app.store.sql.audit.trail import OPERATOR, AuditTrail
from app.store.sql.bindings import NamedBlob, Role, blob_of_job, rows_binding, table_binding
from app.store.sql.connection.engines import embedded_file
from app.store.sql.db import Database, Transaction
from app.store.sql.deployment import StorageUnusable, pair, usable
from app.store.sql.migration import check_after_crash, migrate
from app.store.sql.models import Job
from app.store.sql.service_keys import AUDIT, FINGERPRINT, LEDGER, has_kept_keys, kept_key

_log = logging.getLogger("rowveil.jobs")

_EMBEDDED_CHAIN = "service"


_LOCK_LOOK_SECONDS = 0.05


class HomeInUse(Exception):
    """Another service uses this home folder, or this embedded database."""

    def __init__(self, locked: Path) -> None:
        super().__init__(
            f"another service uses {locked}; give each its own ROWVEIL_HOME and database, or all of "
            "them one PostgreSQL (ROWVEIL_DATABASE_URL)"
        )
        self.locked = locked


class HomeUnusable(Exception):
    """The file system of the home folder, or of an embedded database, has no file locks."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that outlives the process."""

    database: Database
    blobs: BlobStore
    sealer: Sealer
    signer: Signer
    audit: AuditTrail
    lease: Lease
    """Lease of this run of the service."""
    ledger_key: bytes
    """Key of the sketches in the disclosure ledger."""
    progress_folder: Path
    scratch_folder: Path
    """Folder of the scratch files of jobs that exceed their memory budget."""
    sweeper: Sweeper
    local_workers: bool
    """Whether tasks run on this machine."""
    _lock: ExitStack | None
    _unnamed: set[str]
    """Blobs that this process has created and that no row names yet."""
    clock: ClockWatch
    """Watch over the database's clock, by which rows and the trash expire."""
    deletions: Deletions = field(default_factory=Deletions)

    @classmethod
    def open(cls, settings: Settings, process: ApiProcess | None = None) -> Self:
        """Migrate the database, acquire a lease, and sweep files of dead services.

        An embedded database serves one service only, so the home folder is locked as well; if the service has
        several API processes, their parent holds that lock.

        Parameters
        ----------
        settings
            Settings of the service.
        process
            This process among the API processes; None: there is no other.

        Raises HomeInUse, HomeUnusable, KeyUnreadable, DatabaseUnusable, ReplicasDiffer, StorageInUse,
        StorageMismatch, StorageUnusable.
        """
        process = process or ApiProcess()
        make_home(settings.home)
        database = Database(settings)
        lock = None if database.shared or not process.alone else lock_home(settings)
        try:
            if process.first:
                check_after_crash(settings)
            migrate(settings, alone=not database.shared and process.first)
            in_use = _is_in_use(database)
            sealer, audit = open_keys(settings, database, _audit_chain(database, process))
            signer = Signer(_signing_key(settings, in_use))
            folder = settings.shared_folder.resolve()
            place, blobs = place_of(settings), open_blobs(settings, sealer)
            deployment_id = pair(database, blobs, place)
            bind_once(database, sealer, signer, blobs, audit, place)
            name_issuer_once(settings, database, sealer, audit)
            with usable(place):
                folder_id = load_folder_id(place)
            lease = Lease(database, sealer, signer, folder_id, settings.lease_seconds, process)
            lease.acquire()
            unnamed: set[str] = set()
            clock = ClockWatch()
            days = settings.trash_days
            stores = cls(
                database,
                blobs,
                sealer,
                signer,
                audit,
                lease,
                ledger_key(database, sealer),
                folder / "progress",
                folder / "scratch",
                Sweeper(database, blobs, folder, deployment_id, lease, audit, unnamed, days, clock),
                settings.engine == "local",
                lock,
                unnamed,
                clock,
            )
            with renewed(lease, settings, database):
                stores.sweep()
        except BaseException:
            database.close()
            if lock is not None:
                lock.close()
            raise
        return stores

    def close(self) -> None:
        """End deletions, close the database and unlock the home folder."""
        self.deletions.close()
        self.database.close()
        if self._lock is not None:
            self._lock.close()

    def progress_path(self, job: Job | jobs.JobRow) -> Path:
        """Return the progress file of the job's current attempt, which its worker writes."""
        return self.progress_path_of(job.id, job.attempt)

    def progress_path_of(self, job_id: str, attempt: int) -> Path:
        """Return the progress file of an attempt of a job."""
        return self.progress_folder / f"{job_id}.{attempt}"

    def delete_progress(self, path: Path) -> None:
        """Delete a progress file, now or soon; the next sweep deletes one that remains."""
        if self.database.runs_in_loop:  # then the folder is on the disk of the database
            _delete_progress(path)
        else:
            self.deletions.begin(_delete_progress, path)

    def check_storage(self) -> None:
        """Check that the storage is this deployment's, and that progress files can be made.

        Raises StorageMismatch, StorageUnusable.
        """
        self.sweeper.check_folder()
        probe = self.progress_folder / f"{self.lease.replica}.probe"
        try:
            make_progress_file(probe)
            probe.unlink(missing_ok=True)
        except OSError as error:
            message = f"no file can be made in {self.progress_folder}: {error.strerror}"
            raise StorageUnusable(message) from None

    def table(self, job: Job, role: Role) -> BlobAccess:
        """Return access to a table of the job, in its row or in a file; the row was read with its tables.

        Raises BlobMissing (it was released), SealBroken.
        """
        sealed: bytes | None = getattr(job, f"sealed_{role}")
        if sealed is not None:
            return small_table(self.sealer.open(sealed, rows_binding(job, role)))
        named = blob_of_job(job, role)
        if named is None:
            raise BlobMissing(f"job {job.id} has no {role} any more")
        return self.blobs.access(named.blob, named.sealed_key, named.binding)

    def open_table(self, job: Job, role: Role) -> BlobAccess:
        """Open a table of the job as `table`, for a caller. Raises BlobMissing, AppError as `open_value`."""
        with _for_caller(table_binding(job, role)):
            return self.table(job, role)

    def new_blob(self) -> BlobAccess:
        """Allocate a blob to write; afterwards a row names it (`mark_named`), or it is dropped (`drop`)."""
        access = self.blobs.allocate(self.lease.replica)
        self._unnamed.add(access.id)
        return access

    def new_upload(self) -> BlobAccess:
        """Allocate a blob that one task reads and that is dropped then: no row ever names it.

        If the workers are on this machine, it is a file, also where tables are in a bucket.
        """
        access = self.new_blob()
        return replace(access, bucket=None) if self.local_workers else access

    def move_key(self, named: NamedBlob, to: Binding) -> bytes:
        """Seal the data key of a row's blob to a new row, for a caller. Raises AppError as `open_value`."""
        with _for_caller(named.binding):
            return self.blobs.move_key(named.blob, named.sealed_key, named.binding, to)

    def open_value(self, sealed: bytes, binding: Binding) -> bytes:
        """Open a sealed value for a caller. Raises AppError: it does not open, and the log says why."""
        with _for_caller(binding):
            return self.sealer.open(sealed, binding)

    def open_blob(self, named: NamedBlob) -> BlobAccess:
        """Open a blob that a row names, for a caller. Raises BlobMissing, AppError as `open_value`."""
        with _for_caller(named.binding):
            return self.blobs.access(named.blob, named.sealed_key, named.binding)

    def claim_blobs(self, session: Transaction, blobs: Collection[str]) -> None:
        """Claim new blobs before a transaction names them in a row.

        Raises LeaseLost: another replica may have swept them.
        """
        replicas.hold(session, {owner_of(blob) for blob in blobs})
        jobs.lock_blobs(session, blobs)

    def mark_named(self, blobs: Iterable[str]) -> None:
        """Mark new blobs as named, after the transaction that names them has committed."""
        self._unnamed.difference_update(blobs)

    def mark_unused(self, blobs: Iterable[str]) -> None:
        """Mark new blobs that were never written, and that no row will name."""
        self._unnamed.difference_update(blobs)

    def drop(self, blobs: Collection[str]) -> None:
        """Delete new blobs, unless a row names them: a commit may succeed although its response is lost."""
        try:
            with self.database.write() as session:
                unnamed = jobs.unnamed(session, blobs)
            self.delete_blobs(unnamed)
        except (Unavailable, StorageFull):
            _log.warning("%d blobs are left to the next sweep", len(blobs))
        self._unnamed.difference_update(blobs)

    def delete_blobs(self, blobs: Iterable[str]) -> None:
        """Delete blobs that no committed row names; the next sweep deletes remaining blobs.

        A folder that does not respond holds the caller only for a moment.
        """
        if self.database.runs_in_loop:  # then the folder is on the disk of the database
            self.delete_blobs_patiently(blobs)
        elif found := list(blobs):
            self.deletions.run(self.delete_blobs_patiently, found)

    def delete_blobs_patiently(self, blobs: Iterable[str]) -> None:
        """Delete blobs as `delete_blobs`, and wait until the folder responds."""
        for blob in blobs:
            try:
                self.blobs.delete(blob)
            except OSError as error:
                _log.warning("blob %s cannot be deleted: %s", blob, error.strerror)

    def sweep(self) -> bool:
        """Sweep the shared folder: see `app.jobs.maintenance.sweep`; return whether it was swept."""
        return self.sweeper.run()


def _delete_progress(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("progress file %s cannot be deleted: %s", path.name, error.strerror)


@contextmanager
def _for_caller(binding: Binding) -> Iterator[None]:
    """Turn SealBroken into an error for a caller, which does not say what is wrong; the log does."""
    try:
        yield
    except SealBroken as error:
        _log.error("%s %s: %s", binding.kind, binding.row, error)
        raise AppError(
            f"the stored {binding.purpose} does not open under this id: it was changed or moved in the "
            "database. The service's log has more, under the id"
        ) from None


def open_keys(
    settings: Settings, database: Database, chain: str = OPERATOR, create: bool = True
) -> tuple[Sealer, AuditTrail]:
    """Open the sealer and the trail of an audit chain, with the keys that are stored sealed in the database.

    Parameters
    ----------
    settings
        Settings with the master keys or their file.
    database
        The database of the service's own keys.
    chain
        Name of the audit chain.
    create
        Whether to make a master key if there is none. A database that has values under a lost one gets no
        other: it would open none of them, and replace the right one in the next backup of the keys.

    Raises KeyUnreadable, SealBroken (none of the master keys has sealed them).
    """
    masters = load_master_keys(settings, create and not _is_in_use(database))
    sealer = Sealer(masters)
    with database.write() as session:
        fingerprint = kept_key(session, sealer, FINGERPRINT, first_fingerprint_key(masters))
        audit = kept_key(session, sealer, AUDIT, secrets.token_bytes(KEY_BYTES))
    return Sealer(masters, fingerprint), AuditTrail(audit, chain)


def _is_in_use(database: Database) -> bool:
    """Whether values of the database are sealed under a master key."""
    with database.read() as session:
        return has_kept_keys(session)


def _signing_key(settings: Settings, in_use: bool) -> Ed25519PrivateKey:
    """Load the key that signs manifests, and log it if one was made although the database is in use.

    Raises KeyUnreadable.
    """
    is_new = not settings.signing_key_file.exists()
    key = load_signing_key(settings)
    if is_new and in_use:
        _log.error(
            "there was no signing key %s, and a new one was made: if this service has signed manifests "
            "before, restore that file from a backup, and start again",
            settings.signing_key_file,
        )
    return key


def _audit_chain(database: Database, process: ApiProcess) -> str:
    """Return the name of this process's audit chain; on an embedded database all runs share those names."""
    if database.shared:
        return secrets.token_hex(6)
    return _EMBEDDED_CHAIN if process.number == 0 else f"{_EMBEDDED_CHAIN}-{process.number}"


def ledger_key(database: Database, sealer: Sealer) -> bytes:
    """Open the key of the sketches in the ledger. Raises SealBroken."""
    with database.write() as session:
        return kept_key(session, sealer, LEDGER, secrets.token_bytes(KEY_BYTES))


def make_home(home: Path) -> None:
    """Make the home folder if there is none. Raises OSError."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)


def lock_home(settings: Settings, patience: float = 0.0) -> ExitStack:
    """Lock the home folder, and an embedded database, until the returned stack is closed or the process ends.

    A service with another home may use the database.

    Raises HomeInUse after ``patience`` seconds, HomeUnusable, OSError.
    """
    deadline = time.monotonic() + patience
    file = embedded_file(settings.database_url)
    with ExitStack() as opened:
        _lock(settings.home / "lock", settings.home, opened, deadline)
        if file is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            real = file.resolve()  # two links lead to one lock
            _lock(real.with_name(f".{real.name}.lock"), file, opened, deadline)
        return opened.pop_all()


def _lock(file: Path, locked: Path, opened: ExitStack, deadline: float) -> None:
    lock = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    opened.callback(os.close, lock)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise HomeInUse(locked) from error
        except OSError as error:
            raise HomeUnusable(
                f"{file} cannot be locked ({error.strerror}), so a second service could use the same data: "
                "put ROWVEIL_HOME and the database on a file system with locks (flock), such as a local disk"
            ) from error
        time.sleep(_LOCK_LOOK_SECONDS)
