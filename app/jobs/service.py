"""The life of jobs and buffers, as the HTTP routes and the command line use it."""

import asyncio
import copy
import json
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any, ParamSpec, Self, TypeVar

import pyarrow as pa

from app.callers import THE_SERVICE, Caller
from app.engine.cluster import cluster_of
from app.engine.embedded import EmbeddedEngine
from app.engine.engine import Engine, Progress, TaskFunction
from app.engine.progress import read_progress
from app.engine.worker import WorkerSetup
from app.errors import Forbidden, Gone, NotFound, StateConflict, Unavailable
from app.jobs.accept import Acceptance, NewJob
from app.jobs.api_keys import ApiKeys
from app.jobs.buffers import Buffers, Upload
from app.jobs.changes import Changes
from app.jobs.deliver import Deliverer
from app.jobs.dispatch import Dispatcher
from app.jobs.ends import Ends
from app.jobs.idempotency import Idempotency
from app.jobs.identity import job_of_token, new_id, token_of_job
from app.jobs.kinds import kind_of, tables_given
from app.jobs.limits import Limits
from app.jobs.plans import Plans
from app.jobs.presence import Presence
from app.jobs.purge import Purge
from app.jobs.references import References
from app.jobs.sample import Sample
from app.jobs.sending import Sending
from app.jobs.states import State, Step, after, outcome_of
from app.jobs.stores import Stores
from app.jobs.tables import GivenTable, SendTo, StoredTable
from app.jobs.tasks import OpenTable, StreamTable
from app.jobs.terms import PLAIN, Terms
from app.jobs.webhooks import tell_webhook
from app.jobs.work import run_job
from app.settings import Settings
from app.store import idempotency, jobs
from app.store.audit import head_of
from app.store.audit_anchor import keep_anchor
from app.store.blobs import BlobMissing
from app.store.db import DatabaseAway
from app.store.models import Buffer, Job
from app.store.replicas import moment
from app.store.seal import report_context, seed_context
from app.store.tables import TableReader, read_table
from app.telemetry import tracing
from app.telemetry.metrics import Metrics
from providers.params import StrictModel

__all__ = ["JobService", "NewJob"]

P = ParamSpec("P")
T = TypeVar("T")

Decode = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]

_log = logging.getLogger("rowveil.jobs")

_LOOK_SECONDS = 0.25
_THREADS = 8
_PURGES_A_SWEEP = 10
_HEALTH_SECONDS = 5.0
_DATABASE_SECONDS = 30.0
"""For which a database server is waited for at the start."""
_TRY_AGAIN_SECONDS = 0.5
_PROBE_BYTES = 2**16


def _engine_of(settings: Settings, setup: WorkerSetup) -> Engine:
    if settings.engine == "local":
        return EmbeddedEngine(settings.workers, setup, settings.job_time_limit)
    from app.engine.distributed import DaskEngine

    return DaskEngine(cluster_of(settings), setup, settings.job_time_limit)


