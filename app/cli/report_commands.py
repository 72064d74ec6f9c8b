"""``rowveil measures`` and ``rowveil frontier``: a report on local tables, as JSON or as a page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, check_places
from app.cli.outputs import Keys, check_report_name, finish_job, new_job, write_manifest, write_report
from app.cli.request_builder import Call
from app.cli.seeds import seed_given, seed_kept
from app.cli.workspace import Workspace, WorkspaceTable
from app.errors import AppError
from app.formats.errors import FormatError
from app.job_kinds import FRONTIER, MEASURES
from app.requests.frontier import FrontierRequest, checked_frontier
from app.requests.measures import MeasureRequest, checked_measures
from app.settings import Settings, thresholds_of
from app.store.sql.models import Job
from app.worker.run_job import run_frontier, run_measures
from app.worker.tasks import FrontierTask, MeasureTask
from providers.attacks.thresholds import Thresholds
from providers.errors import ProviderError

_Request = TypeVar("_Request", MeasureRequest, FrontierRequest)
_Prepared = tuple[Job, Callable[[Any], Any], MeasureTask | FrontierTask]


def measures(call: Call, settings: Settings) -> int:
    """Measure a table against its source. Raises CommandFailed."""
    names = [call.namespace.source, call.namespace.destination]
    return _report(call, settings, MeasureRequest, names, _prepare_measures)


def frontier(call: Call, settings: Settings) -> int:
    """Run every combination on a table, and report its figures. Raises CommandFailed."""
    return _report(call, settings, FrontierRequest, [call.namespace.source], _prepare_frontier)


def _report(
    call: Call,
    settings: Settings,
    model: type[_Request],
    names: list[str],
    prepare: Callable[[Call, _Request, list[WorkspaceTable], str, Thresholds], _Prepared],
) -> int:
    """Run a job that gives only a report, and write the report, the seed and the manifest.

    Parameters
    ----------
    call : Call
    settings : Settings
    model : type
        Model of the request.
    names : list of str
        File names of the tables, as on the command line.
    prepare : callable
        Checks the request against the tables; returns the job, the worker function and its task.
    """
    given = call.namespace
    check_report_name(given.report)
    if names.count(STANDARD) > 1:
        raise CommandFailed(f"'{STANDARD}' can stand for only one of the two tables", Exit.USAGE)
    outputs: dict[str, str | Path | None] = {
        "--report": given.report or STANDARD,
        "--manifest": given.manifest,
        "--keep-seed": given.keep_seed,
    }
    check_places([*names, given.seed_file], outputs)
    uploads = call.uploads(*names)
    seed = seed_given(given)
    request = call.request(model, seed=seed)
    assert request.seed is not None  # `seed_given` returns or draws one
    keys = Keys.of(settings) if given.manifest else None
    with Workspace(settings, given.quiet) as workspace:
        tables = [workspace.read(name, upload) for name, upload in zip(names, uploads, strict=True)]
        try:
            thresholds = thresholds_of(settings, None)
            job, function, task = prepare(call, request, tables, str(workspace.progress_path), thresholds)
        except (AppError, ProviderError, FormatError) as error:
            raise call.failure(error) from None
        found = workspace.run(function, task)
        report = finish_job(job, found, request.seed.secret, request.seed.bits, keys)
    with seed_kept(given, seed):
        write_report(job, report, given.report or STANDARD)
    if given.manifest:
        write_manifest(job, given.manifest)
    return Exit.OK


def _prepare_measures(
    call: Call,
    request: MeasureRequest,
    tables: list[WorkspaceTable],
    progress_path: str,
    thresholds: Thresholds,
) -> _Prepared:
    source, destination = tables
    checked, options = checked_measures(request, call.source(source), call.source(destination), thresholds)
    parameters = checked.model_dump(mode="json")
    job = new_job(MEASURES, parameters, options, source.stored, destination.stored)
    assert request.seed is not None
    task = MeasureTask(
        job_id=job.id,
        seed=request.seed.secret,
        source=source.access,
        destination=destination.access,
        parameters=parameters,
        options=options,
        progress_path=progress_path,
    )
    return job, run_measures, task


def _prepare_frontier(
    call: Call,
    request: FrontierRequest,
    tables: list[WorkspaceTable],
    progress_path: str,
    thresholds: Thresholds,
) -> _Prepared:
    (source,) = tables
    checked, options = checked_frontier(request, call.source(source), thresholds)
    parameters = checked.model_dump(mode="json", by_alias=True)
    job = new_job(FRONTIER, parameters, options, source.stored)
    assert request.seed is not None
    task = FrontierTask(
        job_id=job.id,
        seed=request.seed.secret,
        seed_bits=request.seed.bits,
        source=source.access,
        parameters=parameters,
        options=options,
        progress_path=progress_path,
    )
    return job, run_frontier, task
