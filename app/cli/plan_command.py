"""Command ``rowveil plan SOURCE SERVICE``: estimate the needs of a job before machines are bought."""

import argparse
from dataclasses import asdict
from typing import Any

import orjson

from app.capacity.costs import measured_costs
from app.capacity.estimate import Estimate, JobSize, NotPossible, best
from app.capacity.simulation import Cluster
from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, write
from app.cli.request_builder import Call
from app.cli.workspace import Workspace
from app.requests.run import checked_run, run_request_model
from app.settings import Settings, thresholds_of
from app.store.blobs.column_reader import BlobTable
from app.worker.memory import memory_budget
from providers import PROVIDERS
from providers.errors import ProviderError
from providers.params import Params
from providers.provider import Provider

_WORKERS = "1,4,16"

_HEADER = ("workers", "way", "units", "time", "range", "read", "written", "scratch")

_ASSUMED = Cluster(1)

_MOST_DIGITS = 18

_SHORT_SECONDS = 10
_LONG_SECONDS = 7200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the cluster."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--workers", metavar="A,B", default=_WORKERS, help=f"numbers of workers. Default: {_WORKERS}"
    )
    group.add_argument(
        "--rows", metavar="N", type=_positive, help="rows of the job, if the file is a sample of its table"
    )
    group.add_argument(
        "--storage-bandwidth",
        metavar="BYTES",
        type=_positive,
        default=int(_ASSUMED.storage_bandwidth),
        help="bytes a second that all workers together read and write. Default: %(default)s",
    )
    group.add_argument(
        "--worker-bandwidth",
        metavar="BYTES",
        type=_positive,
        default=int(_ASSUMED.worker_bandwidth),
        help="bytes a second that one worker reads and writes. Default: %(default)s",
    )
    group.add_argument("--json", action="store_true", help="print JSON, with all assumptions")


def _positive(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text:.40}' is no positive whole number of at most {_MOST_DIGITS} digits"
        )
    return int(text)


def plan(call: Call, settings: Settings) -> int:
    """Print the estimates. Raises CommandFailed."""
    given = call.namespace
    numbers = _numbers(given.workers)
    provider = PROVIDERS[given.service]
    upload = call.upload(given.source)
    request = call.request(run_request_model(provider), seed="0")
    with Workspace(settings, given.quiet) as workspace:
        source = workspace.read(given.source, upload)
        schema = call.source(source).schema
        try:
            rows = given.rows or source.stored.rows
            parameters, _ = checked_run(provider, request, schema, rows, thresholds_of(settings, None))
        except ProviderError as error:
            raise call.failure(error) from None
        table = BlobTable(source.access, source.stored.rows)
        size = job_size(provider, parameters, table, given.rows)
    costs = measured_costs()
    if given.service not in costs.services:
        raise CommandFailed(f"the costs of {given.service} have not been measured", Exit.FAILED)
    memory = settings.worker_memory_bytes
    clusters = [
        Cluster(
            workers,
            worker_bandwidth=given.worker_bandwidth,
            storage_bandwidth=given.storage_bandwidth,
            repeat_factor=settings.slow_unit_factor,
            repeats=settings.unit_repeats,
        )
        for workers in numbers
    ]
    try:
        found = [best(costs.services[given.service], size, cluster, memory) for cluster in clusters]
    except NotPossible as error:
        raise CommandFailed(str(error), Exit.FAILED) from None
    if given.json:
        document = _document(given.service, size, memory, clusters[0], costs.measured, found)
        write(STANDARD, [orjson.dumps(document, option=orjson.OPT_INDENT_2), b"\n"])
    else:
        write(STANDARD, [_text(given.service, size, memory, clusters[0], costs.measured, found).encode()])
    return Exit.OK


def _numbers(text: str) -> list[int]:
    try:
        return [_positive(each) for each in text.split(",")]
    except argparse.ArgumentTypeError:
        raise CommandFailed(
            f"--workers: '{text:.40}' is no list of positive numbers such as {_WORKERS}", Exit.USAGE
        ) from None


def job_size(provider: Provider[Any], params: Params, table: BlobTable, rows: int | None) -> JobSize:
    """Return the size of a job on a table, or on a longer table with the same mean row."""
    wanted = table.rows if rows is None else rows
    mean = table.nbytes / max(1, table.rows)
    sharing = provider.scaling.sharing
    long = sharing is not None and sharing.from_rows is not None and wanted >= sharing.from_rows
    budget = memory_budget(provider, table, params, wanted)
    return JobSize(wanted, mean, budget, provider.scaling.can_cut(params), long)


def _document(
    service: str, size: JobSize, memory: int, cluster: Cluster, measured: str, found: list[Estimate]
) -> dict[str, Any]:
    assumed = {name: value for name, value in asdict(cluster).items() if name != "workers"}
    return {
        "service": service,
        "rows": size.rows,
        "row_bytes": round(size.row_bytes, 1),
        "memory_bytes": size.memory_bytes,
        "worker_memory_bytes": memory,
        "costs_measured": measured,
        "assumptions": assumed,
        "estimates": [asdict(each) for each in found],
    }


def _text(
    service: str, size: JobSize, memory: int, cluster: Cluster, measured: str, found: list[Estimate]
) -> str:
    lines = [
        f"{service} on {size.rows:,} rows of {size.row_bytes:.0f} bytes: {_bytes(size.total_bytes)}",
        f"memory: {_bytes(size.memory_bytes)} in memory; a worker may take {_bytes(memory)}",
        "",
        *_table([_HEADER, *map(_cells, found)]),
        "",
        "units: the number with the shortest time, which ROWVEIL_UNITS_PER_JOB limits in a service",
        "scratch: all bytes written to scratch space; a job frees bytes meanwhile, and needs less at once",
        f"costs: measured on {measured}",
        "time: median of simulated runs, and their range from 5 % to 95 %",
        f"assumed: transfers of {_bytes(cluster.storage_bandwidth)}/s by all workers and of "
        f"{_bytes(cluster.worker_bandwidth)}/s by each; {cluster.slow_share:.0%} of the runs "
        f"{cluster.slow_factor:g} times slower; a worker lost in {1 / cluster.losses_per_hour:,.0f} hours",
    ]
    return "\n".join(lines) + "\n"


def _cells(found: Estimate) -> tuple[str, ...]:
    return (
        str(found.workers),
        found.way,
        str(found.units),
        _seconds(found.seconds),
        f"{_seconds(found.low)} to {_seconds(found.high)}",
        *(_bytes(value) for value in (found.read_bytes, found.written_bytes, found.scratch_bytes)),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _seconds(value: float) -> str:
    if value < _SHORT_SECONDS:
        return f"{value:.1f} s"
    return f"{value:,.0f} s" if value < _LONG_SECONDS else f"{value / 3600:,.1f} h"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB"
