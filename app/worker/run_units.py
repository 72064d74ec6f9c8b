"""Run a divided job in workers: divide it, prepare it, run its units, gather their results.

Not every provider has a preparation. Each of the four is a separate task in a separate process. Its memory
and time are limited, and a cancelled one is killed, like a job of a single worker. Only the units run in
parallel.
"""

import pickle
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.engine.engine import Outcome
from app.engine.progress_file import ProgressFile
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.scratch import SealedScratch, SealedSpool, SpoolReader, SpoolWriter
from app.worker.headline import with_headline
from app.worker.memory import fits
from app.worker.release_check import with_release
from app.worker.run_swap import (
    add_notices,
    destination_space,
    provider_of,
    report_of,
    result_columns,
    returns_user_errors,
    run_swap,
    write_streamed,
)
from app.worker.tasks import GatherTask, PrepareTask, SwapTask, UnitTask
from providers.params import Params
from providers.progress import sub_progress
from providers.provider import Division, Prepared, Provider, Run, Sharing, UnitResult
from providers.randomness.chacha20 import Stream
from providers.storage import Resources, Scratch

DIVISION, UNITS, PREPARES = "division", "units", "prepares"
"""Keys of the result of a divided job: its division, pickled for workers; its number of units; and whether a
preparation runs before them."""

PREPARED = "prepared"
"""Key of the preparation's data and spools, pickled for workers."""

UNIT, SPOOL, SECONDS = "unit", "spool", "seconds"
"""Keys of a unit's spool and figures, pickled for the worker that gathers them; of the name of the spool's
file; and of the unit's duration in seconds."""

DIVIDED, BEGUN, GATHERED = 0.1, 0.3, 0.8
"""Estimated shares of the run at which the job is divided, at which it is prepared if it has a preparation,
and at which all units are done."""


def run_or_divide(task: SwapTask) -> Outcome:
    """Run the job, or divide it if it is worth several units. Return its columns or its division."""
    divided = _divide(task) if task.units > 1 else {}
    return divided or run_swap(task)


@returns_user_errors
def _divide(task: SwapTask) -> dict[str, Any]:
    """Return the division; an empty dict if one worker should run the job."""
    provider, params = provider_of(task)
    source = BlobTable(task.source, task.rows)
    sharing = _sharing_of(task, provider, params, source)
    if sharing is None:
        return {}
    with ProgressFile(task.progress_path) as progress, SealedScratch(Path(task.scratch_folder)) as scratch:
        run = _run(task, params, source, scratch)
        division = sharing.divide(run, sub_progress(progress, 0.0, DIVIDED), task.units)
        return {
            DIVISION: pickle.dumps(division),
            UNITS: len(division.units),
            PREPARES: sharing.prepare is not None,
        }


def _sharing_of(
    task: SwapTask, provider: Provider[Any], params: Params, source: BlobTable
) -> Sharing[Any] | None:
    """Return the provider's way to divide the job; None if one worker should run it."""
    sharing = provider.scaling.sharing
    if sharing is None or task.report == "full" or task.options.get("candidates"):
        return None
    long = sharing.from_rows is not None and task.rows >= sharing.from_rows
    if long:
        return sharing
    large = provider.scaling.can_cut(params) and not fits(provider, source, params, task.memory_bytes)
    return sharing if large else None


@returns_user_errors
def run_prepare(task: PrepareTask) -> dict[str, Any]:
    """Prepare the job. Return its data and spools for the units, and the name of the spools' file."""
    job = task.job
    provider, params = provider_of(job)
    prepare = _sharing(provider).prepare
    assert prepare is not None  # the division says so
    with (
        ProgressFile(job.progress_path) as progress,
        SealedScratch(Path(job.scratch_folder)) as scratch,
        SpoolWriter(job.spool_folder, task.spool_prefix) as writer,
    ):
        run = _run(job, params, BlobTable(job.source, job.rows), scratch)
        made = prepare(run, sub_progress(progress, DIVIDED, BEGUN), _division(task), writer)
        shared = []
        for spool in made.spools:
            assert isinstance(spool, SealedSpool)  # the writer made it
            shared.append(writer.shared(spool))
    return {PREPARED: pickle.dumps((made.data, shared)), SPOOL: writer.name}


@returns_user_errors
def run_unit(task: UnitTask) -> dict[str, Any]:
    """Run one unit. Return the spool with its rows, its figures, and how long it took."""
    began = time.monotonic()
    job, division = task.job, _division(task)
    provider, params = provider_of(job)
    with (
        ProgressFile(job.progress_path),  # for the note of a worker that outlives the service
        SealedScratch(Path(job.scratch_folder)) as scratch,
        SpoolWriter(job.spool_folder, task.spool_prefix) as writer,
        ExitStack() as opened,
    ):
        run = _run(job, params, BlobTable(job.source, job.rows), scratch, _prepared(task, opened))
        spool = writer.spool(division.parts, job.memory_bytes // 10)
        figures = _sharing(provider).work(run, division, task.number, spool)
        unit = pickle.dumps((writer.shared(spool), figures))
    return {UNIT: unit, SPOOL: writer.name, SECONDS: time.monotonic() - began}


@returns_user_errors
def run_gather(task: GatherTask) -> dict[str, Any]:
    """Gather the units, write the destination, and return the columns of the job's row."""
    job = task.job
    provider, params = provider_of(job)
    with ExitStack() as opened:
        progress = opened.enter_context(ProgressFile(job.progress_path))
        scratch = opened.enter_context(SealedScratch(Path(job.scratch_folder)))
        held_space = opened.enter_context(destination_space(job))
        source = BlobTable(job.source, job.rows)
        run = _run(job, params, source, scratch, _prepared(task, opened))
        done = [
            UnitResult(opened.enter_context(SpoolReader(job.spool_folder, spool)).parts(), figures)
            for spool, figures in map(pickle.loads, task.done)  # workers of this job made them
        ]
        streamed = _sharing(provider).gather(
            run, sub_progress(progress, GATHERED, GATHERED), _division(task), done
        )
        writing = sub_progress(progress, GATHERED, 1.0)
        result, written = write_streamed(job, streamed, source, writing, held_space)
        add_notices(result, provider, params, run.source.schema)
        progress(1.0, "written")
    report = None
    if job.report != "none":
        report = with_headline(report_of(job.service, result, job.seed_bits), job.options, None, params)
    return with_release(job, result_columns(result, written, report), result.provider.get("guarantee"))


def _division(task: PrepareTask | UnitTask | GatherTask) -> Division:
    division: Division = pickle.loads(task.division)  # noqa: S301 - a worker of this job made it
    return division


def _prepared(task: UnitTask | GatherTask, opened: ExitStack) -> Prepared | None:
    """Open the spools of the preparation, if the job has one."""
    if task.prepared is None:
        return None
    data, spools = pickle.loads(task.prepared)  # noqa: S301 - a worker of this job made it
    return Prepared(
        data,
        tuple(opened.enter_context(SpoolReader(task.job.spool_folder, spool)).parts() for spool in spools),
    )


def _sharing(provider: Provider[Any]) -> Sharing[Any]:
    sharing = provider.scaling.sharing
    assert sharing is not None
    return sharing


def _run(
    task: SwapTask, params: Params, source: BlobTable, scratch: Scratch, prepared: Prepared | None = None
) -> Run[Any]:
    stream = Stream(task.seed, task.service, task.revision)
    return Run(source, params, stream, Resources(scratch, task.memory_bytes), prepared)
