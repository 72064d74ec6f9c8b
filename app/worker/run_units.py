"""Run a divided job in workers: divide it, prepare it, run its units, assemble their rows.

Not every provider has a preparation, and not every preparation has pieces that complete it. The destination
is assembled in sections, which are the parts of its blob; a last task joins their digests and reports. If
rows are dropped, a task before the sections finds where they begin. A destination of one section is gathered
by one task instead. Each of these is a separate task in a separate process. Its memory and time are limited,
and a cancelled one is killed, like a job of a single worker. The units run in parallel, and so do the pieces
and the sections.
"""

import bisect
import pickle
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from app.engine.engine import Outcome
from app.engine.progress_file import ProgressFile
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.scratch import SealedScratch, SealedSpool, SharedSpool, SpoolReader, SpoolWriter
from app.store.blobs.section_files import join_sections, write_section
from app.worker.digest_sets import has_form
from app.worker.headline import with_headline
from app.worker.memory import fits
from app.worker.release_check import with_release
from app.worker.run_swap import (
    WrittenTable,
    add_notices,
    destination_space,
    known_digests,
    provider_of,
    refuse_other_rows,
    report_of,
    result_columns,
    returns_user_errors,
    run_swap,
    write_streamed,
)
from app.worker.tasks import (
    AlignTask,
    DoneUnit,
    FinishTask,
    GatherTask,
    PieceTask,
    PrepareTask,
    SectionTask,
    SwapTask,
    UnitTask,
)
from providers import PROVIDERS
from providers.out_of_core.partitions import Span
from providers.params import Params
from providers.progress import sub_progress
from providers.provider import Division, Prepared, Provider, Run, Sharing, UnitResult, gathered
from providers.results import SwapResult
from providers.sections import Sections, sections_of, sections_of_kept
from providers.storage import Resources, Scratch, Spool
from providers.tables.digest import DigestForm

DIVISION, UNITS, PREPARES, SECTIONS = "division", "units", "prepares", "sections"
"""Keys of the result of a divided job: its division with the sections, pickled for workers; its number of
units; whether a preparation runs before them; and for each section the numbers of a unit's files that it
reads."""

DROPPED = "dropped"
"""Key of the number of a unit's file with the places of dropped rows, after which the sections are aligned;
None: they are final."""

PREPARED, PIECES, PIECE_FILES = "prepared", "pieces", "piece files"
"""Keys of the data and spools of a preparation, pickled for workers; of the number of pieces that complete
it, or that a job without a preparation has; and of the number of files of a piece: one for each unit, or one
that all units read. The results of a piece for a unit have keys of their own (`file_key`)."""

WHOLE_PIECES = "whole pieces"
"""Key of the number of the first pieces that read all rows, of a job without a preparation."""

UNIT, FILES, SPOOL, SECONDS = "unit", "files", "spool", "seconds"
"""Keys of a unit's figures, pickled for the workers that assemble its rows; of the number of files of its
spool, which have keys of their own (`file_key`); of the name of these files without their numbers; and of the
unit's duration in seconds."""

SECTION, PART = "section", "part"
"""Keys of a stored section with its figures, pickled for the worker that joins them, and of the token of its
part of the blob."""

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
        sections = sections_of(task.rows, division.starts, _most_sections(task))
        aligned = division.dropped is not None and len(sections.sections) > 1
        return {
            UNITS: len(division.units),
            PREPARES: sharing.prepare is not None,
            PIECES: division.pieces,
            PIECE_FILES: max(1, len(division.piece_files)),
            WHOLE_PIECES: division.whole_pieces,
            DROPPED: sections.files if aligned else None,
            **_in_sections(division, sections),
        }


def _in_sections(division: Division, sections: Sections) -> dict[str, Any]:
    """Return the values of `DIVISION` and `SECTIONS`."""
    return {
        DIVISION: pickle.dumps((division, sections)),
        SECTIONS: [sections.files_of(each, division.starts) for each in sections.sections],
    }


def _most_sections(task: SwapTask) -> int:
    """Return the most sections of the destination; 1 if its digest of the older form may be needed."""
    older = task.digest_form is DigestForm.WHOLE
    if task.release is not None:  # an earlier release in this form is compared with the whole destination
        earlier = task.release.earlier
        for number in range(len(earlier.sources)):
            older |= has_form(earlier.source(number).destinations, DigestForm.WHOLE)
    return 1 if older else task.units


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
        division, _ = _division(task)
        made = prepare(run, sub_progress(progress, DIVIDED, BEGUN), division, writer)
        prepared = pickle.dumps((made.data, _shared(made, writer), made.pieces))
    return {PREPARED: prepared, PIECES: made.pieces, SPOOL: writer.name}


