"""Run a swap or a plan in a worker, which reads and writes blobs and needs no database."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from app import __version__
from app.engine.engine import BLOB_MISSING, MEMORY_LIMIT, REVISION_GONE, Failure, Outcome
from app.engine.progress_file import ProgressFile
from app.engine.worker_process import failure_of
from app.formats.errors import FormatError
from app.formats.json_output import SMALL_BYTES, encoded_size, json_rows
from app.store.blobs.column_reader import BlobTable, write_tables
from app.store.blobs.disk_space import Reservation
from app.store.blobs.scratch import SealedScratch
from app.store.blobs.sealed_files import BlobMissing
from app.telemetry import tracing
from app.worker.attack_figures import attack_figures
from app.worker.headline import with_headline
from app.worker.memory import TooLargeForMemory, in_one_piece, swapped, whole_table
from app.worker.release_check import with_release
from app.worker.tasks import PlanTask, SeriesTask, SwapTask
from providers import PROVIDERS
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed
from providers.compiled_services import MEASURES_NAME, wait_until_compiled
from providers.errors import ProviderError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, assess
from providers.measures.run_figures import measures_stream, release_of_run, values_of_run
from providers.params import Params
from providers.progress import Progress, sub_progress
from providers.provider import Provider, StreamedResult
from providers.results import EVENTS_SHOWN, Event, SwapResult
from providers.selection.candidates import CandidateOptions, choose
from providers.storage import Resources
from providers.swapping.guarantee import stated_figures, void_guarantee
from providers.tables.digest import DigestForm
from providers.tables.series_pairs import SeriesPairs
from providers.tables.type_names import type_name

T = TypeVar("T")

_LIBRARIES = ("numpy", "numba", "pyarrow", "scikit-learn", "scipy")

# Estimated shares of a run at which reading and swapping are done; writing is the rest.
_LOADED, _SWAPPED = 0.05, 0.85

_SWAPPED_BEFORE_MEASURING = 0.3

_MEASURED_BEFORE_ATTACKS = 0.5


def returns_user_errors(function: Callable[[T], dict[str, Any]]) -> Callable[[T], Outcome]:
    """Decorate a task function: errors meant for the caller, and a missing table, become a Failure."""

    @wraps(function)
    def wrapped(task: T) -> Outcome:
        try:
            return function(task)
        except ProviderError as error:
            return Failure(error.code, error.message, error.pointer)
        except TooLargeForMemory as error:
            return Failure(MEMORY_LIMIT, str(error))
        except BlobMissing as error:
            return replace(failure_of(error), code=BLOB_MISSING)

    return wrapped


@returns_user_errors
def run_swap(task: SwapTask) -> dict[str, Any]:
    """Swap, write the destination, and return the columns of the job's row."""
    with ProgressFile(task.progress_path, create=True) as progress:
        progress(0.0, "reading")
        provider, params = provider_of(task)
        source = BlobTable(task.source, task.rows)
        ended = _SWAPPED if task.report != "full" else _SWAPPED_BEFORE_MEASURING
        written = 1.0 if task.report != "full" else ended + 0.1
        with SealedScratch(Path(task.scratch_folder)) as scratch, destination_space(task) as held_space:
            resources = Resources(scratch, task.memory_bytes)
            with tracing.span("provider.run"):
                destination = _make_destination(
                    task, provider, params, source, resources, sub_progress(progress, _LOADED, ended)
                )
            result, written_table = write_streamed(
                task, destination.streamed, source, sub_progress(progress, ended, written), held_space
            )
        refuse_other_rows(task, written_table)
        add_notices(result, provider, params, source.schema)
        report = None
        if task.report != "none":
            report = report_of(task.service, result, task.seed_bits) | destination.evidence
        if report is not None and destination.whole is not None and task.report == "full":
            released = release_of_run(provider, params, destination.whole, result, task.seed_bits)
            attacked = "attacks" in task.options
            measured = _MEASURED_BEFORE_ATTACKS if attacked else 1.0
            stream, measuring = measures_stream(task.seed), sub_progress(progress, written, measured)
            report |= asdict(assess(released, _measures(task), stream, measuring))
            if attacked:
                attacking = sub_progress(progress, measured, 1.0)
                _add_attacks(report, task, destination.whole, result, attacking)
        if report is not None:
            report = with_headline(report, task.options, destination.whole, params)
        progress(1.0, "written")
    columns = result_columns(result, written_table, report, destination.chosen)
    _add_series(columns, task, result)
    columns = with_release(task, columns, result.provider.get("guarantee"))
    if task.inline and (content := written_table.content) is not None:
        columns["encoded_rows"] = _encoded_rows(content)
    return columns


