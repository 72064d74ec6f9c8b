"""Tables of a new job: buffers, tables of other jobs, retained ones, and those that came with the request."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from app.callers import Caller
from app.errors import Conflict, InvalidRequest, job_not_found
from app.job_kinds import Kind, kind_of
from app.jobs.requests import GivenTable, TableOf
from app.jobs.states import State
from app.jobs.stores import Stores
from app.store.blobs.sealed_files import BlobAccess
from app.store.sql import buffers, jobs
from app.store.sql.audit.trail import Entry
from app.store.sql.bindings import BUFFER, NamedBlob, Role, blob_of_buffer, rows_binding, table_binding
from app.store.sql.db import Transaction
from app.store.sql.models import Job


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns of a job row that identify one of its tables and say where it is stored."""

    digest: str
    fields: list[dict[str, Any]]
    rows: int
    byte_size: int = 0
    blob: BlobAccess | NamedBlob | bytes | None = field(default=None, repr=False)
    """A new blob, one that another row names, or the stream of a small table; None: not known yet."""
    buffer: str | None = None
    reference: str | None = None


class JobTables:
    """Sets the tables of a job's row, within the transaction of its acceptance. Blocking."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def look_up(
        self,
        session: Transaction,
        job: Job,
        tables: Mapping[Role, GivenTable | None],
        caller: Caller,
        first: Job | None,
        of_buffers: Mapping[Role, str],
    ) -> list[Entry]:
        """Set the tables that are named: buffers, tables of other jobs, and retained tables of a first job.

        Returns the lines of the audit log about tables that belong to another owner.
        """
        reads: dict[tuple[str, str], None] = {}
        for role, table in tables.items():
            if isinstance(table, str):
                buffer = buffers.lend(session, table, job.created_at, caller)
                if buffer is None:
                    raise InvalidRequest(f"there is no buffer '{table}'", f"/{role}/buffer")
                given = TableColumns(
                    of_buffers.get(role, buffer.digest),
                    buffer.fields,
                    buffer.row_count,
                    buffer.byte_size,
                    blob_of_buffer(buffer),
                    buffer.id,
                )
                check_same_rows(given, role, first)
                self.set(job, role, given)
                if buffer.owner != caller.owner:
                    reads["buffer.read", buffer.id] = None
            elif isinstance(table, TableOf):
                made = self._attacked_job(session, table.job, caller)
                self.set(job, role, self._table_of(session, made, table.role, job.created_at, caller))
                if made.owner != caller.owner:
                    reads["rows.read", made.id] = None
            elif table is None:
                assert first is not None
                given = table_columns(first, role)
                retained = jobs.retained(session, role, first, job.created_at, caller)
                content = None if retained else self._retained_table(session, role, first)
                if retained is None and content is None and role == "destination":
                    given = self._attacked_again(session, first, job.created_at, caller) or given
                else:
                    given = replace(given, blob=retained or content)
                if given.blob is None:
                    raise Conflict(
                        f"the job's {role} was not retained; give it again: its digest must be {given.digest}"
                    )
                self.set(job, role, given)
                if isinstance(given.blob, NamedBlob) and _is_anothers_buffer(given.blob, caller):
                    reads["buffer.read", given.blob.binding.row] = None
        return [Entry(caller, action, subject, job.id) for action, subject in reads]

    def _attacked_job(self, session: Transaction, job_id: str, caller: Caller) -> Job:
        """Return a swap whose tables another job reads.

        Raises InvalidRequest: no such job is visible, or it has no destination.
        """
        made = jobs.find(session, job_id, caller=caller)
        if made is None:
            raise InvalidRequest(job_not_found(job_id).message, "/job")
        check_has_release(made)
        return made

    def _table_of(
        self, session: Transaction, made: Job, role: Role, now: datetime, caller: Caller
    ) -> TableColumns:
        """Return the source or the destination of a swap. Raises Conflict: it does not have it any more."""
        given = table_columns(made, role)
        retained = jobs.retained(session, role, made, now, caller)
        content = None if retained else self._retained_table(session, role, made)
        if (held := retained or content) is not None:
            return replace(given, byte_size=made.byte_size, blob=held, reference=None)
        if role == "source":
            reason = f"its source was not retained; give it as 'source': its digest must be {given.digest}"
        else:
            reason = "its rows have expired; give the release as 'destination', and leave 'job' out"
        raise Conflict(f"the job does not have the table any more: {reason}", f"/{role}")

    def _attacked_again(
        self, session: Transaction, first: Job, now: datetime, caller: Caller
    ) -> TableColumns | None:
        """Return the release that an attack was made on, while the job that made it still has it."""
        job_id = first.parameters.get("job")
        if kind_of(first.service) is not Kind.ATTACKS or job_id is None:
            return None
        try:
            made = self._attacked_job(session, job_id, caller)
            given = self._table_of(session, made, "destination", now, caller)
        except (InvalidRequest, Conflict):
            return None
        check_same_rows(given, "destination", first)
        return given

    def _retained_table(self, session: Transaction, role: Role, first: Job) -> bytes | None:
        """Return the stream of a small table that the first job's row still holds."""
        sealed = jobs.retained_table(session, role, first.id)
        return None if sealed is None else self._stores.open_value(sealed, rows_binding(first, role))

    def set(self, job: Job, role: Role, given: TableColumns) -> None:
        """Set the columns of one table, with its key or its rows sealed to the job."""
        binding = table_binding(job, role)
        blob: str | None = None
        sealed_key = sealed_rows = None
        if isinstance(given.blob, bytes):
            sealed_rows = self._stores.sealer.seal(given.blob, rows_binding(job, role))
        elif isinstance(given.blob, NamedBlob):
            blob, sealed_key = given.blob.blob, self._stores.move_key(given.blob, binding)
        else:
            assert given.blob is not None
            blob, sealed_key = given.blob.id, self._stores.blobs.seal_key(given.blob, binding)
        job.byte_size += given.byte_size
        if role == "source":
            job.source_digest, job.source_fields, job.row_count = given.digest, given.fields, given.rows
            job.source_blob, job.source_buffer = blob, given.buffer
            job.source_reference, job.sealed_source_key = given.reference, sealed_key
            job.sealed_source = sealed_rows
        elif role == "destination":
            job.destination_digest, job.destination_fields = given.digest, given.fields
            job.destination_rows, job.destination_blob = given.rows, blob
            job.destination_buffer, job.destination_reference = given.buffer, given.reference
            job.sealed_destination_key, job.sealed_destination = sealed_key, sealed_rows
        else:
            job.control_digest, job.control_fields = given.digest, given.fields
            job.control_rows, job.control_blob = given.rows, blob
            job.control_buffer, job.control_reference = given.buffer, given.reference
            job.sealed_control_key, job.sealed_control = sealed_key, sealed_rows


