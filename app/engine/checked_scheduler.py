"""Dask's scheduler with checked roles: ``python -m app.engine.checked_scheduler``, with its usual options."""

from typing import Any

from distributed import Security
from distributed.cli import dask_scheduler

from app.engine.certificate_roles import SCHEDULER, CheckedSecurity
from app.engine.dask_logs import keep_no_messages


def _security(**files: Any) -> Security:
    if "tls_ca_file" not in files:
        return Security(**files)  # type: ignore[no-untyped-call]
    return CheckedSecurity(SCHEDULER, **files)


def main() -> None:
    """Run the scheduler until it is ended."""
    keep_no_messages()
    vars(dask_scheduler)["Security"] = _security  # its command makes one of its options
    dask_scheduler.main()


if __name__ == "__main__":
    main()