@returns_user_errors
def run_piece(task: PieceTask) -> dict[str, Any]:
    """Complete a piece of the preparation. Return its results for each unit, its spools, and its duration."""
    began = time.monotonic()
    job, (division, _) = task.job, _division(task)
    provider, params = provider_of(job)
    complete = _sharing(provider).complete
    assert complete is not None  # the division or the preparation says so
    firsts = division.piece_files or (0,)

    def file_of_part(part: int) -> int:
        return bisect.bisect_right(firsts, part) - 1

    with (
        ProgressFile(job.progress_path),
        SealedScratch(Path(job.scratch_folder)) as scratch,
        SpoolWriter(job.spool_folder, task.spool_prefix, len(firsts), file_of_part) as writer,
        ExitStack() as opened,
    ):
        run = _run(job, params, BlobTable(job.source, job.rows), scratch, _prepared(task, (), opened))
        made = complete(run, division, task.number, writer)
        shared = _shared(made, writer)
        completed = {
            file_key(number): pickle.dumps((made.data, [[files[number]] for files in shared]))
            for number in range(len(firsts))
        }
    return {**completed, SPOOL: writer.name, SECONDS: time.monotonic() - began}


def _shared(prepared: Prepared, writer: SpoolWriter) -> list[list[SharedSpool]]:
    """Return for each spool the data with which other processes read it."""
    shared = []
    for spool in prepared.spools:
        assert isinstance(spool, SealedSpool)  # the writer made it
        shared.append(writer.shared(spool))
    return shared