def _is_anothers_buffer(blob: NamedBlob, caller: Caller) -> bool:
    """Return whether the blob belongs to a buffer of another owner."""
    return blob.binding.kind == BUFFER and blob.binding.owner != caller.owner


def check_has_release(job: Job) -> None:
    """Raise InvalidRequest if the job has made no destination."""
    if not kind_of(job.service).has_rows:
        raise InvalidRequest(f"a job of {job.service} has no rows to attack; name a run of a service", "/job")
    if job.state != State.SUCCEEDED:
        raise InvalidRequest(f"the job is {job.state}: only a job that succeeded has a release", "/job")


def table_columns(job: Job, role: Role) -> TableColumns:
    """Return the columns of a table that the job has."""
    if role == "source":
        # The row has the bytes of both tables together; they are counted with the source.
        return TableColumns(
            job.source_digest,
            job.source_fields,
            job.row_count,
            job.byte_size,
            None,
            job.source_buffer,
            job.source_reference,
        )
    if role == "control":
        assert job.control_digest is not None  # looked at before
        assert job.control_fields is not None
        assert job.control_rows is not None
        return TableColumns(
            job.control_digest,
            job.control_fields,
            job.control_rows,
            0,
            None,
            job.control_buffer,
            job.control_reference,
        )
    assert job.destination_digest is not None  # a job that is given it has it from its acceptance on
    assert job.destination_fields is not None
    assert job.destination_rows is not None
    return TableColumns(
        job.destination_digest,
        job.destination_fields,
        job.destination_rows,
        0,
        None,
        job.destination_buffer,
        job.destination_reference,
    )


def check_same_rows(given: TableColumns, role: Role, first: Job | None) -> None:
    """Raise Conflict if a rerun was given another table than the first job's."""
    expected = table_columns(first, role).digest if first is not None else given.digest
    if given.digest != expected:
        raise Conflict(
            f"the {role} is not the job's own: its digest is {given.digest}, expected {expected}", f"/{role}"
        )