def _encoded_rows(content: bytes) -> bytes | None:
    """Return the rows of a small table as the response has them.

    None if JSON cannot represent them, or if they are not small as JSON: nulls take no bytes in a table.
    """
    table = pa.ipc.open_stream(content).read_all()
    if encoded_size(table) > SMALL_BYTES:
        return None
    try:
        return json_rows(table)
    except FormatError:
        return None


def provider_of(task: SwapTask) -> tuple[Provider[Any], Params]:
    """Return the task's provider and its parameters; wait while its kernels are compiled in the background.

    Raises ProviderError (it has another revision).
    """
    provider = PROVIDERS[task.service]
    if provider.revision != task.revision:
        raise ProviderError(
            f"the job was accepted for revision {task.revision} of {task.service}, and this "
            f"version of the service has revision {provider.revision}; submit it again"
        )
    wait_until_compiled(task.service)
    if task.report == "full" or task.options.get("candidates"):
        wait_until_compiled(MEASURES_NAME)
    if task.series is not None:
        run = provider.swap_series
        assert run is not None  # the services without a series have no such parameter
        series = _pairs_of(task.series)
        provider = replace(
            provider,
            swap=lambda table, params, stream, progress: run(table, params, stream, progress, series),
        )
    return provider, provider.params.model_validate(task.parameters)


class OtherRows(ProviderError):
    """A rerun by another revision gives other rows than the first job has."""

    code = REVISION_GONE


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A destination, in its blob or, if it is small, in memory."""

    digest: str
    rows: int
    content: bytes | None = field(repr=False)


def destination_space(task: SwapTask) -> Reservation:
    """Reserve disk space for a destination of the source's size, before the run begins.

    The space is on the file system of the destination. Raises OSError: ENOSPC.
    """
    size = 0 if task.source.content is not None else Path(task.source.path).stat().st_size
    return Reservation(Path(task.scratch_folder), size)


def write_streamed(
    task: SwapTask,
    streamed: StreamedResult,
    source: BlobTable,
    progress: Progress,
    held_space: Reservation,
) -> tuple[SwapResult, WrittenTable]:
    """Write the destination, unless it is small. Return the provider's result and the table."""
    tables = _with_progress(streamed.pieces, source.rows, progress)
    with tracing.span("destination.write"):  # an out-of-core run does most of its work here
        written = write_tables(
            task.destination,
            streamed.schema,
            tables,
            task.small_bytes,
            held_space,
            task.digest_form,
            known_digests(source, streamed.schema, streamed.unchanged)
            if task.digest_form is DigestForm.PARTS
            else None,
        )
    return streamed.result(), WrittenTable(*written)


def refuse_other_rows(task: SwapTask, written: WrittenTable) -> None:
    """Raise OtherRows if another revision reruns a job and gives other rows."""
    first = task.first_release
    if first is not None and first["destination_digest"] != written.digest:
        raise OtherRows(
            f"this version of Rowveil gives other rows than the first job has, which ran revision "
            f"{first['revision']} of {task.service}: rerun it with a version that has this revision"
        )


def known_digests(
    source: BlobTable, schema: pa.Schema, unchanged: Collection[str]
) -> list[bytes | None] | None:
    """Return the digests of unchanged fields, which their source has, in the order of the destination.

    Parameters
    ----------
    source : BlobTable
    schema : pa.Schema
        Schema of the destination.
    unchanged : collection of str
        Fields that have the values of the source in all rows.
    """
    stored = source.field_digests() if unchanged else None
    if stored is None:
        return None
    known = {
        name: digest
        for name, digest in zip(source.schema.names, stored.digests, strict=True)
        if name in unchanged
    }
    return [known.get(name) for name in schema.names]


def _pairs_of(task: SeriesTask) -> SeriesPairs:
    return SeriesPairs(task.name, task.wave, task.key, task.pairs, task.ids)


def _add_series(columns: dict[str, Any], task: SwapTask, result: SwapResult) -> None:
    """Add the new pairs of a series, and the manifest's digest of the pairs that were read."""
    if task.series is None:
        return
    assert result.pairs is not None  # every run of a series has them
    read = _pairs_of(task.series)
    columns["series"] = {"name": read.name, "wave": read.wave, "pairs_digest": read.digest()}
    columns["new_pairs"] = {"ids": result.pairs.ids, "units": result.pairs.units}
    columns["pairs"] = result.pairs.pairs


def add_notices(result: SwapResult, provider: Provider[Any], params: Params, schema: pa.Schema) -> None:
    """Record the events that follow from the source's schema and the parameters, and a run without effect."""
    for event in provider.notices(params, schema):
        result.events.add(event)
    summary = result.summary
    explained = result.events.counts.keys() & {"quota_not_met", "rows_unchanged"}
    if summary.unswapped_reasons.get("rate") and not summary.took_part and not explained:
        rate = "swap_rate" if "swap_rate" in type(params).model_fields else "rate"
        message = (
            "no row took part: all values that are not suppressed are published as they are in the source; "
            f"the table is too small for this '{rate}', raise it"
        )
        result.events.add(Event("nothing_changed", message))


