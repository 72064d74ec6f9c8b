"""Dask's scheduler with checked roles: ``python -m app.engine.checked_scheduler``, with its usual options."""

from typing import Any

import dask
from distributed import Security
from distributed.cli import dask_scheduler

from app.engine.certificate_roles import SCHEDULER, CheckedSecurity
from app.engine.dask_logs import keep_no_messages

_WORKER_TTL = "60s"
"""Time after which a worker that sends no heartbeat is removed, and its tasks start on others.

Only the child processes of a worker compute: its own process answers at once, unless it is frozen. Dask looks
at the workers once in this time, so that the removal takes up to twice as long. Its default is five minutes.
"""


def remove_silent_workers_soon() -> None:
    """Set the time after which silent workers are removed, unless Dask's configuration has one."""
    dask.config.update_defaults({"distributed": {"scheduler": {"worker-ttl": _WORKER_TTL}}})


def _security(**files: Any) -> Security:
    if "tls_ca_file" not in files:
        return Security(**files)  # type: ignore[no-untyped-call]
    return CheckedSecurity(SCHEDULER, **files)


def main() -> None:
    """Run the scheduler until it is ended."""
    keep_no_messages()
    remove_silent_workers_soon()
    vars(dask_scheduler)["Security"] = _security  # its command makes one of its options
    dask_scheduler.main()


if __name__ == "__main__":
    main()
