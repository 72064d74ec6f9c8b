"""What a worker does with a task. It reads and writes blobs, and needs no database."""

import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, wraps
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from app import __version__
from app.engine.engine import Failure, Outcome
from app.engine.progress import ProgressFile
from app.jobs.tasks import PlanTask, SwapTask
from app.store.tables import read_table, write_table
from providers import PROVIDERS
from providers.choosing.candidates import CandidateOptions, Choice, choose
from providers.digest import table_digest
from providers.errors import ProviderError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, assess
from providers.measures.runs import measures_stream, released_by, values_of_run
from providers.params import Params
from providers.provider import Event, Progress, Provider, SwapResult, part_of
from providers.rng import Stream
from providers.types import type_name

T = TypeVar("T")

_LIBRARIES = ("numpy", "numba", "pyarrow", "scikit-learn", "scipy")
_LOADED, _SWAPPED = 0.05, 0.85  # of the whole, at a guess: reading, swapping, writing
_SWAPPED_BEFORE_MEASURING = 0.3


def tells_the_callers_errors(function: Callable[[T], dict[str, Any]]) -> Callable[[T], Outcome]:
    """The function, with an error that its caller must be told as a Failure."""

    @wraps(function)
    def told(task: T) -> Outcome:
        try:
            return function(task)
        except ProviderError as error:
            return Failure(error.code, error.message, error.pointer)

    return told


@tells_the_callers_errors
def run_swap(task: SwapTask) -> dict[str, Any]:
    """Swap, write the destination, and say what the job's row will hold."""
    with ProgressFile(task.progress_path) as progress:
        progress(0.0, "reading")
        provider = PROVIDERS[task.service]
        if provider.revision != task.revision:
            raise ProviderError(
                f"the job was accepted for revision {task.revision} of {task.service}, and this "
                f"version of the service has revision {provider.revision}; submit it again"
            )
        params = provider.params.model_validate(task.parameters)
        measures = MeasureOptions.model_validate(task.options.get("measures", {}))
        source = read_table(task.source)
        swapped = _SWAPPED if task.report != "full" else _SWAPPED_BEFORE_MEASURING
        choice = _run(task, provider, params, measures, source, part_of(progress, _LOADED, swapped))
        result = choice.result
        progress(swapped, "digesting")
        digest = table_digest(result.table)
        progress(swapped + 0.1, "writing")
        write_table(task.destination, result.table)
        report = None if task.report == "none" else report_of(task.service, result, task.seed_bits)
        if report is not None and task.report == "full":
            released = released_by(provider, params, source, result, task.seed_bits)
            measuring = part_of(progress, swapped + 0.15, 1.0)
            report |= asdict(assess(released, measures, measures_stream(task.seed), measuring))
        if report is not None and choice.evidence:
            report["candidates"] = choice.evidence
        progress(1.0, "written")
    return plain(
        {
            "destination": described(result.table) | {"digest": digest},
            "events": [_event(event) for event in result.events.listed],
            "event_counts": dict(result.events.counts),
            "chosen": choice.index,
            "report": report,
            "libraries": library_versions(),
            "platform": platform.platform(),
        }
    )


def _run(
    task: SwapTask,
    provider: Provider[Any],
    params: Params,
    measures: MeasureOptions,
    source: pa.Table,
    progress: Progress,
) -> Choice:
    """The run, or the best of several."""
    candidates = CandidateOptions.model_validate(task.options.get("candidates", {}))
    if candidates.count == 1:
        stream = Stream(task.seed, task.service, task.revision)
        return Choice(provider.swap(source, params, stream, progress))
    return choose(provider, source, params, task.seed, task.seed_bits, candidates, measures, progress)


@tells_the_callers_errors
def run_plan(task: PlanTask) -> dict[str, Any]:
    """What the run would do."""
    provider = PROVIDERS[task.service]
    params = provider.params.model_validate(task.parameters)
    if isinstance(task.source, bytes):
        table = pa.ipc.open_stream(task.source).read_all()
    else:
        table = read_table(task.source)
    return plain(asdict(provider.plan(table, params)))


def described(table: pa.Table) -> dict[str, Any]:
    """The fields and the number of rows of a table."""
    return {"fields": described_fields(table.schema), "rows": table.num_rows}


def described_fields(schema: pa.Schema) -> list[dict[str, str]]:
    """Name and type of each field."""
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def report_of(service: str, result: SwapResult, seed_bits: int) -> dict[str, Any]:
    """The report's JSON: summary, the provider's own figures, the cheap measures, and its limits."""
    values = values_of_run(result, seed_bits)
    return {
        "summary": asdict(result.summary),
        "provider": result.provider,
        "measures": {key: MEASURES[key].report(value) for key, value in values.items()},
        "limits": list(PROVIDERS[service].limits),
    }


@cache
def library_versions() -> dict[str, str]:
    """What the result was computed with."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"rowveil": __version__, "python": platform.python_version(), **versions}


def _event(event: Event) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if value is not None}


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON has it: no numpy scalars, no tuples, no NaN."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    plain: dict[str, Any] = orjson.loads(orjson.dumps(value, option=options))
    return plain
