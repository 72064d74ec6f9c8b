"""Rows of buffers: their transactions, with limits, idempotency keys and the audit log. Blocking."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from app.callers import Caller
from app.errors import IdempotencyKeyReused, NotFound, Unavailable
from app.ids import new_id
from app.jobs.fairness.limits import Limits
from app.jobs.idempotency import REUSED, Idempotency
from app.jobs.requests import StoredTable, SubmissionOptions
from app.jobs.stores import Stores
from app.store.sql import buffers, idempotency, jobs, usage
from app.store.sql.audit.trail import Entry
from app.store.sql.bindings import buffer_binding
from app.store.sql.db import Transaction
from app.store.sql.jobs import annotate
from app.store.sql.models import Buffer
from app.store.sql.replicas import LeaseLost, moment


class BufferRows:
    """Rows of buffers of any caller."""

    def __init__(self, stores: Stores, limits: Limits, idempotency: Idempotency, seconds: float) -> None:
        """``seconds``: time for which a buffer is kept."""
        self._stores = stores
        self._limits = limits
        self._idempotency = idempotency
        self._seconds = seconds

    def admit(self, submission: SubmissionOptions, caller: Caller) -> bool:
        """Reject a caller at its limit, and return whether its key has a buffer; `_insert` checks both.

        Raises IdempotencyKeyReused, LimitReached, StorageFull.
        """
        with self._stores.database.read() as session:
            now = moment(session)
            self._limits.admit_buffer(session, caller.owner, 1, now)
            is_made = self._of_key(session, submission, caller, now) is not None
        if not is_made:
            self._stores.database.check_space()
        return is_made

    def receiving(self, caller: Caller, declared: int) -> AbstractContextManager[None]:
        """Count the declared bytes of an upload while the block lasts. Raises LimitReached."""
        return self._limits.upload_of(caller.owner, declared)

    def made_by_earlier_request(self, submission: SubmissionOptions, caller: Caller) -> Buffer:
        """Return the buffer made under the key. Raises IdempotencyKeyReused, Unavailable."""
        with self._stores.database.read() as session:
            buffer = self._made_under_key(session, submission, caller, moment(session))
        if buffer is None:
            raise Unavailable(
                "the buffer that was made under this Idempotency-Key has just expired or been "
                "deleted; send the request again"
            )
        return buffer

    def _made_under_key(
        self, session: Transaction, submission: SubmissionOptions, caller: Caller, now: datetime
    ) -> Buffer | None:
        """Return the buffer that an equal request has made. Raises IdempotencyKeyReused."""
        buffer = self._of_key(session, submission, caller, now)
        if buffer is not None:
            self._idempotency.resource(session, caller.owner, submission, now)
        return buffer

    def _of_key(
        self, session: Transaction, submission: SubmissionOptions, caller: Caller, now: datetime
    ) -> Buffer | None:
        """Return the buffer made under the key by any request; None also if it has expired.

        Raises IdempotencyKeyReused: the key has a job, which a buffer would take it from.
        """
        made = self._idempotency.resource_of_any_request(session, caller.owner, submission, now)
        if made is None:
            return None
        # Visible to the caller only: a changed row of the key could name another's buffer.
        buffer = buffers.find(session, made, now, caller)
        if buffer is None and jobs.find(session, made, caller=caller) is not None:
            raise IdempotencyKeyReused(REUSED)
        return buffer

    def insert(
        self,
        stored: StoredTable,
        annotations: Mapping[str, str | None],
        submission: SubmissionOptions,
        caller: Caller,
        copied: str | None,
    ) -> Buffer:
        """Insert the buffer of a stored table, or return the buffer of an earlier equal request.

        ``copied`` is the id of the buffer that was copied.
        Raises IdempotencyKeyReused, LimitReached, Unavailable.
        """
        buffer = Buffer(
            id=new_id(),
            owner=caller.owner,
            project=caller.project,
            digest=stored.digest,
            fields=stored.fields,
            row_count=stored.rows,
            byte_size=stored.byte_size,
            blob=stored.blob,
            **annotations,
        )
        buffer.sealed_key = self._stores.blobs.seal_key(stored.access, buffer_binding(buffer))
        try:
            with self._stores.database.write() as session:
                created = buffer.created_at = moment(session)
                buffer.expires_at = created + timedelta(seconds=self._seconds)
                usage.lock(session, buffer.owner, created)
                known = self._made_under_key(session, submission, caller, created)
                if known is not None:  # a concurrent request made it
                    return known
                self._limits.admit_buffer(session, buffer.owner, buffer.byte_size, created)
                self._stores.claim_blobs(session, [buffer.blob])
                session.add(buffer)
                self._idempotency.keep(session, buffer.owner, submission, buffer.id, created)
                lines = [Entry(caller, "buffer.create", buffer.id, copied)]
                if copied is not None:  # rows of the other buffer, which the caller can read now
                    lines.insert(0, Entry(caller, "buffer.read", copied))
                self._stores.audit.append_all(session, lines, created)
        except LeaseLost as error:
            raise Unavailable(str(error)) from None
        self._stores.mark_named([buffer.blob])
        return buffer

    def find(self, buffer_id: str, caller: Caller) -> Buffer:
        """Return the buffer. Raises NotFound, also if it has expired or is not visible to the caller."""
        with self._stores.database.read() as session:
            buffer = buffers.find(session, buffer_id, moment(session), caller)
        if buffer is None:
            raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
        return buffer

    def annotate(self, buffer_id: str, changes: Mapping[str, str | None], caller: Caller) -> None:
        """Change the columns; the line in the audit log has none of the texts. Raises NotFound."""
        self.find(buffer_id, caller)
        self._stores.database.check_space()
        with self._stores.database.write() as session:
            if not annotate(session, Buffer, buffer_id, changes):
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
            self._stores.audit.append(session, caller, "buffer.annotate", buffer_id, moment(session))
        self._stores.database.truncate_log()  # it has the texts that were replaced

    def delete(self, buffer_id: str, caller: Caller) -> None:
        """Delete the buffer, and its table unless another row names it. Raises NotFound."""
        self.find(buffer_id, caller)
        with self._stores.database.write() as session:
            unnamed = buffers.delete(session, buffer_id)
            if unnamed is None:
                raise NotFound(f"there is no buffer '{buffer_id}'; a buffer is deleted at its expiry")
            idempotency.forget(session, [buffer_id])
            self._stores.audit.append(session, caller, "buffer.delete", buffer_id, moment(session))
        self._stores.delete_blobs(unnamed)
        self._stores.database.truncate_log()
