"""Digest of a source in the form in which it may have been released, before or after an upgrade."""

import pyarrow as pa

from app.callers import Caller
from app.jobs.releases.policy import policy_of
from app.jobs.releases.recording import releases_rows
from app.jobs.requests import GivenTable, StoredTable
from app.jobs.stores import Stores
from app.jobs.tables.digests import digest_of_given, find_buffer
from app.settings import Settings
from app.store.sql import ledger
from app.store.sql.models import Job
from providers.tables.digest import form_of, other_form


def other_source_digest(
    stores: Stores, settings: Settings, job: Job, source: GivenTable, caller: Caller
) -> str | None:
    """Return the digest of the source in the other form; None if no release can have that digest.

    It is computed only if a policy asks for the releases of the source, and if a source with as many rows was
    released under a digest of the other form. Blocking: it reads the whole source.
    """
    if policy_of(settings, job.project) in ("allow", "warn") or not releases_rows(job):
        return None
    form = stores.lease.digest_form
    if isinstance(source, pa.Table):
        rows = source.num_rows
    elif isinstance(source, StoredTable):
        rows, form = source.rows, form_of(source.digest)
    else:
        buffer = find_buffer(stores, source, caller) if isinstance(source, str) else None
        if buffer is None:
            return None
        rows, form = buffer.row_count, form_of(buffer.digest)
    other = other_form(form)
    with stores.database.read() as session:
        if not ledger.has_digests(session, job, rows, other):
            return None
    return digest_of_given(stores, source, other, caller)
