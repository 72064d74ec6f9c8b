"""Outputs of a command apart from its table: report and manifest, as the service makes them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import orjson

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, write
from app.engine.engine import Progress
from app.ids import new_id
from app.job_kinds import kind_of, revision_of
from app.jobs.manifest import signed_manifest
from app.jobs.recorder import add_fingerprints
from app.jobs.requests import DEFAULT_OPTIONS, StoredTable
from app.jobs.states import State, outcome_of
from app.jobs.weak_seeds import flagged, is_weak
from app.report.page import html_report
from app.settings import Settings
from app.store.crypto.key_files import KeyUnreadable, load_master_keys, load_signing_key
from app.store.crypto.sealing import Sealer, Signer
from app.store.sql.models import Job

_SUFFIXES = (".json", ".html")


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys in the home that sign manifests and compute seed fingerprints."""

    sealer: Sealer
    signer: Signer

    @classmethod
    def of(cls, settings: Settings) -> "Keys":
        """Load the keys from the home, or create them there. Raises CommandFailed."""
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
    control: StoredTable | None = None,
) -> Job:
    """Create a job as the service would, without a database."""
    moment = datetime.now(UTC)
    job = Job(
        id=new_id(),
        service=service,
        revision=revision_of(service),
        parameters=parameters,
        options=options or None,
        priority=DEFAULT_OPTIONS.priority,
        created_at=moment,
        started_at=moment,
        row_count=source.rows,
        source_digest=source.digest,
        source_fields=source.fields,
    )
    if destination is not None:
        job.destination_digest, job.destination_fields = destination.digest, destination.fields
        job.destination_rows = destination.rows
    if control is not None:
        job.control_digest, job.control_fields = control.digest, control.fields
        job.control_rows = control.rows
    return job


def finish_job(
    job: Job, result: dict[str, Any], seed: bytes, seed_bits: int, keys: Keys | None
) -> dict[str, Any] | None:
    """Record the result in the job, and return its report.

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
    """Raise CommandFailed if a report cannot be written under this name."""
    if name is not None and name != STANDARD and PurePath(name).suffix.lower() not in _SUFFIXES:
        raise CommandFailed(f"--report: a report's name ends in {' or '.join(_SUFFIXES)}", Exit.USAGE)


def write_report(job: Job, report: dict[str, Any] | None, name: str) -> None:
    """Write the report as JSON, or as an HTML page, depending on the file name."""
    if report is None:
        return
    if PurePath(name).suffix.lower() == ".html":
        from app.api.job_response import document_of  # slow to import and rarely needed

        document = document_of(job, Progress(1.0, State.SUCCEEDED))
        write(name, [html_report(document, report).encode()])
    else:
        from app.api.report_schemas import Report  # as slow

        model = Report.model_validate(report)
        write(name, [model.model_dump_json(exclude_none=True, indent=2).encode(), b"\n"])


def write_manifest(job: Job, name: str) -> None:
    """Write the signed manifest as JSON."""
    write(name, [orjson.dumps(job.manifest, option=orjson.OPT_INDENT_2), b"\n"])
