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
from providers.digest import table_digest
from providers.errors import ProviderError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Released, assess
from providers.measures.risk import changed_share, inversion_bits
from providers.params import Params
from providers.provider import Event, Progress, Provider, SwapResult, no_progress, part_of
from providers.rng import Stream
from providers.types import type_name

T = TypeVar("T")

_LIBRARIES = ("numpy", "numba", "pyarrow", "scikit-learn", "scipy")
_LOADED, _SWAPPED = 0.05, 0.85  # of the whole, at a guess: reading, swapping, writing
_SWAPPED_BEFORE_MEASURING = 0.3

MEASURES_REVISION = 1
"""Of the draws that the measures make: raised when a change alters a figure for a given seed."""


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
        stream = Stream(task.seed, task.service, task.revision)
        source = read_table(task.source)
        swapped = _SWAPPED if task.report != "full" else _SWAPPED_BEFORE_MEASURING
        result = provider.swap(source, params, stream, part_of(progress, _LOADED, swapped))
        progress(swapped, "digesting")
        digest = table_digest(result.table)
        progress(swapped + 0.1, "writing")
        write_table(task.destination, result.table)
        report = None if task.report == "none" else report_of(task.service, result, task.seed_bits)
        if report is not None and task.report == "full":
            measuring = part_of(progress, swapped + 0.15, 1.0)
            report |= measured(task, provider, params, source, result, report["measures"], measuring)
        progress(1.0, "written")
    return _plain(
        {
            "destination": described(result.table) | {"digest": digest},
            "events": [_event(event) for event in result.events.listed],
            "event_counts": dict(result.events.counts),
            "report": report,
            "libraries": library_versions(),
            "platform": platform.platform(),
        }
    )


@tells_the_callers_errors
def run_plan(task: PlanTask) -> dict[str, Any]:
    """What the run would do."""
    provider = PROVIDERS[task.service]
    params = provider.params.model_validate(task.parameters)
    if isinstance(task.source, bytes):
        table = pa.ipc.open_stream(task.source).read_all()
    else:
        table = read_table(task.source)
    return _plain(asdict(provider.plan(table, params)))


def described(table: pa.Table) -> dict[str, Any]:
    """The fields and the number of rows of a table."""
    return {"fields": described_fields(table.schema), "rows": table.num_rows}


def described_fields(schema: pa.Schema) -> list[dict[str, str]]:
    """Name and type of each field."""
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def report_of(service: str, result: SwapResult, seed_bits: int) -> dict[str, Any]:
    """The report's JSON: summary, the provider's own figures, the cheap measures, and its limits."""
    summary = result.summary
    values = {"changed_share": changed_share(summary.changed, summary.rows), **result.measures}
    bits = values.get("inversion_bits", result.provider.get("matching_bits"))
    if bits is not None:
        values["inversion_bits"] = inversion_bits(bits, seed_bits)
    return {
        "summary": asdict(summary),
        "provider": result.provider,
        "measures": {key: MEASURES[key].report(value) for key, value in values.items()},
        "limits": list(PROVIDERS[service].limits),
    }


def measured(
    task: SwapTask,
    provider: Provider[Any],
    params: Params,
    source: pa.Table,
    result: SwapResult,
    cheap: dict[str, dict[str, Any]],
    progress: Progress,
) -> dict[str, Any]:
    """What the report `full` holds besides: every measure that applies, why others do not, pictures."""

    def perturb(table: pa.Table, stream: Stream) -> pa.Table:
        return provider.swap(table, provider.check(params, table.schema), stream, no_progress).table

    released = Released(
        source=source,
        destination=result.table,
        origin=result.origin,
        service=task.service,
        parameters=params,
        run_values={key: measure["value"] for key, measure in cheap.items()},
        perturb=perturb,
    )
    options = MeasureOptions.model_validate(task.measures)
    stream = Stream(task.seed, "measures", MEASURES_REVISION)
    return asdict(assess(released, options, stream, progress))


@cache
def library_versions() -> dict[str, str]:
    """What the result was computed with."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"rowveil": __version__, "python": platform.python_version(), **versions}


def _event(event: Event) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if value is not None}


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON has it: no numpy scalars, no tuples, no NaN."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    plain: dict[str, Any] = orjson.loads(orjson.dumps(value, option=options))
    return plain
