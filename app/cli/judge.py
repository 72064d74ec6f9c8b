"""``rowveil measures`` and ``rowveil frontier``: a report of tables of this machine, as JSON or as a page."""

import argparse
from pathlib import Path

from app.api.formats import FormatError
from app.api.frontier import FrontierRequest, checked_measures
from app.api.measures import MeasureRequest, aligned_tables, check_common_fields
from app.cli.calls import Call, as_source
from app.cli.failures import CommandFailed, Exit
from app.cli.files import STANDARD, check_places
from app.cli.results import Keys, check_report_name, ended, new_job, write_manifest, write_report
from app.cli.room import Room
from app.cli.seeds import seed_given, seed_kept
from app.errors import AppError
from app.jobs.kinds import FRONTIER, MEASURES
from app.jobs.parameters import MeasureParameters
from app.jobs.tasks import FrontierTask, MeasureTask
from app.jobs.work import run_frontier, run_measures
from app.settings import Settings
from providers.choosing.frontier import FrontierOptions
from providers.errors import ProviderError
from providers.measures.assessment import check_options


def measures(call: Call, settings: Settings) -> int:
    """Judge a table beside its source. Raises CommandFailed."""
    given = call.namespace
    check_report_name(given.report)
    if given.source == given.destination == STANDARD:
        raise CommandFailed(f"'{STANDARD}' can be one of the two tables", Exit.USAGE)
    check_places([given.source, given.destination, given.seed_file], _outputs(given))
    uploads = call.uploads(given.source, given.destination)
    seed = seed_given(given)
    request = call.request(MeasureRequest, seed=seed)
    assert request.seed is not None  # it was given, or drawn
    keys = Keys.of(settings) if given.manifest else None
    with Room(settings, given.quiet) as room:
        source = room.read(given.source, uploads[0])
        destination = room.read(given.destination, uploads[1])
        tables = as_source(source), as_source(destination)
        try:
            aligned = aligned_tables(request.aligned, *tables)
            check_common_fields(*tables)
            check_options(request.measures, tables[0].schema, tables[1].schema)
        except (AppError, ProviderError, FormatError) as error:
            raise call.told(error) from None
        parameters = MeasureParameters(aligned=aligned).model_dump(mode="json")
        options = {"measures": request.measures.model_dump(mode="json", exclude_unset=True)}
        job = new_job(MEASURES, parameters, options, source.stored, destination.stored)
        task = MeasureTask(
            job_id=job.id,
            seed=request.seed.secret,
            source=source.access,
            destination=destination.access,
            parameters=parameters,
            options=options,
            progress_path=str(room.progress_path),
        )
        report = ended(job, room.run(run_measures, task), request.seed.secret, request.seed.bits, keys)
    with seed_kept(given, seed):
        write_report(job, report, given.report or STANDARD)
    if given.manifest:
        write_manifest(job, given.manifest)
    return Exit.OK


def frontier(call: Call, settings: Settings) -> int:
    """Run every combination on a table, and report its figures. Raises CommandFailed."""
    given = call.namespace
    check_report_name(given.report)
    check_places([given.source, given.seed_file], _outputs(given))
    upload = call.upload(given.source)
    seed = seed_given(given)
    request = call.request(FrontierRequest, seed=seed)
    assert request.seed is not None  # it was given, or drawn
    keys = Keys.of(settings) if given.manifest else None
    with Room(settings, given.quiet) as room:
        source = room.read(given.source, upload)
        try:
            chosen = checked_measures(request, as_source(source))
        except (AppError, ProviderError, FormatError) as error:
            raise call.told(error) from None
        compared = FrontierOptions(**{name: getattr(request, name) for name in FrontierOptions.model_fields})
        parameters = compared.model_dump(mode="json", by_alias=True)
        options = {"measures": chosen.model_dump(mode="json", exclude_unset=True)}
        job = new_job(FRONTIER, parameters, options, source.stored)
        task = FrontierTask(
            job_id=job.id,
            seed=request.seed.secret,
            seed_bits=request.seed.bits,
            source=source.access,
            parameters=parameters,
            options=options,
            progress_path=str(room.progress_path),
        )
        report = ended(job, room.run(run_frontier, task), request.seed.secret, request.seed.bits, keys)
    with seed_kept(given, seed):
        write_report(job, report, given.report or STANDARD)
    if given.manifest:
        write_manifest(job, given.manifest)
    return Exit.OK


def _outputs(given: argparse.Namespace) -> dict[str, str | Path | None]:
    return {
        "--report": given.report or STANDARD,
        "--manifest": given.manifest,
        "--keep-seed": given.keep_seed,
    }