class JobService:
    """Everything that can be done with jobs. Made anywhere; used within one event loop.

    What is done is done on behalf of the service itself, or of the caller that `on_behalf_of` names.
    """

    def __init__(
        self,
        settings: Settings,
        open_table: OpenTable,
        stream_table: StreamTable,
        work: TaskFunction = run_job,
        metrics: Metrics | None = None,
    ) -> None:
        """``open_table``: how an upload is read; called in a worker. ``stream_table``: how one is written.

        ``work``: what a worker does with a job; another one is for tests that must hold a job up.
        """
        self._settings = settings
        self.metrics = metrics if metrics is not None else Metrics()
        self._open_table = open_table
        self._stream_table = stream_table
        self._work = work
        self._caller = THE_SERVICE

    def on_behalf_of(self, caller: Caller) -> Self:
        """The same service, for one caller: others' jobs and buffers are not there for it."""
        mine = copy.copy(self)
        mine._caller = caller
        return mine

    async def start(self) -> None:
        """Open the stores, take up the work that was left, and bring up the workers.

        A database server that is not there yet, or goes away meanwhile, is waited for.

        Raises HomeInUse, KeyUnreadable, DatabaseUnusable, ReplicasDiffer, Unavailable.
        """
        settings = self._settings
        self._threads = ThreadPoolExecutor(_THREADS, "rowveil")
        self._changes = Changes()
        self._stores = await _once_there(lambda: asyncio.to_thread(Stores.open, settings))
        setup = WorkerSetup(
            settings.worker_threads,
            settings.worker_memory_bytes,
            preload=(
                *("app.jobs.ingest", "app.jobs.work", self._open_table.__module__),
                *(tracing.PRELOAD if tracing.wanted() else ()),
            ),
            warm="providers.warm:warm" if settings.warm_workers else "",
        )
        self._engine = _engine_of(settings, setup)
        self.api_keys = ApiKeys(self._stores.database, self._stores.audit)
        limits = Limits(settings, self.metrics)
        keys = Idempotency(self._stores.sealer, settings.idempotency_ttl)
        self._acceptance = Acceptance(settings, self._stores, limits, keys)
        self._buffers = Buffers(
            settings,
            self._stores,
            self._engine,
            self._threads,
            self._open_table,
            limits,
            keys,
            self.metrics,
        )
        self._references = References(settings)
        self._sending = Sending(settings, self._references, self._stream_table)
        self._plans = Plans(settings, self._stores, self._engine, self._threads)
        self._purge = Purge(settings, self._stores, self.metrics)
        self._deliverer = Deliverer(settings, self._stores, self._threads, self.metrics)
        self._ends = Ends(self.metrics, self._deliverer.wake)
        self._dispatcher = Dispatcher(
            self._stores,
            self._engine,
            self._sending,
            self._changes,
            self._threads,
            self._work,
            settings,
            self._ends,
        )
        self._presence = Presence(self._stores, self._changes, self._dispatcher)
        await _once_there(self._presence.start)
        await self._dispatcher.start()
        await self._engine.start()
        self._deliverer.start()
        self._purging = asyncio.create_task(self._purge_now_and_then())

    def begin_closing(self) -> None:
        """Claim no more, and keep nobody waiting: callers are told how their jobs are now."""
        if not self._changes.closing:
            self._closing_since = time.monotonic()
        self._dispatcher.claim_no_more()
        self._changes.tell_all()

    async def close(self) -> None:
        """Claim no more, give running jobs their grace, put the rest back, and let go of everything."""
        self.begin_closing()
        self._purging.cancel()
        await asyncio.wait([self._purging])
        gone_by = time.monotonic() - self._closing_since  # while callers were still being answered
        await self._dispatcher.stop(max(0.0, self._settings.shutdown_grace - gone_by))
        await self._engine.close()
        self._sending.close()
        self._references.close()
        await self._deliverer.stop()
        await self._in_thread(self._anchor_audit)
        await self._presence.stop()
        await asyncio.to_thread(self._threads.shutdown)
        self._stores.close()

    async def health(self) -> dict[str, str]:
        """Dependency -> ``ok``, or what is wrong with it."""
        checks = {"database": self._touch_database, "storage": self._touch_storage}
        results = {}
        for name, check in checks.items():
            try:
                async with asyncio.timeout(_HEALTH_SECONDS):
                    await asyncio.to_thread(check)  # whose threads nobody else keeps busy
                results[name] = "ok"
            except Exception as error:
                _log.error("%s is not available: %s", name, type(error).__qualname__)
                results[name] = "not available"
        results["workers"] = "ok" if self._engine.ready() else "starting"
        return results

    # --------------------------------------------------------------------------------------- a job's life

    async def submit(self, new: NewJob) -> Job:
        """The job, accepted: it runs whatever becomes of this process.

        Raises IdempotencyKeyReused, InvalidRequest (no such buffer), LimitReached, TooLarge.
        """
        return await self._accepted(lambda job_id: self._acceptance.accept(job_id, new, self._caller))

    async def accepted_before(self, terms: Terms) -> Job | None:
        """The job that this very request made before. Raises IdempotencyKeyReused."""
        if terms.idempotency_key is None:
            return None
        return await self._in_thread(self._acceptance.accepted_before, terms, self._caller)

    async def rerun(
        self,
        job_id: str,
        source: GivenTable | None = None,
        destination: GivenTable | None = None,
        send_to: SendTo | None = None,
        terms: Terms = PLAIN,
    ) -> Job:
        """A new job with the same parameters and the same seed, on the same rows.

        Raises NotFound, StateConflict (it has not ended, or its revision is gone), Conflict (a table is
        another, or is needed), InvalidRequest (a destination for a job that makes its own); and as `submit`.
        """
        again, caller = self._acceptance.accept_again, self._caller
        return await self._accepted(
            lambda new: again(new, job_id, source, destination, send_to, terms, caller)
        )

    async def wait(self, job_id: str, seconds: float) -> Job:
        """The job when it has ended, or as it is after so many seconds. Raises NotFound."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self._changes.watch(job_id) as changed:
            while True:
                if not self._changes.is_expected(job_id):
                    job = await self._get_by(job_id, deadline)
                    if job.ended:
                        return job
                if not await changed.ends_within(deadline - loop.time()) or self._changes.closing:
                    return await self.get(job_id)

    async def updates(self, job_id: str) -> AsyncIterator[tuple[Job, Progress]]:
        """The job and its progress now and at every change, up to its end. Raises NotFound."""
        with self._changes.watch(job_id) as changed:
            job = await self.get(job_id)
            last: tuple[str, Progress] | None = None
            while True:
                progress = self._progress(job)
                if progress is None:  # it has not begun, or has just ended, which is about to be told
                    progress = last[1] if last is not None and last[0] == job.state else Progress()
                if (job.state, progress) != last:
                    last = (job.state, progress)
                    yield job, progress
                if job.ended or self._changes.closing:
                    return
                if await changed.within(_LOOK_SECONDS):
                    job = await self._get_by(job_id, inf)

    async def cancel(self, job_id: str) -> Job:
        """The job, cancelled; its worker, if it had one, is stopped.

        Raises NotFound, Forbidden, StateConflict (it has succeeded or failed), Unavailable (the replica
        that works on it does not answer; it is stopped as soon as it does).
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * self._settings.lease_seconds  # by then a dead replica's job is taken up
        asked = False
        while True:
            job = await self._to_change(job_id)
            if job.state == State.CANCELLED:
                return job
            if job.ended:
                raise StateConflict(f"the job has {job.state} already; there is nothing to cancel")
            if loop.time() > deadline:
                raise Unavailable("the job has been told to stop, and has not yet; ask again")
            if not asked:
                await self._in_thread(self._note, "job.cancel", job_id)
                asked = True
            if job.state == State.RUNNING:
                await self._stop(job)
            elif await self._in_thread(self._cancel_queued, job):
                self._changes.tell(job_id, ended=True)

    async def delete(self, job_id: str) -> None:
        """Purge everything of the job but its audit. Raises NotFound, Forbidden, StateConflict."""
        job = await self._to_change(job_id)
        if not job.ended or not await self._in_thread(self._delete_ended, job):
            raise StateConflict(f"the job is {job.state}: cancel it first, then it can be deleted")

    # ------------------------------------------------------------------------------------ what is known

    async def get(self, job_id: str) -> Job:
        """The job. Raises NotFound."""
        return await self._in_thread(self._find, job_id)

    async def list(
        self, state: str | None, service: str | None, page_size: int, page_token: str | None = None
    ) -> tuple[Sequence[Job], str | None]:
        """A page of jobs, newest first, and the token of the next. Raises InvalidRequest (the token)."""
        before = job_of_token(page_token) if page_token is not None else None
        found = await self._in_thread(self._newest, state, service, page_size + 1, before)
        page = found[:page_size]
        return page, token_of_job(page[-1].id) if len(found) > page_size else None

    async def look(self, job_id: str) -> tuple[Job, Progress]:
        """The job, and how far it is. Raises NotFound."""
        job = await self.get(job_id)
        if self._progress(job) is None:  # it has not begun, or has ended since it was found
            job = await self.get(job_id)
        return job, self.progress(job)

    def progress(self, job: Job) -> Progress:
        """How far the job is; untold where that is not known."""
        return self._progress(job) or Progress()

    async def report(self, job_id: str) -> dict[str, Any]:
        """The report. Raises NotFound (none was asked for), StateConflict."""
        job = await self._succeeded(job_id, "sealed_report")
        if job.sealed_report is None:
            raise NotFound("the job was run with report 'none'")
        return await self._in_thread(self._open_report, job.id, job.sealed_report)

    async def manifest(self, job_id: str) -> dict[str, Any]:
        """``{"manifest": ..., "signature": ...}``. Raises NotFound, StateConflict."""
        job = await self._succeeded(job_id, "manifest")
        assert job.manifest is not None  # written with the success
        await self._in_thread(self._note, "manifest.read", job_id)
        return job.manifest

    async def with_destination(self, job_id: str) -> Job:
        """The job, whose destination buffer is there. Raises NotFound, StateConflict, Gone."""
        job = await self.get(job_id)
        if not kind_of(job.service).has_rows:
            raise NotFound(f"a {job.service} job gives no rows: its result is its report")
        job = await self._succeeded(job_id)
        _kept(job)
        return job

    async def destination(self, job_id: str) -> pa.Table:
        """The destination buffer, whole. Raises NotFound, StateConflict, Gone (its time is over)."""
        return await self.destination_of(await self.with_destination(job_id))

    async def destination_of(self, job: Job) -> pa.Table:
        """The destination buffer, whole, of a job that has succeeded. Raises Gone (its time is over)."""
        blob = _kept(job)
        return await self._in_thread(lambda: read_table(self._stores.blobs.access(blob)))

    async def open_destination(self, job: Job) -> TableReader:
        """The destination buffer of a job that has one, to be read in bounded memory and closed."""
        return await self._in_thread(self._open, str(job.destination_blob), "rows.read", job.id)

    async def seed(self, job_id: str, reason: str) -> tuple[Job, str]:
        """The job and its seed in hex: a secret, read under audit for a reason. Raises NotFound."""
        return await self._in_thread(self._open_seed, job_id, reason)

    async def plan(self, service: str, params: StrictModel, source: GivenTable) -> dict[str, Any]:
        """What a run would do (`providers.provider.Plan`); stores nothing.

        Raises ProviderError, InvalidRequest (no such buffer), Unavailable (no worker is free).
        """
        return await self._plans.plan(service, params, source, self._caller)

    # ---------------------------------------------------------------------------------------- buffers

    async def create_buffer(
        self,
        chunks: AsyncIterator[bytes],
        described: str | Callable[[], Upload],
        gone: Callable[[], Awaitable[None]] | None = None,
        terms: Terms = PLAIN,
    ) -> Buffer:
        """See `Buffers.create`; a media type stands for an upload of that type without options."""
        if isinstance(described, str):
            media_type = described
            return await self._buffers.create(chunks, lambda: Upload(media_type), gone, terms, self._caller)
        return await self._buffers.create(chunks, described, gone, terms, self._caller)

    async def get_buffer(self, buffer_id: str) -> Buffer:
        """See `Buffers.get`."""
        return await self._buffers.get(buffer_id, self._caller)

    async def open_buffer(self, buffer: Buffer) -> TableReader:
        """The buffer's rows, to be read in bounded memory and closed."""
        return await self._in_thread(self._open, buffer.blob, "buffer.read", buffer.id)

    async def delete_buffer(self, buffer_id: str) -> None:
        """See `Buffers.delete`."""
        await self._buffers.delete(buffer_id, self._caller)

    # --------------------------------------------------------------------------------------- references

    async def read_reference(
        self, reference: str, upload: Upload, decode: Decode, gone: Callable[[], Awaitable[None]]
    ) -> StoredTable:
        """The table that the reference names, in the store under no name: let it go in the end.

        Parameters
        ----------
        reference : s3://bucket/key or file:///path
        upload : what is found there
        decode : what the bytes are passed through, such as what undoes a compression
        gone : returns when nobody waits for the table any more

        Raises
        ------
        InvalidRequest (it may not be read, or is not there), ReferenceUnavailable, and as `create_buffer`
        """
        self._references.find(reference, "source")
        stored = await self._buffers.read(decode(self._references.chunks(reference)), upload, gone)
        return replace(stored, reference=reference)

    async def let_go(self, stored: StoredTable) -> None:
        """Delete what was read by reference, unless a job has taken it."""
        await self._in_thread(self._buffers.let_go, stored)

    async def check_destination(self, reference: str) -> None:
        """Raise InvalidRequest where no destination may be written."""
        await self._references.check_destination(reference)

    async def purge(self) -> None:
        """Remove everything whose time is over."""
        await self._in_thread(self._purge.run)

    async def sampled_metrics(self) -> bytes:
        """The metrics as text, with what is looked up for the occasion."""
        return await self._in_thread(Sample(self._settings, self._stores, self._engine, self.metrics).text)

    # ---------------------------------------------------------------------- one transaction each, blocking

    def _note(self, action: str, subject: str) -> None:
        with self._stores.database.write() as session:
            self._stores.audit.append(session, self._caller, action, subject, moment(session))

    def _open(self, blob: str, action: str, subject: str) -> TableReader:
        self._note(action, subject)
        try:
            return TableReader(self._stores.blobs.access(blob))
        except BlobMissing:  # deleted, or expired, this moment
            raise NotFound("the rows have gone this moment") from None

    def _find(self, job_id: str, *deferred: str) -> Job:
        with self._stores.database.read() as session:
            job = jobs.find(session, job_id, *deferred, caller=self._caller)
        if job is None:
            raise NotFound(f"there is no job '{job_id}'")
        return job

    def _newest(
        self, state: str | None, service: str | None, limit: int, before: str | None
    ) -> Sequence[Job]:
        with self._stores.database.read() as session:
            return jobs.newest(session, state, service, limit, before, self._caller)

    def _cancel_queued(self, job: Job) -> bool:
        ended = after(State.QUEUED, Step.CANCEL)
        given = tables_given(job)
        kept = {} if job.retain_source else {f"{role}_blob": None for role in given}
        with self._stores.database.write() as session:
            values = {"finished_at": moment(session), "outcome": outcome_of(ended, {})}
            queued = [State.QUEUED]  # a running one has a worker to be stopped first
            moved = jobs.move(session, job.id, queued, ended, job.attempt, **values, **kept)
            if moved:
                tell_webhook(session, job, ended, values)
            unnamed = jobs.unnamed(session, given.values()) if moved else []
        if moved:
            self._ends.tell(job, ended, values)
        self._stores.delete_blobs(unnamed)
        return moved

    def _request_cancel(self, job_id: str) -> None:
        with self._stores.database.write() as session:
            jobs.request_cancel(session, job_id)

    def _delete_ended(self, job: Job) -> bool:
        with self._stores.database.write() as session:
            deleted = jobs.delete_ended(session, job.id)
            unnamed = jobs.unnamed(session, [job.source_blob, job.destination_blob]) if deleted else []
            if deleted:
                idempotency.forget(session, [job.id])
                self._stores.audit.append(session, self._caller, "job.delete", job.id, moment(session))
        self._stores.delete_blobs(unnamed)
        self._stores.database.forget()
        return deleted

    def _open_report(self, job_id: str, sealed: bytes) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._stores.sealer.open(sealed, report_context(job_id)))
        self._note("report.read", job_id)
        return report

    def _open_seed(self, job_id: str, reason: str) -> tuple[Job, str]:
        job = self._find(job_id, "sealed_seed")
        seed = self._stores.sealer.open(job.sealed_seed, seed_context(job.id))
        with self._stores.database.write() as session:
            self._stores.audit.append(session, self._caller, "seed.read", job.id, moment(session), reason)
        return job, f"{int.from_bytes(seed, 'big'):0{-(-job.seed_bits // 4)}x}"

    def _touch_database(self) -> None:
        with self._stores.database.read() as session:
            jobs.newest(session, None, None, 1, None)

    def _touch_storage(self) -> None:
        folder = self._stores.blobs.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:  # it has no name, and leaves none behind
            probe.write(bytes(_PROBE_BYTES))

    # ------------------------------------------------------------------------------------------- the rest

    def _progress(self, job: Job) -> Progress | None:
        if job.state == State.RUNNING:
            return read_progress(self._stores.progress_path(job))
        return Progress(1.0 if job.state == State.SUCCEEDED else 0.0, job.state)

    async def _get_by(self, job_id: str, deadline: float) -> Job:
        """The job, also where the database is away for a while. Raises NotFound, Unavailable."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self.get(job_id)
            except Unavailable:
                if self._changes.closing or loop.time() + _LOOK_SECONDS > deadline:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def _stop(self, job: Job) -> None:
        """Stop the job here, or ask whoever runs it to; returns when it may have moved on."""
        if not await self._dispatcher.cancel(job.id):
            with self._changes.watch(job.id) as changed:
                await self._in_thread(self._request_cancel, job.id)
                await changed.within(_LOOK_SECONDS)

    async def _accepted(self, accept: Callable[[str], Job]) -> Job:
        job_id = new_id()
        if not self._stores.database.shared:  # else another replica may run it
            self._changes.expect(job_id)  # before it can end
        accepted = ""
        try:
            with tracing.span("job.accept") as told:
                job = await self._in_thread(accept, job_id)
                told.set({"rowveil.service": job.service, "rowveil.rows": job.row_count})
            accepted = job.id
        finally:
            if accepted != job_id:
                self._changes.tell(job_id, ended=True)
        if accepted == job_id:
            self.metrics.accepted.labels(job.service, job.priority).inc()
        self._dispatcher.wake()
        return job

    async def _to_change(self, job_id: str) -> Job:
        job = await self.get(job_id)
        if not self._caller.may_change(job.owner):
            raise Forbidden(
                "the job is of your project, but another's: only who submitted it may cancel or delete it"
            )
        return job

    async def _succeeded(self, job_id: str, *deferred: str) -> Job:
        job = await self._in_thread(self._find, job_id, *deferred)
        if job.state != State.SUCCEEDED:
            raise StateConflict(f"the job is {job.state}; only a job that succeeded has a result")
        return job

    async def _purge_now_and_then(self) -> None:
        for turn in count(1):
            try:
                await self.purge()
                await self._in_thread(self._anchor_audit)
                if turn % _PURGES_A_SWEEP == 0:
                    await self._in_thread(self._stores.sweep)
            except Exception as error:
                _log.error("purging failed: %s", type(error).__qualname__)
            await asyncio.sleep(self._settings.purge_interval)

    def _anchor_audit(self) -> None:
        try:
            with self._stores.database.read() as session:
                head = head_of(session)
            longer = head is not None and keep_anchor(self._settings.home, head)
        except Exception as error:  # an older anchor is one as well
            _log.error("no anchor of the audit was left: %s", type(error).__qualname__)
            return
        if not longer:
            _log.error("the audit is shorter than it was: see `rowveil audit verify`")

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))


async def _once_there(attempt: Callable[[], Awaitable[T]]) -> T:
    """What the attempt gives, made anew while the database server is away, for some time at most."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _DATABASE_SECONDS
    while True:
        try:
            return await attempt()
        except (DatabaseAway, Unavailable) as error:
            if loop.time() > deadline:
                raise
            _log.warning("%s; it is tried again", error)
        await asyncio.sleep(_TRY_AGAIN_SECONDS)


def _kept(job: Job) -> str:
    if job.destination_blob is None:
        raise Gone("the destination buffer was kept for its time, which is over; rerun the job")
    return job.destination_blob
