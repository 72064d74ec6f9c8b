"""Command ``rowveil run SERVICE SOURCE DESTINATION``: swaps files; same bytes as the service."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import orjson
import pyarrow as pa

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, check_places, media_type_of, write
from app.cli.outputs import Keys, check_report_name, finish_job, new_job, write_manifest, write_report
from app.cli.request_builder import Call
from app.cli.seeds import seed_given, seed_kept
from app.cli.workspace import Workspace, WorkspaceTable
from app.formats import CsvStyle, stream_chunks
from app.formats.csv_output import WrittenDelimiter
from app.formats.errors import FormatError
from app.formats.media_types import CSV
from app.requests.run import RunRequest, checked_run, run_request_model
from app.settings import Settings, thresholds_of
from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.sealed_files import BlobAccess
from app.store.sql.models import Job
from app.worker.run_swap import run_plan, run_swap
from app.worker.tasks import PlanTask, SwapTask
from providers import PROVIDERS
from providers.errors import ProviderError


def run(call: Call, settings: Settings) -> int:
    """Run the service. Raises CommandFailed; nothing is written unless the whole run succeeds."""
    given = call.namespace
    provider = PROVIDERS[given.service]
    check_report_name(given.report)
    if given.report_level is not None and given.report is None:
        raise CommandFailed("--report-level: name the report's file with --report", Exit.USAGE)
    _check_full_report(call)
    outputs = {
        "DESTINATION": given.destination,
        "--report": given.report,
        "--manifest": given.manifest,
        "--keep-seed": given.keep_seed,
    }
    check_places([given.source, given.seed_file], outputs)
    written_as = media_type_of(given.destination, given.format)
    style = _style(given, written_as)
    upload = call.upload(given.source)
    level = {"report": given.report_level or ("summary" if given.report else "none")}
    request = call.request(run_request_model(provider), **level, seed="0")
    seed, keys = "", None
    if not request.validate_only:
        seed = seed_given(given)
        request = call.request(run_request_model(provider), **level, seed=seed)
        keys = Keys.of(settings) if given.manifest else None
    with Workspace(settings, given.quiet) as workspace:
        source = workspace.read(given.source, upload)
        schema = call.source(source).schema
        try:
            parameters, options = checked_run(
                provider, request, schema, source.stored.rows, thresholds_of(settings, None)
            )
            stream_chunks(written_as, schema, iter(()))
        except (ProviderError, FormatError) as error:
            raise call.failure(error) from None
        parameter_values = parameters.model_dump(mode="json", by_alias=True)
        if request.validate_only:
            return _plan(workspace, given.service, parameter_values, source)
        job = new_job(given.service, parameter_values, options, source.stored)
        assert request.seed is not None  # `seed_given` returns or draws one
        destination = workspace.new_blob()
        task = _task(job, request, source, destination, workspace, settings)
        report = finish_job(job, workspace.run(run_swap, task), request.seed.secret, request.seed.bits, keys)
        with seed_kept(given, seed):
            _write(job, workspace, given.destination, written_as, destination, style)
        if given.report:
            write_report(job, report, given.report)
        if given.manifest:
            write_manifest(job, given.manifest)
    if not given.quiet:
        _print_outcome(job)
    return Exit.OK


def _style(given: Namespace, written_as: str) -> CsvStyle:
    """Return the style of a CSV destination. Raises CommandFailed."""
    flags = ("--csv-formulas", "--csv-written-delimiter", "--csv-written-decimal-mark")
    stated = [getattr(given, flag[2:].replace("-", "_")) for flag in flags]
    if written_as != CSV:
        for flag in (flag for flag, value in zip(flags, stated, strict=True) if value is not None):
            raise CommandFailed(f"{flag}: the destination is no CSV; leave the option out", Exit.USAGE)
    formulas, delimiter, decimal_mark = stated
    is_tsv = given.destination.lower().removesuffix(".gz").endswith(".tsv")
    if is_tsv and delimiter not in (None, "tab"):
        raise CommandFailed(f"{flags[1]}: a .tsv has tabs; name the destination .csv", Exit.USAGE)
    usual: WrittenDelimiter = "tab" if is_tsv else ","
    try:
        return CsvStyle(formulas or "keep", delimiter or usual, decimal_mark or "point")
    except FormatError as error:
        raise CommandFailed(f"{flags[2]}: {error.message}", Exit.USAGE) from None


def _check_full_report(call: Call) -> None:
    """Raise CommandFailed if there are options of a full report, and no such report is wanted."""
    if call.namespace.report_level == "full":
        return
    needs = "give --report FILE and --report-level full"
    if "attacks" in call.given:
        raise CommandFailed(f"--attacks-...: attacks are part of the full report: {needs}", Exit.USAGE)
    if "measures" in call.given and "candidates" not in call.given:
        raise CommandFailed(
            f"--measures-...: measures are part of the full report: {needs}, or --candidates-count",
            Exit.USAGE,
        )


def _task(
    job: Job,
    request: RunRequest,
    source: WorkspaceTable,
    destination: BlobAccess,
    workspace: Workspace,
    settings: Settings,
) -> SwapTask:
    assert request.seed is not None  # `seed_given` returns or draws one
    return SwapTask(
        job_id=job.id,
        service=job.service,
        revision=job.revision,
        parameters=job.parameters,
        seed=request.seed.secret,
        seed_bits=request.seed.bits,
        source=source.access,
        destination=destination,
        rows=source.stored.rows,
        report=request.report,
        options=job.options or {},
        progress_path=str(workspace.progress_path),
        memory_bytes=settings.worker_memory_bytes,
        scratch_folder=str(workspace.scratch_folder),
    )


def _plan(workspace: Workspace, service: str, parameters: dict[str, Any], source: WorkspaceTable) -> int:
    """Print the plan of the run as JSON on standard output."""
    plan = workspace.run(run_plan, PlanTask(service, parameters, source.access, source.stored.rows))
    write(STANDARD, [orjson.dumps(plan, option=orjson.OPT_INDENT_2), b"\n"])
    return Exit.OK


def _write(
    job: Job,
    workspace: Workspace,
    name: str,
    media_type: str,
    destination: BlobAccess,
    style: CsvStyle,
) -> None:
    rows = TableReader(destination)
    to_terminal = name == STANDARD and sys.stdout.isatty()  # a progress bar would appear among the rows
    try:
        schema: pa.Schema = rows.schema
        with workspace.bar(f"writing {PurePath(name).name}", hidden=to_terminal) as bar:
            share = 1 / (job.destination_rows or 1)

            def counted() -> Iterator[pa.RecordBatch]:
                for batch in rows:
                    yield batch
                    bar.update(batch.num_rows * share)

            write(name, stream_chunks(media_type, schema, counted(), style))
    except FormatError as error:
        raise CommandFailed(f"{name}: {error.message}") from None
    finally:
        rows.close()


def _print_outcome(job: Job) -> None:
    """Print one line with the outcome and the event counts."""
    counts = ", ".join(f"{code} {count}" for code, count in (job.event_counts or {}).items() if count)
    message = f"{job.service}: {job.outcome}, {job.destination_rows} rows"
    print(f"{message}; {counts}" if counts else message, file=sys.stderr)
