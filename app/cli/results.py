"""What a command writes beside its table: the job's report and its manifest, as the service would."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import orjson

from app.api.job_documents import document_of
from app.api.report_schemas import Report
from app.cli.failures import CommandFailed, Exit
from app.cli.files import STANDARD, write
from app.engine.engine import Progress
from app.jobs.identity import new_id
from app.jobs.kinds import kind_of, revision_of
from app.jobs.manifest import signed_manifest
from app.jobs.record import add_fingerprints
from app.jobs.states import State, outcome_of
from app.jobs.tables import StoredTable
from app.jobs.terms import PLAIN
from app.jobs.weak_seeds import flagged, is_weak
from app.report import html_report
from app.settings import Settings
from app.store.keys import KeyUnreadable, load_master_keys, load_signing_key
from app.store.models import Job
from app.store.seal import Sealer, Signer

_SUFFIXES = (".json", ".html")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the home, with which a manifest is signed and the fingerprint of a seed is taken."""

    sealer: Sealer
    signer: Signer

    @classmethod
    def of(cls, settings: Settings) -> "Keys":
        """Made and kept in the home where there are none. Raises CommandFailed."""
        try:
            return cls(Sealer(load_master_keys(settings)), Signer(load_signing_key(settings)))
        except (KeyUnreadable, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CommandFailed(f"the keys of ROWVEIL_HOME cannot be used: {reason}") from None


def new_job(
    service: str,
    parameters: dict[str, Any],
    options: dict[str, Any],
    source: StoredTable,
    destination: StoredTable | None = None,
) -> Job:
    """A job as a service would keep it, in no database."""
    moment = datetime.now(UTC)
    job = Job(
        id=new_id(),
        service=service,
        revision=revision_of(service),
        parameters=parameters,
        options=options or None,
        priority=PLAIN.priority,
        created_at=moment,
        started_at=moment,
        row_count=source.rows,
        source_digest=source.digest,
        source_fields=source.fields,
    )
    if destination is not None:
        job.destination_digest, job.destination_fields = destination.digest, destination.fields
        job.destination_rows = destination.rows
    return job


def ended(
    job: Job, result: dict[str, Any], seed: bytes, seed_bits: int, keys: Keys | None
) -> dict[str, Any] | None:
    """Record in the job what came out, and return its report.

    With ``keys``, the job gets its manifest and the fingerprints of its seeds.
    """
    outcome = outcome_of(State.SUCCEEDED, result["event_counts"])
    if is_weak(seed_bits):
        result = flagged(result, seed_bits)
    job.state, job.outcome, job.finished_at = State.SUCCEEDED, str(outcome), datetime.now(UTC)
    job.events, job.event_counts = result["events"], result["event_counts"]
    report: dict[str, Any] | None = result["report"]
    if kind_of(job.service).has_rows:
        job.destination_digest = result["destination"]["digest"]
        job.destination_fields = result["destination"]["fields"]
        job.destination_rows = result["destination"]["rows"]
    if keys is None:
        return report
    job.seed_fingerprint = keys.sealer.fingerprint(seed)
    add_fingerprints(keys.sealer, seed, report)
    job.manifest = signed_manifest(job, result, str(outcome), keys.signer)
    return report


def check_report_name(name: str | None) -> None:
    """Raise CommandFailed where a report cannot be written under this name."""
    if name is not None and name != STANDARD and PurePath(name).suffix.lower() not in _SUFFIXES:
        raise CommandFailed(f"--report: a report's name ends in {' or '.join(_SUFFIXES)}", Exit.USAGE)


def write_report(job: Job, report: dict[str, Any] | None, name: str) -> None:
    """The report as JSON, or as a page where the name says so."""
    if report is None:
        return
    if PurePath(name).suffix.lower() == ".html":
        document = document_of(job, Progress(1.0, State.SUCCEEDED))
        write(name, [html_report(document, report).encode()])
    else:
        told = Report.model_validate(report)
        write(name, [told.model_dump_json(exclude_none=True, indent=2).encode(), b"\n"])


def write_manifest(job: Job, name: str) -> None:
    """The signed manifest, as JSON."""
    write(name, [orjson.dumps(job.manifest, option=orjson.OPT_INDENT_2), b"\n"])
