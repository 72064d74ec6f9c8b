"""What a worker does with a task. It reads and writes blobs, and needs no database."""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from app import __version__
from app.engine.engine import MEMORY_LIMIT, Failure, Outcome
from app.engine.progress import ProgressFile
from app.jobs.moving import TooLargeForMemory, in_one_piece, swapped, whole_table
from app.jobs.tasks import PlanTask, SwapTask
from app.store.blob_table import BlobTable, write_tables
from app.store.scratch import SealedScratch
from app.telemetry import tracing
from providers import PROVIDERS
from providers.choosing.candidates import CandidateOptions, choose
from providers.errors import ProviderError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, assess
from providers.measures.runs import measures_stream, released_by, values_of_run
from providers.params import Params
from providers.provider import Event, Progress, Provider, Streamed, SwapResult, part_of
from providers.rng import Stream
from providers.storage import Room
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
        except TooLargeForMemory as error:
            return Failure(MEMORY_LIMIT, str(error))

    return told


@tells_the_callers_errors
def run_swap(task: SwapTask) -> dict[str, Any]:
    """Swap, write the destination, and say what the job's row will hold."""
    with ProgressFile(task.progress_path) as progress:
        progress(0.0, "reading")
        provider, params = provider_of(task)
        source = BlobTable(task.source, task.rows)
        ended = _SWAPPED if task.report != "full" else _SWAPPED_BEFORE_MEASURING
        written = 1.0 if task.report != "full" else ended + 0.1
        with SealedScratch(Path(task.scratch_folder)) as scratch:
            room = Room(scratch, task.memory_bytes)
            with tracing.span("provider.run"):
                made = _made(task, provider, params, source, room, part_of(progress, _LOADED, ended))
            result, digest, rows = write_streamed(
                task, made.streamed, source.rows, part_of(progress, ended, written)
            )
        report = None
        if task.report != "none":
            report = report_of(task.service, result, task.seed_bits) | made.evidence
        if report is not None and made.whole is not None and task.report == "full":
            released = released_by(provider, params, made.whole, result, task.seed_bits)
            stream, told = measures_stream(task.seed), part_of(progress, written, 1.0)
            report |= asdict(assess(released, _measures(task), stream, told))
        progress(1.0, "written")
    return answer_of(result, digest, rows, report, made.chosen)


def provider_of(task: SwapTask) -> tuple[Provider[Any], Params]:
    """The service that is asked for, and its parameters. Raises ProviderError (it is of another revision)."""
    provider = PROVIDERS[task.service]
    if provider.revision != task.revision:
        raise ProviderError(
            f"the job was accepted for revision {task.revision} of {task.service}, and this "
            f"version of the service has revision {provider.revision}; submit it again"
        )
    return provider, provider.params.model_validate(task.parameters)


def write_streamed(
    task: SwapTask, streamed: Streamed, rows: int, progress: Progress
) -> tuple[SwapResult, str, int]:
    """Write the destination; what the report says, the digest, and how many rows have come out."""
    pieces = _told_of(streamed.pieces, rows, progress)
    with tracing.span("destination.write"):  # out of core, and most of the run
        digest, written = write_tables(task.destination, streamed.schema, pieces)
    return streamed.result(), digest, written


def answer_of(
    result: SwapResult, digest: str, rows: int, report: dict[str, Any] | None, chosen: int = 0
) -> dict[str, Any]:
    """What the job's row will hold."""
    return plain(
        {
            "destination": described(result.table) | {"digest": digest, "rows": rows},
            "events": [_event(event) for event in result.events.listed],
            "event_counts": dict(result.events.counts),
            "chosen": chosen,
            "report": report,
            "libraries": library_versions(),
            "platform": platform.platform(),
        }
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """A destination, and what it was made of and chosen from."""

    streamed: Streamed
    whole: pa.Table | None = None
    """The source, where all of it was read."""
    chosen: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)


def _made(
    task: SwapTask, provider: Provider[Any], params: Params, source: BlobTable, room: Room, progress: Progress
) -> _Made:
    """The destination; the best of several, where there are candidates.

    A full report and candidates need both tables as a whole.
    """
    candidates = CandidateOptions.model_validate(task.options.get("candidates", {}))
    stream = Stream(task.seed, task.service, task.revision)
    if task.report != "full" and candidates.count == 1:
        return _Made(swapped(provider, source, params, stream, progress, room))
    whole = whole_table(provider, source, params, room)
    if candidates.count == 1:
        return _Made(in_one_piece(provider.swap(whole, params, stream, progress)), whole)
    choice = choose(provider, whole, params, task.seed, task.seed_bits, candidates, _measures(task), progress)
    return _Made(in_one_piece(choice.result), whole, choice.index, {"candidates": choice.evidence})


def _measures(task: SwapTask) -> MeasureOptions:
    return MeasureOptions.model_validate(task.options.get("measures", {}))


@tells_the_callers_errors
def run_plan(task: PlanTask) -> dict[str, Any]:
    """What the run would do."""
    provider = PROVIDERS[task.service]
    params = provider.params.model_validate(task.parameters)
    if isinstance(task.source, bytes):
        table = pa.ipc.open_stream(task.source).read_all()
    else:
        source = BlobTable(task.source, task.rows)
        table = source.read(provider.scaling.reads(params, source.schema))
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


def _told_of(pieces: Iterator[pa.Table], rows: int, progress: Progress) -> Iterator[pa.Table]:
    written = 0
    for piece in pieces:
        progress(written / max(1, rows), "writing")
        yield piece
        written += piece.num_rows


def _event(event: Event) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if value is not None}


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON has it: no numpy scalars, no tuples, no NaN."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    plain: dict[str, Any] = orjson.loads(orjson.dumps(value, option=options))
    return plain
