"""Defects that the service once had, or that its comments warn of, to be put back into a simulation.

Each is a list of places and what is put there: see `tests.simulation.modules.simulated`.
"""

import sys
from typing import Any

from app.jobs.acceptance import Acceptance
from app.jobs.maintenance.sweep import Sweeper
from tests.simulation import statements
from tests.simulation.modules import BLOB_ROWS, current_scheduler

Defect = list[tuple[str, Any]]


class _NoRenewal:
    """A lease renewal that nothing runs: the heartbeat renews between its other work."""

    def __init__(self, *args: Any) -> None:
        pass

    def start(self) -> None:
        pass

    resume = stop = start


async def _look_and_renew(heartbeat: Any) -> None:
    """Renew the lease and take over jobs one after the other, as one task did once."""
    lease = heartbeat._stores.lease
    if not await heartbeat._in_thread(lease.renew):
        await heartbeat._dispatcher.drop_all()
        await heartbeat._in_thread(lease.acquire)
    await heartbeat._dispatcher.take_over_stalled(end_leases=True)
    await heartbeat._in_thread(heartbeat._stores.sweep)


def _without_starting(dispatcher: Any) -> Any:
    """Take over jobs that are claimed and not started yet."""

    async def take_over_stalled(end_leases: bool, now: Any = None) -> None:
        takeover = dispatcher._takeover
        taken, ended = await dispatcher._in_thread(takeover.run, end_leases, set(dispatcher._tracked))
        if taken:
            dispatcher.wake()
        if ended:
            dispatcher._sweep_soon()

    return take_over_stalled


_read_first: dict[Any, set[str]] = {}
"""Names that a sweep has read before it lists the folder, by its thread."""


def _sweep_names_first(sweeper: Any) -> bool:
    """Read the blobs that rows name first, and list the folder afterwards."""
    thread = current_scheduler().current_thread()
    with sweeper._database.read() as session:
        _read_first[thread] = statements.all_named(session)
    try:
        return _SWEEP(sweeper)
    finally:
        del _read_first[thread]


_SWEEP = Sweeper.run


def _names_read_first(session: Any) -> set[str]:
    session.step()
    return _read_first[current_scheduler().current_thread()]


def _look_for_key_before(acceptance: Any, *args: Any) -> Any:
    """Look for a key before the transaction that stores it only."""
    return None if sys._getframe(1).f_code.co_name == "_insert" else _MADE_UNDER_KEY(acceptance, *args)


_MADE_UNDER_KEY = Acceptance._made_under_key


def _move_any_claim(
    session: Any, job_id: str, sources: Any, target: str, attempt: int | None = None, **values: Any
) -> bool:
    """End a job whatever its claim is."""
    return bool(statements.move(session, job_id, sources, target, None, **values))


DEFECTS: dict[str, Defect] = {
    "a purge takes everything that is due in one transaction": [
        ("app.jobs.maintenance.retention.BLOB_ROWS", 10**6),
    ],
    "a purge leaves more blobs behind than a sweep takes": [
        ("app.jobs.maintenance.retention.BLOB_ROWS", 3 * BLOB_ROWS)
    ],
    "the renewal of the lease waits for sweeps": [
        ("app.jobs.maintenance.heartbeat.LeaseRenewal", _NoRenewal),
        ("app.jobs.maintenance.heartbeat.Heartbeat._look_after_leases", _look_and_renew),
    ],
    "a sweep reads the named blobs before it lists the folder": [
        ("app.jobs.maintenance.sweep.Sweeper.run", _sweep_names_first),
        ("app.store.sql.jobs.all_named", _names_read_first),
    ],
    "a transaction does not hold the lease that it writes under": [
        ("app.store.sql.replicas.hold", lambda session, replica_ids: None)
    ],
    "a takeover requeues jobs that are being started": [
        (
            "app.jobs.dispatcher.Dispatcher.take_over_stalled",
            lambda dispatcher, end_leases, now=None: _without_starting(dispatcher)(end_leases),
        )
    ],
    "an end is recorded for a claim that another one has followed": [
        ("app.store.sql.jobs.move", _move_any_claim)
    ],
    "a success is recorded after the deadline": [("app.jobs.recorder._is_late", lambda job, now: False)],
    "an idempotency key is not looked for in the transaction that stores it": [
        ("app.jobs.acceptance.Acceptance._made_under_key", _look_for_key_before)
    ],
    "a dead replica's lease is never ended": [
        ("app.store.sql.replicas.remove_expired", lambda session, but, now: ())
    ],
    "a blob is deleted although another row names it": [
        ("app.store.sql.jobs.unnamed", lambda session, blobs: sorted({*blobs} - {None}))
    ],
}
