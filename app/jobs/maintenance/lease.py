"""Lease of this replica of the service. Blocking: it runs in a separate thread."""

import secrets

from app.store.crypto.sealing import Sealer
from app.store.sql import replicas
from app.store.sql.db import Database
from app.store.sql.models import Replica


class Lease:
    """A replica's lease: acquired, renewed, lost on expiry to another replica, reacquired, released."""

    def __init__(self, database: Database, sealer: Sealer, folder_id: str, seconds: float) -> None:
        self.seconds = seconds
        self.replica = ""
        """Id of this replica; each acquired lease has a new one."""
        self._database = database
        self._sealer = sealer
        self._folder_id = folder_id

    def acquire(self) -> None:
        """Acquire a lease under a new replica id. Raises ReplicasDiffer, Unavailable."""
        name = secrets.token_hex(6)
        sealer = self._sealer
        replica = Replica(id=name, key_id=sealer.key_id, folder_id=self._folder_id)
        with self._database.write() as session:
            if not self._database.shared:  # the home is locked, so any other holder of a lease is dead
                replicas.remove_all(session)
            replicas.register(session, replica, self.seconds, sealer.key_ids)
        self.replica = name

    def renew(self) -> bool:
        """Renew the lease to its full length; False if it was lost. Raises Unavailable."""
        with self._database.write() as session:
            return replicas.renew(session, self.replica, self.seconds)

    def release(self) -> None:
        """End the lease, so that others can take over its jobs at once. Raises Unavailable."""
        with self._database.write() as session:
            replicas.remove(session, self.replica)
