"""Entry point of a worker for jobs of every kind."""

from dataclasses import asdict
from typing import Any

from app.engine.engine import Failure, Outcome
from app.engine.progress_file import ProgressFile
from app.job_kinds import ATTACKS, FRONTIER, MEASURES, MeasureParameters
from app.store.blobs.arrow_stream import read_table
from app.telemetry import tracing
from app.worker.headline import with_headline
from app.worker.run_attacks import run_attacks
from app.worker.run_swap import reported, returns_user_errors
from app.worker.run_units import run_or_divide
from app.worker.tasks import AttackTask, FrontierTask, JobTask, MeasureTask, SwapTask
from providers.compiled_services import MEASURES_NAME, wait_until_compiled
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.run_figures import measures_stream
from providers.progress import sub_progress
from providers.selection.combinations import combinations_of
from providers.selection.frontier import FrontierOptions, frontier, frontier_figures, limits_of

_LOADED = 0.05  # estimated share of the run after which the tables are read

_MEASURE_LIMITS = (
    "The figures compare these two tables; it is not known how the destination was made.",
    "Figures row by row take row i of the destination for row i of the source.",
)

_NOT_ALIGNED = (
    "It is not known which row of the destination belongs to which row of the source: measures that "
    "compare row with row are left out."
)

_SERVICES = {MeasureTask: MEASURES, FrontierTask: FRONTIER, AttackTask: ATTACKS}


def run_job(task: JobTask) -> Outcome:
    """Run the job. Return the columns of its row, or a Failure."""
    if task.trace_parent is None:
        return _run(task)
    tracing.set_up_tracing()
    service = task.service if isinstance(task, SwapTask) else _SERVICES[type(task)]
    with tracing.span("job.run", {"rowveil.service": service}, task.trace_parent) as span:
        outcome = _run(task)
        if isinstance(outcome, Failure):
            span.failed(outcome.code)
    tracing.flush()  # a worker may be killed at any moment
    return outcome


def _run(task: JobTask) -> Outcome:
    match task:
        case MeasureTask():
            return run_measures(task)
        case FrontierTask():
            return run_frontier(task)
        case AttackTask():
            return run_attacks(task)
    return run_or_divide(task)


@returns_user_errors
def run_measures(task: MeasureTask) -> dict[str, Any]:
    """Measure the destination against the source."""
    aligned = MeasureParameters.model_validate(task.parameters).aligned
    options = MeasureOptions.model_validate(task.options.get("measures", {}))
    with ProgressFile(task.progress_path, create=True) as progress:
        progress(0.0, "reading")
        wait_until_compiled(MEASURES_NAME)
        source, destination = read_table(task.source), read_table(task.destination)
        released = Release(source=source, destination=destination, aligned=aligned)
        measured = assess(released, options, measures_stream(task.seed), sub_progress(progress, _LOADED, 1.0))
        progress(1.0, "measured")
    summary = {"rows": source.num_rows, "destination_rows": destination.num_rows, "aligned": aligned}
    limits = [_MEASURE_LIMITS[0], _MEASURE_LIMITS[1] if aligned else _NOT_ALIGNED]
    report = {"summary": summary, "provider": {}, "limits": limits} | asdict(measured)
    return reported(with_headline(report, task.options, source))


@returns_user_errors
def run_frontier(task: FrontierTask) -> dict[str, Any]:
    """Run every combination of services and parameters, and report its measures."""
    options = FrontierOptions.model_validate(task.parameters)
    measures = MeasureOptions.model_validate(task.options.get("measures", {}))
    with ProgressFile(task.progress_path, create=True) as progress:
        progress(0.0, "reading")
        for name in (*sorted({each.service for each in options.services}), MEASURES_NAME):
            wait_until_compiled(name)
        source = read_table(task.source)
        combinations = combinations_of(options.services, source.schema)
        compared = frontier(
            source,
            combinations,
            frontier_figures(options, measures, combinations, source.schema),
            options.runs,
            measures,
            task.seed,
            task.seed_bits,
            sub_progress(progress, _LOADED, 1.0),
            options.matters,
        )
        progress(1.0, "compared")
    points = compared["points"]
    parameters_of_points = [point.pop("parameters") for point in points]
    failed = [point for point in points if "error" in point]
    summary = {
        "rows": source.num_rows,
        "points": len(points),
        "not_dominated": sum(not point["dominated"] for point in points),
        "failed": len(failed),
    }
    report = {
        "summary": summary,
        "measures": {},
        "left_out": {},
        "provider": {},
        "limits": limits_of(compared),
        "pictures": {},
        "frontier": compared,
    }
    events = [
        {"code": "combination_failed", "message": f"{point['service']}: {point['error']}"} for point in failed
    ]
    result = reported(with_headline(report, task.options), events)
    # Parameters are plain JSON already, and may hold integers that orjson cannot write.
    for point, parameters in zip(result["report"]["frontier"]["points"], parameters_of_points, strict=True):
        point["parameters"] = parameters
    return result
