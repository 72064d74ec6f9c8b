"""A service to be killed: takes two held jobs on the home it is given, and says when one of them runs.

Both are runs of a service or, if a frontier is requested, the second is a table to be judged.

Each worker imports the main module of its service again, so this one imports what a service needs later.
"""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.jobs.service import NewJob


def _new_jobs(kind: str) -> "tuple[NewJob, ...]":
    from providers import PROVIDERS
    from tests.faults import doings
    from tests.faults.new_jobs import new_frontier, new_job, new_measures, people

    if kind in PROVIDERS:
        return tuple(new_job(people(), service=kind, seed=doings.HELD) for _ in range(2))
    judged = new_measures(people(), people(), seed=doings.HELD)
    return new_frontier(people(), seed=doings.HELD), judged


async def main(home: Path, kind: str) -> None:
    """Print ``<running job> <queued job> <worker>`` and wait to be killed."""
    from app.jobs.service import JobService
    from tests.faults import doings
    from tests.faults.new_jobs import settings_of

    jobs = JobService(settings_of(home, workers=1), doings.swap_as_instructed)
    await jobs.start()
    accepted = [await jobs.submit(new) for new in _new_jobs(kind)]
    async for _, progress in jobs.updates(accepted[0].id):
        if progress.stage == doings.STAGE_HELD:
            print(*(job.id for job in accepted), progress.pid, flush=True)
            break
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
