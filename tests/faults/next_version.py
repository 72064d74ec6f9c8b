"""The next version of the service: another revision of DSWAP, and one more step of the migrations.

``python -m tests.faults.next_version serve`` starts it, with the folder of its migrations in NEXT_MIGRATIONS.
"""

import importlib
import os
import sys
from functools import partial
from pathlib import Path

from app.engine.engine import Outcome
from app.worker.run_job import run_job
from app.worker.tasks import JobTask
from providers import PROVIDERS, numba

NEXT_REVISION = "2026_12_31_next"

NEXT_DSWAP = 99
"""Revision of DSWAP in the next version."""


def become_next() -> None:
    """Give this process the next revision of DSWAP."""
    object.__setattr__(PROVIDERS["DSWAP"], "revision", NEXT_DSWAP)


def run_as_next(task: JobTask) -> Outcome:
    """`run_job` of the next version, in a worker."""
    become_next()
    return run_job(task)


def main() -> int:
    """Run the command line of the next version."""
    numba.leave_out()
    become_next()
    import app.main
    from app.__main__ import main as run
    from app.store.sql import migration, replicas

    migration._migrations = lambda: Path(os.environ["NEXT_MIGRATIONS"])
    migration.NEWEST_REVISION = NEXT_REVISION
    replicas.register.__defaults__ = (NEXT_REVISION,)
    # By its name, since this module is called `__main__` here and not in a worker.
    work = importlib.import_module("tests.faults.next_version").run_as_next
    app.main.JobService = partial(app.main.JobService, work=work)  # type: ignore[attr-defined, assignment]
    return run()


if __name__ == "__main__":
    sys.exit(main())
