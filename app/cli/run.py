"""``rowveil run SERVICE SOURCE DESTINATION``: a swap of files, with the bytes that the service would give."""

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import orjson
import pyarrow as pa

from app.api.formats import FormatError, stream_chunks
from app.api.schemas import RunRequest, run_request_model
from app.api.services import options_of_run
from app.cli.calls import Call, as_source
from app.cli.failures import CommandFailed, Exit
from app.cli.files import STANDARD, check_places, media_type_of, write
from app.cli.results import Keys, check_report_name, ended, new_job, write_manifest, write_report
from app.cli.room import Opened, Room
from app.cli.seeds import seed_given, seed_kept
from app.jobs.run import run_plan, run_swap
from app.jobs.tasks import PlanTask, SwapTask
from app.settings import Settings
from app.store.blobs import BlobAccess
from app.store.models import Job
from app.store.tables import TableReader
from providers import PROVIDERS
from providers.errors import ProviderError


def run(call: Call, settings: Settings) -> int:
    """Run the service. Raises CommandFailed; nothing is written unless all went well."""
    given = call.namespace
    provider = PROVIDERS[given.service]
    check_report_name(given.report)
    if given.report_level is not None and given.report is None:
        raise CommandFailed("--report-level: name the report's file with --report", Exit.USAGE)
    outputs = {
        "DESTINATION": given.destination,
        "--report": given.report,
        "--manifest": given.manifest,
        "--keep-seed": given.keep_seed,
    }
    check_places([given.source, given.seed_file], outputs)
    written_as = media_type_of(given.destination, given.format)
    upload = call.upload(given.source)
    level = {"report": given.report_level or ("summary" if given.report else "none")}
    request = call.request(run_request_model(provider), **level, seed="0")
    seed, keys = "", None
    if not request.validate_only:
        seed = seed_given(given)
        request = call.request(run_request_model(provider), **level, seed=seed)
        keys = Keys.of(settings) if given.manifest else None
    with Room(settings, given.quiet) as room:
        source = room.read(given.source, upload)
        schema = as_source(source).schema
        try:
            parameters = provider.check(request.parameters, schema)
            options = options_of_run(request, schema)
            stream_chunks(written_as, schema, iter(()))
        except (ProviderError, FormatError) as error:
            raise call.told(error) from None
        told = parameters.model_dump(mode="json", by_alias=True)
        if request.validate_only:
            return _plan(room, given.service, told, source)
        job = new_job(given.service, told, options, source.stored)
        assert request.seed is not None  # it was given, or drawn
        destination = room.new_blob()
        task = _task(job, request, source, destination, room, settings)
        report = ended(job, room.run(run_swap, task), request.seed.secret, request.seed.bits, keys)
        with seed_kept(given, seed):
            _write(job, room, given.destination, written_as, destination)
        if given.report:
            write_report(job, report, given.report)
        if given.manifest:
            write_manifest(job, given.manifest)
    if not given.quiet:
        _tell(job)
    return Exit.OK


def _task(
    job: Job,
    request: RunRequest,
    source: Opened,
    destination: BlobAccess,
    room: Room,
    settings: Settings,
) -> SwapTask:
    assert request.seed is not None  # it was given, or drawn
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
        progress_path=str(room.progress_path),
        memory_bytes=settings.worker_memory_bytes,
        scratch_folder=str(room.scratch_folder),
    )


def _plan(room: Room, service: str, parameters: dict[str, Any], source: Opened) -> int:
    """Say what the run would do, as JSON on standard output."""
    plan = room.run(run_plan, PlanTask(service, parameters, source.access, source.stored.rows))
    write(STANDARD, [orjson.dumps(plan, option=orjson.OPT_INDENT_2), b"\n"])
    return Exit.OK


def _write(job: Job, room: Room, name: str, media_type: str, destination: BlobAccess) -> None:
    rows = TableReader(destination)
    beside = name == STANDARD and sys.stdout.isatty()  # a bar would stand among the rows
    try:
        schema: pa.Schema = rows.schema
        with room.bar(f"writing {PurePath(name).name}", hidden=beside) as bar:
            share = 1 / (job.destination_rows or 1)

            def counted() -> Iterator[pa.RecordBatch]:
                for batch in rows:
                    yield batch
                    bar.update(batch.num_rows * share)

            write(name, stream_chunks(media_type, schema, counted()))
    except FormatError as error:
        raise CommandFailed(f"{name}: {error.message}") from None
    finally:
        rows.close()


def _tell(job: Job) -> None:
    """One line a person reads: how it ended, and what there is to know."""
    counts = ", ".join(f"{code} {count}" for code, count in (job.event_counts or {}).items() if count)
    told = f"{job.service}: {job.outcome}, {job.destination_rows} rows"
    print(f"{told}; {counts}" if counts else told, file=sys.stderr)
