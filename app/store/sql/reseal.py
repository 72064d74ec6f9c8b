"""Seal the values of older versions to their rows: seeds, reports and the data keys of blobs.

Older versions sealed a value to its place only, and a blob's key to the blob only. So anyone who could write
to the database could give a job to another owner, or name a foreign blob in a row. `Binder.bind` seals what a
row has now to the owner that the row has now; therefore it runs once, at the first start of a version that
binds, and later only as a command of the operator. `Binder.unbind` is for the return to an older version.

Each page is a transaction of its own, so that an interrupted run can be repeated.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import undefer

from app.store.blobs.sealed_files import BlobMissing, BlobStore
from app.store.crypto.sealing import Binding, SealBroken, Sealer, unbound_context
from app.store.sql.bindings import NamedBlob, blob_of_buffer, blob_of_job, report_binding, seed_binding
from app.store.sql.db import Database, Transaction
from app.store.sql.models import Buffer, Job

_PAGE_ROWS = 200

_log = logging.getLogger("rowveil.storage")

R = TypeVar("R", Job, Buffer)


@dataclass(slots=True)
class Resealed:
    """Counts of a run."""

    values: int = 0
    """Values that were sealed again."""
    unopened: int = 0
    """Values that did not open, or whose table is missing; they stay as they are."""


class Binder:
    """Binds the values of one database to their rows, or undoes that. No service may use the database."""

    def __init__(self, database: Database, sealer: Sealer, blobs: BlobStore) -> None:
        self._database = database
        self._sealer = sealer
        self._blobs = blobs
        self._done = Resealed()

    def bind(self) -> Resealed:
        """Bind every value that is not bound yet."""
        return self._run(self._bind_job, self._bind_buffer)

    def unbind(self) -> Resealed:
        """Seal seeds and reports to their places only, as older versions expect them."""
        return self._run(self._unbind_job, lambda _: None)

    def _run(self, change_job: Callable[[Job], None], change_buffer: Callable[[Buffer], None]) -> Resealed:
        self._done = Resealed()
        for session, jobs in self._pages(Job):
            for job in jobs:
                change_job(job)
            session.flush()
        for session, buffers in self._pages(Buffer):
            for buffer in buffers:
                change_buffer(buffer)
            session.flush()
        self._database.truncate_log()
        return self._done

    def _bind_job(self, job: Job) -> None:
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
            job.sealed_seed = self._unbound(job.sealed_seed, seed_binding(job)) or job.sealed_seed
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

    def _pages(self, model: type[R]) -> Iterator[tuple[Transaction, Sequence[R]]]:
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
