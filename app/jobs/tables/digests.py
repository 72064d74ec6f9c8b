"""Digests of stored and given tables in a given form, to compare them with digests of another form."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from app.callers import Caller
from app.jobs.requests import GivenTable, StoredTable
from app.jobs.stores import Stores
from app.store.blobs.column_reader import digest_of_blob
from app.store.blobs.sealed_files import BlobMissing
from app.store.sql import buffers
from app.store.sql.bindings import Role, blob_of_buffer
from app.store.sql.models import Buffer
from app.store.sql.replicas import moment
from providers.tables.digest import DigestForm, form_of, table_digest


def digest_of_given(stores: Stores, table: GivenTable, form: DigestForm, caller: Caller) -> str | None:
    """Return the digest of a table of a request; None: a buffer that is not there, or a job's table.

    Blocking: the whole table is read unless its digest of this form is known.
    """
    if isinstance(table, pa.Table):
        return table_digest(table, form)
    if isinstance(table, StoredTable):
        return table.digest if form_of(table.digest) is form else digest_of_blob(table.access, form)
    buffer = find_buffer(stores, table, caller) if isinstance(table, str) else None
    try:
        return None if buffer is None else digest_of_buffer(stores, buffer, form)
    except BlobMissing:  # it has expired just now
        return None


def digest_of_buffer(stores: Stores, buffer: Buffer, form: DigestForm) -> str:
    """Return the digest of a buffer; its table is read if its own has another form. Raises BlobMissing."""
    if form_of(buffer.digest) is form:
        return buffer.digest
    return digest_of_blob(stores.open_blob(blob_of_buffer(buffer)), form)


def find_buffer(stores: Stores, buffer_id: str, caller: Caller) -> Buffer | None:
    """Return the buffer; None if none is visible to the caller."""
    with stores.database.read() as session:
        return buffers.find(session, buffer_id, moment(session), caller)


def in_forms(
    stores: Stores,
    tables: Mapping[Role, GivenTable | None],
    expected: Mapping[Role, str],
    caller: Caller,
) -> tuple[dict[Role, GivenTable | None], dict[Role, str]]:
    """Give stored tables of a request the digests that can be compared with those of an earlier job.

    Parameters
    ----------
    stores : Stores
    tables : mapping of str to GivenTable or None
        Table of each role.
    expected : mapping of str to str
        Digest of the earlier job's table of each role.
    caller : Caller

    Returns
    -------
    tuple of dict and dict
        The tables, and the digest of each buffer whose own digest has another form.
    """
    given, of_buffers = dict(tables), dict[Role, str]()
    for role, table in tables.items():
        form = form_of(expected[role])
        if isinstance(table, StoredTable) and form_of(table.digest) is not form:
            given[role] = replace(table, digest=digest_of_blob(table.access, form))
        elif isinstance(table, str):
            digest = digest_of_given(stores, table, form, caller)
            if digest is not None:
                of_buffers[role] = digest
    return given, of_buffers