def result_columns(
    result: SwapResult, written: WrittenTable, report: dict[str, Any] | None, chosen: int = 0
) -> dict[str, Any]:
    """Build the columns of the job's row from the provider's result."""
    columns = plain(
        {
            "destination": described(result.table) | {"digest": written.digest, "rows": written.rows},
            "events": [_event(event) for event in result.events.listed],
            "event_counts": dict(result.events.counts),
            "chosen": chosen,
            "report": report,
            "libraries": library_versions(),
            "platform": platform.platform(),
        }
    )
    columns["table"] = written.content
    return columns


@dataclass(frozen=True, slots=True)
class _Destination:
    """Destination of a run, with the choice among its candidates."""

    streamed: StreamedResult
    whole: pa.Table | None = None
    """The whole source, if it was read."""
    chosen: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)


def _make_destination(
    task: SwapTask,
    provider: Provider[Any],
    params: Params,
    source: BlobTable,
    resources: Resources,
    progress: Progress,
) -> _Destination:
    """Run the provider; with candidates, run it several times and keep the best destination.

    A full report and candidates need both tables as a whole.
    """
    candidates = CandidateOptions.model_validate(task.options.get("candidates", {}))
    stream = PROVIDERS[task.service].stream(task.seed)
    if task.report != "full" and candidates.count == 1:
        return _Destination(swapped(provider, source, params, stream, progress, resources))
    whole = whole_table(provider, source, params, resources)
    if candidates.count == 1:
        return _Destination(in_one_piece(provider.swap(whole, params, stream, progress), whole), whole)
    choice = choose(provider, whole, params, task.seed, task.seed_bits, candidates, _measures(task), progress)
    void_guarantee(choice.result.provider, candidates.count)
    return _Destination(
        in_one_piece(choice.result, whole), whole, choice.index, {"candidates": choice.evidence}
    )


def _measures(task: SwapTask) -> MeasureOptions:
    return MeasureOptions.model_validate(task.options.get("measures", {}))


def _add_attacks(
    report: dict[str, Any], task: SwapTask, source: pa.Table, result: SwapResult, progress: Progress
) -> None:
    """Attack the release, and add the figures and the verdict to the report."""
    options = AttackOptions.model_validate(task.options["attacks"])
    found = attack_figures(
        source,
        result.table,
        None,
        options,
        MethodUsed(task.service, task.parameters),
        result.origin is None and result.table.num_rows == source.num_rows,
        task.seed,
        task.options,
        progress,
    )
    report["left_out"] = report["left_out"] | found.pop("left_out")
    report |= found


@returns_user_errors
def run_plan(task: PlanTask) -> dict[str, Any]:
    """Plan a run: see `providers.results.Plan`."""
    wait_until_compiled(task.service)
    provider = PROVIDERS[task.service]
    params = provider.params.model_validate(task.parameters)
    if isinstance(task.source, bytes):
        table = pa.ipc.open_stream(task.source).read_all()
    else:
        source = BlobTable(task.source, task.rows)
        table = source.read(provider.scaling.reads(params, source.schema))
    return plain(asdict(provider.plan(table, params)))


def described(table: pa.Table) -> dict[str, Any]:
    """Return the fields and the number of rows of a table."""
    return {"fields": described_fields(table.schema), "rows": table.num_rows}


def described_fields(schema: pa.Schema) -> list[dict[str, str]]:
    """Return name and type of each field."""
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def report_of(service: str, result: SwapResult, seed_bits: int) -> dict[str, Any]:
    """Build the report: summary, the provider's own figures, the cheap measures, and its limits."""
    values = values_of_run(result, seed_bits)
    return {
        "summary": asdict(result.summary),
        "provider": result.provider | stated_figures(result.provider),
        "measures": {key: MEASURES[key].report(value) for key, value in values.items()},
        "limits": list(PROVIDERS[service].limits),
    }


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of Rowveil, Python and the numerical libraries."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"rowveil": __version__, "python": platform.python_version(), **versions}


def _with_progress(tables: Iterator[pa.Table], rows: int, progress: Progress) -> Iterator[pa.Table]:
    written = 0
    for table in tables:
        progress(written / max(1, rows), "writing")
        yield table
        written += table.num_rows


def _event(event: Event) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if value is not None}


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Convert to plain JSON values: no numpy scalars, no tuples, no NaN."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    plain: dict[str, Any] = orjson.loads(orjson.dumps(value, option=options))
    return plain


def reported(report: dict[str, Any], events: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Build the result of a job that has a report and no rows."""
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
