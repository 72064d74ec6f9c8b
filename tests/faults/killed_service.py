"""A service to be killed: takes two held jobs on the home it is given, and says when one of them runs."""

import asyncio
import sys
from pathlib import Path

from app.api.formats import open_table
from app.jobs.service import JobService
from tests.faults import doings
from tests.faults.conftest import new_job, people, settings_of


async def main(home: Path) -> None:
    """Print ``<running job> <queued job> <worker>`` and wait to be killed."""
    jobs = JobService(settings_of(home, workers=1), open_table, doings.swap_as_told)
    await jobs.start()
    accepted = [await jobs.submit(new_job(people(), seed=doings.HELD)) for _ in range(2)]
    async for _, progress in jobs.updates(accepted[0].id):
        if progress.stage == doings.STAGE_HELD:
            print(*(job.id for job in accepted), progress.pid, flush=True)
            break
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
