"""Lease of this replica of the service, and the thread that renews it. Blocking."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.job_kinds import common_digest_form, own_runs
from app.processes.api_process import ApiProcess
from app.settings import Settings
from app.store.crypto.sealing import Sealer, Signer
from app.store.sql import replicas
from app.store.sql.db import Database
from app.store.sql.models import Replica
from providers.tables.digest import DigestForm

_RENEWALS = 4
"""Number of renewals within the time of one lease."""

_log = logging.getLogger("rowveil.jobs")


class Lease:
    """A replica's lease: acquired, renewed, lost on expiry to another replica, reacquired, released."""

    def __init__(
        self,
        database: Database,
        sealer: Sealer,
        signer: Signer,
        folder_id: str,
        seconds: float,
        process: ApiProcess,
    ) -> None:
        self.seconds = seconds
        self.replica = ""
        """Id of this replica; each acquired lease has a new one."""
        self.digest_form = DigestForm.PARTS
        """Form of new digests, which all replicas know; looked up at each renewal."""
        self._database = database
        self._sealer = sealer
        self._signer_id = signer.key_id
        self._folder_id = folder_id
        self._process = process

    def acquire(self) -> None:
        """Acquire a lease under a new replica id, and end that of the dead process that this one replaces.

        Raises ReplicasDiffer, Unavailable.
        """
        name = secrets.token_hex(6)
        sealer = self._sealer
        runs = own_runs().document() | {replicas.SIGNER: self._signer_id}
        replica = Replica(id=name, key_id=sealer.key_id, folder_id=self._folder_id, runs=runs)
        with self._database.write() as session:
            if not self._database.shared and self._process.first and not self.replica:
                replicas.remove_all(session)  # the home is locked, so any other holder of a lease is dead
            if self._process.replaces is not None:
                replicas.remove(session, self._process.replaces)
            replicas.register(session, replica, self.seconds, sealer.key_ids)
            form = common_digest_form(replicas.living_runs(session))
        self.replica, self.digest_form = name, form
        self._process.report_opened(name)

    def renew(self, database: Database | None = None) -> bool:
        """Renew the lease to its full length; False if it was lost. Raises Unavailable."""
        with (database or self._database).write() as session:
            held = replicas.renew(session, self.replica, self.seconds)
            if self._database.shared:  # else this replica is the only one
                self.digest_form = common_digest_form(replicas.living_runs(session))
            return held

    def release(self) -> None:
        """End the lease, so that others can take over its jobs at once. Raises Unavailable."""
        with self._database.write() as session:
            replicas.remove(session, self.replica)


class LeaseRenewal:
    """Thread that renews a lease, on a connection of its own.

    It shares neither a thread nor a connection with other work. So the lease is not lost while other work
    waits for a slow folder, a busy thread or a free connection of the pool.
    """

    def __init__(
        self,
        lease: Lease,
        settings: Settings,
        database: Database,
        on_lost: Callable[[], None] = lambda: None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep the arguments; `start` begins.

        Parameters
        ----------
        lease
            The lease, which has been acquired.
        settings
            Settings of the service, to connect with.
        database
            The service's database; used if it is embedded, where no other replica can end the lease.
        on_lost, on_failure
            Called from the thread when the lease was lost, and when a renewal failed. After a loss nothing is
            renewed until `resume`.
        """
        self._lease = lease
        self._settings = settings
        self._database = database
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._held = threading.Event()
        self._held.set()
        self._thread = threading.Thread(target=self._run, name="rowveil-lease", daemon=True)

    def start(self) -> None:
        """Start the thread, which renews the lease at once."""
        self._thread.start()

    def resume(self) -> None:
        """Renew again, after a new lease was acquired."""
        self._held.set()

    def stop(self) -> None:
        """Return when the thread has ended."""
        self._stopping.set()
        self._held.set()
        self._thread.join()

    def _run(self) -> None:
        own = Database(self._settings, connections=1) if self._database.shared else self._database
        try:
            while not self._stopping.is_set():
                self._renew(own)
                # A stop sets `_held` once: a renewal that finds the lease lost meanwhile clears it again.
                if not self._stopping.wait(self._lease.seconds / _RENEWALS):
                    self._held.wait()
        finally:
            if own is not self._database:
                own.close()

    def _renew(self, database: Database) -> None:
        try:
            held = self._lease.renew(database)
        except Exception as error:
            _log.error("renewing the lease failed: %s", type(error).__qualname__)
            self._on_failure()
            return
        if not held:
            self._held.clear()
            self._on_lost()


@contextmanager
def renewed(lease: Lease, settings: Settings, database: Database) -> Iterator[None]:
    """Renew the lease while the block runs; if it is lost, the next renewal finds that out."""
    renewal = LeaseRenewal(lease, settings, database)
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()
