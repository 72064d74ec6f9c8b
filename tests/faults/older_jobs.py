"""Rows of jobs as an older version of Rowveil has written them."""

from typing import Any

import sqlalchemy as sa

from app.store.sql.bindings import seed_binding
from app.store.sql.models import Job
from tests.faults.conftest import Running


def as_of_revision_2(service: Running, job: Job, **columns: Any) -> Job:
    """Give the row of a job revision 2 of its service and other columns, to which its seed is bound."""
    stores, values = service.jobs._stores, {"revision": 2, **columns}
    with stores.database.write() as session:
        sealed = session.execute(sa.select(Job.sealed_seed).where(Job.id == job.id)).scalar_one()
        seed = stores.sealer.open(sealed, seed_binding(job))
        for name, value in values.items():
            setattr(job, name, value)
        bound = stores.sealer.seal(seed, seed_binding(job))
        session.execute(sa.update(Job).where(Job.id == job.id).values(**values, sealed_seed=bound))
    return job
