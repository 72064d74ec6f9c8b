"""Renewal of a lease, and its end."""

import threading
from types import SimpleNamespace
from typing import cast

from app.jobs.maintenance.lease import Lease, LeaseRenewal
from app.settings import Settings
from app.store.sql.db import Database


class Held(threading.Event):
    """The event by which a stop wakes the renewal, and a second one that says so."""

    def __init__(self) -> None:
        super().__init__()
        super().set()
        self.stopped = threading.Event()

    def set(self) -> None:
        super().set()
        self.stopped.set()


def test_a_stop_ends_a_renewal_that_finds_the_lease_lost() -> None:
    """A replica that was suspended and is stopped at once may learn of both at the same moment."""
    held, asked = Held(), threading.Event()

    def renew(database: Database) -> bool:
        asked.set()
        assert held.stopped.wait(60)
        return False

    lease = cast(Lease, SimpleNamespace(seconds=60.0, renew=renew))
    renewal = LeaseRenewal(lease, Settings(), cast(Database, SimpleNamespace(shared=False)))
    renewal._held = held
    renewal.start()
    assert asked.wait(60)
    stopping = threading.Thread(target=renewal.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()
