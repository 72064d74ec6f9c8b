"""Seal the values of older versions to their rows: seeds, reports and the data keys of blobs.

Older versions sealed a value to its place only, and a blob's key to the blob only. So anyone who could write
to the database could give a job to another owner, or name a foreign blob in a row. `Binder.bind` seals what a
row has now to the owner that the row has now; therefore it runs once, at the first start of a version that
binds, and later only as a command of the operator. `Binder.unbind` is for the return to an older version.

Older versions also wrote the owner of a token without its issuer. `Renamer` gives the rows of such owners to
the owners that the same tokens stand for now, or back, and seals their values to these.

Each page is a transaction of its own, so that an interrupted run can be repeated.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.orm import undefer

from app.store.blobs.sealed_files import BlobMissing, BlobStore
from app.store.crypto.sealing import Binding, SealBroken, Sealer, unbound_context, webhook_context
from app.store.sql.bindings import (
    NamedBlob,
    blob_of_buffer,
    blob_of_job,
    message_binding,
    report_binding,
    seed_binding,
    seed_binding_without_terms,
)
from app.store.sql.db import Database, Transaction
from app.store.sql.key_rotation import SEALED_COLUMNS, SealedColumn
from app.store.sql.models import Buffer, Caller, Delivery, IdempotencyKey, Job, Release, Series

REOWNED: Final = "rows.reown"
"""Action in the audit log: owners of tokens got the prefix of their issuer, the subject of the line."""

DISOWNED: Final = "rows.disown"
"""Action in the audit log: the prefix was taken away again, for an older version."""

_PAGE_ROWS = 200

_log = logging.getLogger("rowveil.storage")

R = TypeVar("R", Job, Buffer, Series)

P = TypeVar("P", Job, Buffer, Delivery)


@dataclass(slots=True)
class Resealed:
    """Counts of a run."""

    values: int = 0
    """Values that were sealed again."""
    unopened: int = 0
    """Number of values that did not open, or whose table is missing; they stay unchanged."""
    early_lines: int = 0
    """Lines of the audit log without an HMAC for which a new checkpoint vouches."""


@dataclass(slots=True)
class Renamed:
    """Counts of a renaming of owners."""

    rows: int = 0
    """Jobs, buffers, series and entries of the ledger that have their new owner."""
    unopened: int = 0
    """Jobs, buffers and series with a value that does not open; they stay as they are."""


class Binder:
    """Binds the values of one database to their rows, or undoes that. No service may use the database."""

    def __init__(self, database: Database, sealer: Sealer, blobs: BlobStore) -> None:
        self._database = database
        self._sealer = sealer
        self._blobs = blobs
        self._done = Resealed()

    def bind(self) -> Resealed:
        """Bind every value that is not bound yet."""
        return self._run(self._bind_job, self._bind_buffer, self._bind_message)

    def bind_terms(self) -> Resealed:
        """Seal to their terms the seeds that are bound without; no other value of a job changes.

        The webhooks of pending messages are sealed to these, which is later than terms.
        """
        return self._run(self._bind_job_terms, None, self._bind_message)

    def bind_messages(self) -> Resealed:
        """Seal the webhooks of pending messages to the messages; no other value changes."""
        return self._run(None, None, self._bind_message)

    def unbind_messages(self) -> Resealed:
        """Seal the webhooks of pending messages to their jobs only, as older versions expect them."""
        return self._run(None, None, self._unbind_message)

    def unbind_terms(self) -> Resealed:
        """Seal seeds without terms, as older versions expect them."""
        return self._run(self._unbind_job_terms, None, None)

    def unbind(self) -> Resealed:
        """Seal seeds and reports to their places only, as older versions expect them."""
        return self._run(self._unbind_job, None, None)

    def _run(
        self,
        change_job: Callable[[Job], None] | None,
        change_buffer: Callable[[Buffer], None] | None,
        change_message: Callable[[Delivery], None] | None,
    ) -> Resealed:
        """Change all rows of the tables that have a function, and return the counts."""
        self._done = Resealed()
        self._change(Job, change_job)
        self._change(Buffer, change_buffer)
        self._change(Delivery, change_message)
        self._database.truncate_log()
        return self._done

    def _change(self, model: type[P], change: Callable[[P], None] | None) -> None:
        if change is None:
            return
        for session, rows in self._pages(model):
            for row in rows:
                change(row)
            session.flush()

    def _bind_message(self, message: Delivery) -> None:
        sealed = message.sealed_webhook
        if message.state == "pending" and sealed is not None and not self._sealer.has_terms(sealed):
            old, new = webhook_context(message.job_id), message_binding(message)
            bound = self._sealed(new, lambda: self._sealer.seal(self._sealer.open(sealed, old), new))
            message.sealed_webhook = bound or sealed

    def _unbind_message(self, message: Delivery) -> None:
        sealed = message.sealed_webhook
        if sealed is not None and self._sealer.has_terms(sealed):
            old, new = message_binding(message), webhook_context(message.job_id)
            unbound = self._sealed(old, lambda: self._sealer.seal(self._sealer.open(sealed, old), new))
            message.sealed_webhook = unbound or sealed

    def _bind_job_terms(self, job: Job) -> None:
        if self._sealer.is_bound(job.sealed_seed) and not self._sealer.has_terms(job.sealed_seed):
            old, new = seed_binding_without_terms(job), seed_binding(job)
            job.sealed_seed = self._moved(job.sealed_seed, old, new) or job.sealed_seed

    def _unbind_job_terms(self, job: Job) -> None:
        if self._sealer.has_terms(job.sealed_seed):
            old, new = seed_binding(job), seed_binding_without_terms(job)
            job.sealed_seed = self._moved(job.sealed_seed, old, new) or job.sealed_seed

    def _moved(self, sealed: bytes, old: Binding, new: Binding) -> bytes | None:
        return self._sealed(new, lambda: self._sealer.seal(self._sealer.open(sealed, old), new))

    def _bind_job(self, job: Job) -> None:
        self._bind_job_terms(job)
        if not self._sealer.is_bound(job.sealed_seed):
            job.sealed_seed = self._bound(job.sealed_seed, seed_binding(job)) or job.sealed_seed
        if job.sealed_report is not None and not self._sealer.is_bound(job.sealed_report):
            job.sealed_report = self._bound(job.sealed_report, report_binding(job)) or job.sealed_report
        source, destination = blob_of_job(job, "source"), blob_of_job(job, "destination")
        if source is not None and source.sealed_key is None:
            job.sealed_source_key = self._bound_key(source)
        if destination is not None and destination.sealed_key is None:
            job.sealed_destination_key = self._bound_key(destination)

    def _bind_buffer(self, buffer: Buffer) -> None:
        if buffer.sealed_key is None:
            buffer.sealed_key = self._bound_key(blob_of_buffer(buffer))

    def _unbind_job(self, job: Job) -> None:
        if self._sealer.is_bound(job.sealed_seed):
            has_terms = self._sealer.has_terms(job.sealed_seed)
            binding = seed_binding(job) if has_terms else seed_binding_without_terms(job)
            job.sealed_seed = self._unbound(job.sealed_seed, binding) or job.sealed_seed
        if job.sealed_report is not None and self._sealer.is_bound(job.sealed_report):
            job.sealed_report = self._unbound(job.sealed_report, report_binding(job)) or job.sealed_report

    def _bound(self, sealed: bytes, binding: Binding) -> bytes | None:
        context = unbound_context(binding.purpose, binding.row)
        return self._sealed(binding, lambda: self._sealer.seal(self._sealer.open(sealed, context), binding))

    def _unbound(self, sealed: bytes, binding: Binding) -> bytes | None:
        context = unbound_context(binding.purpose, binding.row)
        return self._sealed(binding, lambda: self._sealer.seal(self._sealer.open(sealed, binding), context))

    def _bound_key(self, named: NamedBlob) -> bytes | None:
        binding = replace(named.binding, blob=named.blob)
        return self._sealed(
            binding,
            lambda: self._sealer.seal(self._blobs.access_by_header(named.blob).data_key, binding),
        )

    def _sealed(self, binding: Binding, seal: Callable[[], bytes]) -> bytes | None:
        """Return the new value; None if the old one cannot be had, which is logged and counted."""
        try:
            value = seal()
        except (BlobMissing, SealBroken) as error:
            _log.error("%s %s is not sealed again: %s", binding.kind, binding.row, error)
            self._done.unopened += 1
            return None
        self._done.values += 1
        return value

    def _pages(self, model: type[P]) -> Iterator[tuple[Transaction, Sequence[P]]]:
        """Yield pages of rows in the order of their ids, each within a transaction of its own."""
        last = ""
        while True:
            query = sa.select(model).where(model.id > last).order_by(model.id).limit(_PAGE_ROWS)
            if model is Job:
                query = query.options(undefer(Job.sealed_seed), undefer(Job.sealed_report))
            with self._database.write() as session:
                rows = session.scalars(query.with_for_update()).all()
                if not rows:
                    return
                yield session, rows
                last = rows[-1].id


class Renamer:
    """Replaces a prefix of owners in all rows. No service may use the database.

    A row gets its owner and its values together, so that an interrupted run can be repeated. A row whose
    values do not open under the owner that it has was changed, or its key is missing: it stays as it is.
    """

    def __init__(self, database: Database, sealer: Sealer, before: str, after: str) -> None:
        self._database = database
        self._sealer = sealer
        self._before = before
        self._after = after

    def is_needed(self) -> bool:
        """Return whether a row has an owner with the prefix."""
        with self._database.read() as session:
            return any(
                session.scalar(sa.select(sa.literal(1)).where(self._concerns(model.owner)).limit(1))
                for model in (Job, Buffer, Series, Release, Delivery, IdempotencyKey, Caller)
            )

    def run(self) -> Renamed:
        """Rename the owners of all rows."""
        done = Renamed()
        self._rename_sealed(Job, done)
        self._rename_sealed(Buffer, done)
        self._rename_sealed(Series, done)
        with self._database.write() as session:
            done.rows += self._rename_plain(session, Release)
            self._rename_plain(session, Delivery)
            self._rename_unique(session, Caller, (Caller.owner,))
            self._rename_unique(session, IdempotencyKey, (IdempotencyKey.owner, IdempotencyKey.key))
        self._database.truncate_log()
        return done

    def _rename_sealed(self, model: type[R], done: Renamed) -> None:
        columns = [column for column in SEALED_COLUMNS if column.key.class_ is model]
        last = ""
        while True:
            query = sa.select(model).where(self._concerns(model.owner), model.id > last)
            query = query.options(*(undefer(column.value) for column in columns))
            query = query.order_by(model.id).limit(_PAGE_ROWS).with_for_update()
            with self._database.write() as session:
                rows = session.scalars(query).all()
                if not rows:
                    return
                last = rows[-1].id
                for row in rows:
                    self._rename(row, columns, done)
                session.flush()

    def _rename(self, row: Job | Buffer | Series, columns: Sequence[SealedColumn], done: Renamed) -> None:
        owner = self._after + row.owner.removeprefix(self._before)
        sealed_again: dict[str, bytes] = {}
        try:
            for column in columns:
                sealed, context = getattr(row, column.value.key), column.context(row)
                if sealed is not None and isinstance(context, Binding):
                    plain = self._sealer.open(sealed, context)
                    sealed_again[column.value.key] = self._sealer.seal(plain, replace(context, owner=owner))
        except SealBroken as error:
            _log.error("%s %s keeps its owner: %s", type(row).__name__.lower(), row.id, error)
            done.unopened += 1
            return
        row.owner = owner
        for name, value in sealed_again.items():
            setattr(row, name, value)
        done.rows += 1

    def _rename_plain(self, session: Transaction, model: type[Release] | type[Delivery]) -> int:
        change = sa.update(model).where(self._concerns(model.owner)).values(owner=self._renamed(model.owner))
        return session.connection().execute(change).rowcount

    def _rename_unique(
        self, session: Transaction, model: type[Caller] | type[IdempotencyKey], key: tuple[Any, ...]
    ) -> None:
        """Rename owners that are part of the primary key; a row that has the new name already remains."""
        table = cast(sa.Table, model.__table__)
        renamed = self._renamed(model.owner)
        taken = sa.select(*key).correlate(None)
        place = sa.tuple_(renamed, *key[1:]) if key[1:] else renamed
        connection = session.connection()
        connection.execute(sa.delete(table).where(self._concerns(model.owner), place.in_(taken)))
        connection.execute(sa.update(table).where(self._concerns(model.owner)).values(owner=renamed))

    def _concerns(self, owner: Any) -> sa.ColumnElement[bool]:
        return sa.func.substr(owner, 1, len(self._before)) == self._before

    def _renamed(self, owner: Any) -> sa.ColumnElement[str]:
        return sa.literal(self._after).concat(sa.func.substr(owner, len(self._before) + 1))
