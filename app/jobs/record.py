"""Records the end of a job, exactly once: what its row says then, and what is let go and told with it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.jobs.ends import Ends
from app.jobs.kinds import kind_of, tables_given
from app.jobs.manifest import signed_manifest
from app.jobs.states import State, Step, after, outcome_of, sources
from app.jobs.stores import Stores
from app.jobs.tasks import JobTask, SwapTask
from app.jobs.weak_seeds import flagged, is_weak
from app.jobs.webhooks import tell_webhook
from app.store import jobs, replicas
from app.store.db import Transaction
from app.store.models import Job
from app.store.replicas import LeaseLost
from app.store.seal import Sealer, report_context
from providers.choosing.seeds import candidate_seed


@dataclass(frozen=True, slots=True)
class End:
    """A job's end, as a transaction has it that is to be committed."""

    job: Job
    """As it was before."""
    state: State
    values: dict[str, Any]
    released: list[str | None]
    """The blobs that it names no longer."""


class Recorder:
    """Writes ends. Blocking; called from any thread."""

    def __init__(self, stores: Stores, ends: Ends) -> None:
        self._stores = stores
        self._ends = ends

    def result_values(self, job: Job, task: JobTask, result: dict[str, Any]) -> dict[str, Any]:
        """What its row says of a job that succeeded, from what its worker gave."""
        outcome = outcome_of(State.SUCCEEDED, result["event_counts"])
        add_fingerprints(self._stores.sealer, task.seed, result["report"])
        if is_weak(job.seed_bits):
            result = flagged(result, job.seed_bits)
        values = {
            "outcome": outcome,
            "events": result["events"],
            "event_counts": result["event_counts"],
            "sealed_report": self._sealed_report(job, result["report"]),
            "manifest": signed_manifest(job, result, str(outcome), self._stores.signer),
        }
        if isinstance(task, SwapTask):
            destination = result["destination"]
            values |= {
                "destination_digest": destination["digest"],
                "destination_fields": destination["fields"],
                "destination_rows": destination["rows"],
                "destination_blob": task.destination.id,
            }
        return values

    def _sealed_report(self, job: Job, report: dict[str, Any] | None) -> bytes | None:
        if report is None:
            return None
        return self._stores.sealer.seal(json.dumps(report).encode(), report_context(job.id))

    def record_end(self, job: Job, step: Step, **values: Any) -> bool:
        """Record the end of this claim of the job, unless another one was recorded already."""
        with self._stores.database.write() as session:
            end = self.end(session, job, step, **values)
            unnamed = jobs.unnamed(session, end.released) if end is not None else []
        self.tell([end] if end is not None else [], unnamed)
        return end is not None

    def end(self, session: Transaction, job: Job, step: Step, **values: Any) -> End | None:
        """The end, within a transaction; None where the job had moved on, or this replica was taken for dead.

        A table that comes out is named under the replica's lease: were the lease ended beside an end that is
        not committed yet, whoever took it up would find a file that nobody names, and sweep it.
        """
        ended = after(State.RUNNING, step)
        made = values.get("destination_blob")
        if made is not None:
            try:
                self._stores.begin_to_name(session, [made])
            except LeaseLost:
                return None
        given = tables_given(job)
        released = {} if job.retain_source else {f"{role}_blob": None for role in given}
        if job.rerun_of is not None and ended is not State.CANCELLED:
            original = jobs.find(session, job.rerun_of, "manifest")
            if original is not None:
                values |= _reproduced(original, values)
        values = {"finished_at": replicas.moment(session), "outcome": outcome_of(ended, {})} | values
        moved = jobs.move(session, job.id, sources(step), ended, attempt=job.attempt, **values, **released)
        if not moved:
            return None
        tell_webhook(session, job, ended, values)
        return End(job, ended, values, list(given.values()))

    def tell(self, ends: Sequence[End], unnamed: Sequence[str]) -> None:
        """When that has been committed."""
        for end in ends:
            self._ends.tell(end.job, end.state, end.values)
        self._stores.delete_blobs(unnamed)


def add_fingerprints(sealer: Sealer, seed: bytes, report: dict[str, Any] | None) -> None:
    """Say in a report which candidate had which seed, which only the holder of the keys can."""
    for candidate in (report or {}).get("candidates", {}).get("table", []):
        candidate["seed_fingerprint"] = sealer.fingerprint(candidate_seed(seed, candidate["index"]))


def requeue(session: Transaction, job: Job, crashes: int) -> None:
    """Put this claim of the job back, unless it has moved on."""
    jobs.move(
        session,
        job.id,
        sources(Step.REQUEUE),
        after(State.RUNNING, Step.REQUEUE),
        attempt=job.attempt,
        started_at=None,
        claimed_by=None,
        crashes=crashes,
    )


def _reproduced(original: Job, values: dict[str, Any]) -> dict[str, bool]:
    """Whether a rerun gave what the job gave: its bytes, or where no table comes out, its report."""
    if kind_of(original.service).has_rows:
        expected, found = original.destination_digest, values.get("destination_digest")
    else:
        expected, found = _report_digest(original.manifest), _report_digest(values.get("manifest"))
    return {} if expected is None else {"reproduced": found == expected}


def _report_digest(signed: dict[str, Any] | None) -> str | None:
    return None if signed is None else signed["manifest"]["report_digest"]