@returns_user_errors
def run_unit(task: UnitTask) -> dict[str, Any]:
    """Run one unit. Return its figures, the files with its rows, and how long it took."""
    began = time.monotonic()
    job, (division, sections) = task.job, _division(task)
    provider, params = provider_of(job)
    files, file_of_part = sections.files, sections.file_of_part
    if division.dropped is not None:  # the places of dropped rows are in a file of their own, the last one
        files, file_of_part = files + 1, partial(_file_of_part, division.dropped, sections)
    with (
        ProgressFile(job.progress_path),  # for the note of a worker that outlives the service
        SealedScratch(Path(job.scratch_folder)) as scratch,
        SpoolWriter(job.spool_folder, task.spool_prefix, files, file_of_part) as writer,
        ExitStack() as opened,
    ):
        prepared = _prepared(task, task.pieces, opened)
        run = _run(job, params, BlobTable(job.source, job.rows), scratch, prepared)
        spool = writer.spool(division.parts, job.memory_bytes // 10)
        figures = _sharing(provider).work(run, division, task.number, spool)
        shared = {file_key(number): pickle.dumps(file) for number, file in enumerate(writer.shared(spool))}
    return {
        UNIT: pickle.dumps(figures),
        FILES: files,
        **shared,
        SPOOL: writer.name,
        SECONDS: time.monotonic() - began,
    }


def _file_of_part(dropped: int, sections: Sections, part: int) -> int:
    """Return the file of a part; ``dropped``: the first part with places of dropped rows."""
    return sections.files if part >= dropped else sections.file_of_part(part)


def file_key(number: int) -> str:
    """Return the key of a file of a unit's or piece's spool, pickled for the workers that read it."""
    return f"file {number}"


def done_units(units: Sequence[Mapping[str, Any]], files: Collection[int] | None) -> tuple[DoneUnit, ...]:
    """Return the results of all units for a task that reads some files of their spools; None: all files.

    ``units``: what `run_unit` has returned.
    """
    return tuple(
        DoneUnit(
            unit[UNIT],
            tuple(unit[file_key(number)] for number in (range(unit[FILES]) if files is None else files)),
        )
        for unit in units
    )


@returns_user_errors
def run_gather(task: GatherTask) -> dict[str, Any]:
    """Assemble the whole destination, write it, and return the columns of the job's row."""
    job, (division, _) = task.job, _division(task)
    provider, params = provider_of(job)
    with ExitStack() as opened:
        progress = opened.enter_context(ProgressFile(job.progress_path))
        scratch = opened.enter_context(SealedScratch(Path(job.scratch_folder)))
        held_space = opened.enter_context(destination_space(job))
        source = BlobTable(job.source, job.rows)
        run = _run(job, params, source, scratch, _prepared_data(task))
        streamed = gathered(_sharing(provider), run, division, _done(task, opened))
        writing = sub_progress(progress, GATHERED, 1.0)
        result, written = write_streamed(job, streamed, source, writing, held_space)
        progress(1.0, "written")
    return _columns(job, provider, params, source, result, written)


@returns_user_errors
def run_align(task: AlignTask) -> dict[str, Any]:
    """Cut the destination into sections without the dropped rows. Return it as `_divide` does."""
    job, (division, sections) = task.job, _division(task)
    assert division.dropped is not None  # the division says so
    with ProgressFile(job.progress_path), ExitStack() as opened:
        spools = [unit.rows for unit in _done(task, opened)]
        places = Span(spools, division.dropped, len(division.starts))
        aligned = sections_of_kept(sections, job.rows, division.starts, places.read, _most_sections(job))
    return _in_sections(division, aligned)


@returns_user_errors
def run_section(task: SectionTask) -> dict[str, Any]:
    """Assemble one section and write it. Return it with its figures, its token, and how long it took."""
    began = time.monotonic()
    job, (division, sections) = task.job, _division(task)
    provider, params = provider_of(job)
    section = sections.sections[task.number]
    with ExitStack() as opened:
        opened.enter_context(ProgressFile(job.progress_path))
        scratch = opened.enter_context(SealedScratch(Path(job.scratch_folder)))
        source = BlobTable(job.source, job.rows)
        run = _run(job, params, source, scratch)
        streamed = _sharing(provider).assemble(run, division, _done(task, opened), section)
        share = source.nbytes * (section.stop - section.first) // max(1, job.rows)
        known = known_digests(source, streamed.schema, streamed.unchanged)
        stored = write_section(job.destination, streamed.schema, streamed.pieces, share, known)
        figures = streamed.figures()
    return {
        SECTION: pickle.dumps((stored, streamed.unchanged, figures)),
        PART: stored.part.token,
        SECONDS: time.monotonic() - began,
    }


@returns_user_errors
def run_finish(task: FinishTask) -> dict[str, Any]:
    """Join the sections, and return the columns of the job's row."""
    job, (division, _) = task.job, _division(task)
    provider, params = provider_of(job)
    found = [pickle.loads(section) for section in task.sections]  # noqa: S301 - workers of this job made them
    with (
        ProgressFile(job.progress_path) as progress,
        SealedScratch(Path(job.scratch_folder)) as scratch,
    ):
        source = BlobTable(job.source, job.rows)
        run = _run(job, params, source, scratch, _prepared_data(task))
        units = [pickle.loads(figures) for figures in task.units]  # noqa: S301 - as above
        result = _sharing(provider).finish(run, division, units, [figures for _, _, figures in found])
        schema, (_, unchanged, _) = result.table.schema, found[0]
        known = known_digests(source, schema, unchanged)
        written = WrittenTable(
            *join_sections(job.destination, schema, [stored for stored, _, _ in found], known), None
        )
        progress(1.0, "written")
    return _columns(job, provider, params, source, result, written)


def _columns(
    job: SwapTask,
    provider: Provider[Any],
    params: Params,
    source: BlobTable,
    result: SwapResult,
    written: WrittenTable,
) -> dict[str, Any]:
    """Return the columns of the job's row. Raises OtherRows."""
    refuse_other_rows(job, written)
    add_notices(result, provider, params, source.schema)
    report = None
    if job.report != "none":
        report = with_headline(report_of(job.service, result, job.seed_bits), job.options, None, params)
    return with_release(job, result_columns(result, written, report), result.provider.get("guarantee"))


def _division(
    task: PrepareTask | PieceTask | UnitTask | GatherTask | AlignTask | SectionTask | FinishTask,
) -> tuple[Division, Sections]:
    found: tuple[Division, Sections] = pickle.loads(task.division)  # noqa: S301 - a worker of this job made it
    return found


def _done(task: GatherTask | AlignTask | SectionTask, opened: ExitStack) -> list[UnitResult]:
    """Open the files of all units that the task reads."""
    done = []
    for unit in task.done:
        figures, *files = map(pickle.loads, (unit.figures, *unit.files))  # workers of this job made them
        reader = opened.enter_context(SpoolReader(task.job.spool_folder, files))
        done.append(UnitResult(reader.parts(), figures))
    return done


def _prepared(task: PieceTask | UnitTask, pieces: Sequence[bytes], opened: ExitStack) -> Prepared | None:
    """Open the spools of the pieces, or of the preparation if there are no pieces; None if there is neither.

    ``pieces``: their results for a unit.
    """
    if task.prepared is None and not pieces:
        return None

    def opened_spools(shared: Sequence[Sequence[SharedSpool]]) -> tuple[Spool, ...]:
        folder = task.job.spool_folder
        return tuple(opened.enter_context(SpoolReader(folder, files)).parts() for files in shared)

    data, spools, number = None, [], 0
    if task.prepared is not None:
        data, spools, number = pickle.loads(task.prepared)  # noqa: S301 - a worker of this job made it
    completed = []
    for piece in pieces:
        of_piece, shared = pickle.loads(piece)  # noqa: S301 - as above
        completed.append(Prepared(of_piece, opened_spools(shared)))
    return Prepared(data, () if pieces else opened_spools(spools), number, tuple(completed))


def _prepared_data(task: GatherTask | FinishTask) -> Prepared | None:
    """Return the data of the preparation without rows, if the job has one."""
    if task.prepared is None:
        return None
    return Prepared(pickle.loads(task.prepared)[0], ())  # noqa: S301 - a worker of this job made it


def _sharing(provider: Provider[Any]) -> Sharing[Any]:
    sharing = provider.scaling.sharing
    assert sharing is not None
    return sharing


def _run(
    task: SwapTask, params: Params, source: BlobTable, scratch: Scratch, prepared: Prepared | None = None
) -> Run[Any]:
    stream = PROVIDERS[task.service].stream(task.seed)
    return Run(source, params, stream, Resources(scratch, task.memory_bytes), prepared)
