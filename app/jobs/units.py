"""What workers do with a job that is shared out: it is divided, its units are done, and put together.

Each of the three is a task of its own, in a process of its own: memory and time are limited, and a
cancelled one is killed, as a job that one worker does. Only the units run side by side.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.engine.engine import Outcome
from app.engine.progress import ProgressFile
from app.jobs.moving import fits
from app.jobs.run import answer_of, provider_of, report_of, run_swap, tells_the_callers_errors, write_streamed
from app.jobs.tasks import GatherTask, SwapTask, UnitTask
from app.store.blob_table import BlobTable
from app.store.scratch import SealedScratch, ShelfReader, ShelfWriter
from providers.params import Params
from providers.provider import Provider, Run, Sharing, UnitDone, part_of
from providers.rng import Stream
from providers.storage import Room, Scratch

DIVISION = "division"
"""What the answer of a job that is to be shared out holds, and no other one."""

DIVIDED, GATHERED = 0.1, 0.8
"""Of the whole, at a guess: when it has been divided, and when all units are done."""


def run_or_divide(task: SwapTask) -> Outcome:
    """The job's answer; of one that is to be shared out, its division."""
    divided = _divide(task) if task.units > 1 else {}
    return divided or run_swap(task)


@tells_the_callers_errors
def _divide(task: SwapTask) -> dict[str, Any]:
    """The division; nothing where one worker is to do the job."""
    provider, params = provider_of(task)
    source = BlobTable(task.source, task.rows)
    sharing = _sharing_of(task, provider, params, source)
    if sharing is None:
        return {}
    with ProgressFile(task.progress_path) as progress, SealedScratch(Path(task.scratch_folder)) as scratch:
        run = _run(task, params, source, scratch)
        return {DIVISION: sharing.divide(run, part_of(progress, 0.0, DIVIDED), task.units)}


def _sharing_of(
    task: SwapTask, provider: Provider[Any], params: Params, source: BlobTable
) -> Sharing[Any] | None:
    """How the job is shared out; None where one worker is to do it."""
    sharing = provider.scaling.sharing
    if sharing is None or task.report == "full" or task.options.get("candidates"):
        return None
    long = sharing.from_rows is not None and task.rows >= sharing.from_rows
    return sharing if long or not fits(provider, source, params, task.memory_bytes) else None


@tells_the_callers_errors
def run_unit(task: UnitTask) -> dict[str, Any]:
    """Do one unit, and say where its rows are."""
    job = task.job
    provider, params = provider_of(job)
    with SealedScratch(Path(job.scratch_folder)) as scratch, ShelfWriter(job.shelves) as shelf:
        run = _run(job, params, BlobTable(job.source, job.rows), scratch)
        spool = shelf.spool(task.division.parts, job.memory_bytes // 10)
        figures = _sharing(provider).work(run, task.division, task.number, spool)
        return {"shelf": shelf.shelf(spool), "figures": figures}


@tells_the_callers_errors
def run_gather(task: GatherTask) -> dict[str, Any]:
    """Put the units together, write the destination, and say what the job's row will hold."""
    job = task.job
    provider, params = provider_of(job)
    with ExitStack() as opened:
        progress = opened.enter_context(ProgressFile(job.progress_path))
        scratch = opened.enter_context(SealedScratch(Path(job.scratch_folder)))
        run = _run(job, params, BlobTable(job.source, job.rows), scratch)
        done = [
            UnitDone(opened.enter_context(ShelfReader(shelf)).parts(), figures)
            for shelf, figures in task.done
        ]
        streamed = _sharing(provider).gather(run, part_of(progress, GATHERED, GATHERED), task.division, done)
        result, digest, rows = write_streamed(job, streamed, job.rows, part_of(progress, GATHERED, 1.0))
        progress(1.0, "written")
    report = None if job.report == "none" else report_of(job.service, result, job.seed_bits)
    return answer_of(result, digest, rows, report)


def _sharing(provider: Provider[Any]) -> Sharing[Any]:
    sharing = provider.scaling.sharing
    assert sharing is not None
    return sharing


def _run(task: SwapTask, params: Params, source: BlobTable, scratch: Scratch) -> Run[Any]:
    stream = Stream(task.seed, task.service, task.revision)
    return Run(source, params, stream, Room(scratch, task.memory_bytes))
