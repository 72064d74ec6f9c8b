"""What a worker does with a job, whichever kind it is."""

import platform
from dataclasses import asdict
from typing import Any

from app.engine.engine import Failure, Outcome
from app.engine.progress import ProgressFile
from app.jobs.kinds import FRONTIER, MEASURES
from app.jobs.parameters import MeasureParameters
from app.jobs.run import library_versions, plain, tells_the_callers_errors
from app.jobs.tasks import FrontierTask, JobTask, MeasureTask, SwapTask
from app.jobs.units import run_or_divide
from app.store.tables import read_table
from app.telemetry import tracing
from providers.choosing.combinations import combinations_of
from providers.choosing.frontier import LIMITS as FRONTIER_LIMITS
from providers.choosing.frontier import FrontierOptions, frontier, frontier_figures
from providers.measures.assessment import MeasureOptions, Released, assess
from providers.measures.runs import measures_stream
from providers.provider import EVENTS_SHOWN, part_of

_LOADED = 0.05  # of the whole, at a guess

_MEASURE_LIMITS = (
    "The figures are of these two tables; of how the destination was made, nothing is known here.",
    "Figures row by row take row i of the destination for row i of the source.",
)
_NOT_ALIGNED = (
    "It is not known which row of the destination was which of the source: what compares row with row is "
    "left out."
)


def run_job(task: JobTask) -> Outcome:
    """What the job's row will hold, or why it gave nothing."""
    if task.trace_parent is None:
        return _run(task)
    tracing.set_up_tracing()
    service = (
        task.service
        if isinstance(task, SwapTask)
        else MEASURES
        if isinstance(task, MeasureTask)
        else FRONTIER
    )
    with tracing.span("job.run", {"rowveil.service": service}, task.trace_parent) as told:
        outcome = _run(task)
        if isinstance(outcome, Failure):
            told.failed(outcome.code)
    tracing.flush()  # a worker may be killed at any moment
    return outcome


def _run(task: JobTask) -> Outcome:
    match task:
        case MeasureTask():
            return run_measures(task)
        case FrontierTask():
            return run_frontier(task)
    return run_or_divide(task)


@tells_the_callers_errors
def run_measures(task: MeasureTask) -> dict[str, Any]:
    """Judge the destination beside the source."""
    aligned = MeasureParameters.model_validate(task.parameters).aligned
    options = MeasureOptions.model_validate(task.options.get("measures", {}))
    with ProgressFile(task.progress_path) as progress:
        progress(0.0, "reading")
        source, destination = read_table(task.source), read_table(task.destination)
        released = Released(source=source, destination=destination, aligned=aligned)
        judged = assess(released, options, measures_stream(task.seed), part_of(progress, _LOADED, 1.0))
        progress(1.0, "measured")
    summary = {"rows": source.num_rows, "destination_rows": destination.num_rows, "aligned": aligned}
    limits = [_MEASURE_LIMITS[0], _MEASURE_LIMITS[1] if aligned else _NOT_ALIGNED]
    return _reported({"summary": summary, "provider": {}, "limits": limits} | asdict(judged))


@tells_the_callers_errors
def run_frontier(task: FrontierTask) -> dict[str, Any]:
    """Run every combination, and keep its figures."""
    options = FrontierOptions.model_validate(task.parameters)
    measures = MeasureOptions.model_validate(task.options.get("measures", {}))
    with ProgressFile(task.progress_path) as progress:
        progress(0.0, "reading")
        source = read_table(task.source)
        found = frontier(
            source,
            combinations_of(options.services, source.schema),
            frontier_figures(options, measures),
            options.runs,
            measures,
            task.seed,
            task.seed_bits,
            part_of(progress, _LOADED, 1.0),
        )
        progress(1.0, "compared")
    points = found["points"]
    given = [point.pop("parameters") for point in points]
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
        "limits": list(FRONTIER_LIMITS),
        "pictures": {},
        "frontier": found,
    }
    events = [
        {"code": "combination_failed", "message": f"{point['service']}: {point['error']}"} for point in failed
    ]
    result = _reported(report, events)
    # As they came: they are plain, and may hold integers that the writer of plain values cannot take.
    for point, parameters in zip(result["report"]["frontier"]["points"], given, strict=True):
        point["parameters"] = parameters
    return result


def _reported(report: dict[str, Any], events: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A result that is a report alone."""
    counts: dict[str, int] = {}
    for event in events or []:
        counts[event["code"]] = counts.get(event["code"], 0) + 1
    return plain(
        {
            "events": (events or [])[:EVENTS_SHOWN],
            "event_counts": counts,
            "report": report,
            "libraries": library_versions(),
            "platform": platform.platform(),
        }
    )
