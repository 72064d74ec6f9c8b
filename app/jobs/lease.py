"""The lease under which this replica of the service works. Blocking: it runs in a thread of its own."""

import secrets

from app.store import replicas
from app.store.db import Database
from app.store.models import Replica
from app.store.seal import Sealer


class Lease:
    """Begun, renewed, lost to who found it run out, begun anew, and ended."""

    def __init__(self, database: Database, sealer: Sealer, folder_id: str, seconds: float) -> None:
        self.seconds = seconds
        self.replica = ""
        """Who this replica is, for as long as the lease holds."""
        self._database = database
        self._sealer = sealer
        self._folder_id = folder_id

    def begin(self) -> None:
        """Be somebody new. Raises ReplicasDiffer, Unavailable."""
        name = secrets.token_hex(6)
        sealer = self._sealer
        replica = Replica(id=name, key_id=sealer.key_id, folder_id=self._folder_id)
        with self._database.write() as session:
            if not self._database.shared:  # whoever else held a lease on it is dead: the home is locked
                replicas.remove_all(session)
            replicas.register(session, replica, self.seconds, sealer.key_ids)
        self.replica = name

    def renew(self) -> bool:
        """Whether it still held; it then holds for its whole length again. Raises Unavailable."""
        with self._database.write() as session:
            return replicas.renew(session, self.replica, self.seconds)

    def end(self) -> None:
        """Leave what is under it to others at once. Raises Unavailable."""
        with self._database.write() as session:
            replicas.remove(session, self.replica)
