"""Compare a swap out of core with the same swap in memory."""

import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from app.store.blobs.scratch import SealedScratch
from providers import PROVIDERS
from providers.errors import ProviderError
from providers.out_of_core.partitions import Span
from providers.progress import no_progress
from providers.provider import Division, Prepared, Run, Sharing, StreamedResult, UnitResult
from providers.results import SwapResult
from providers.sections import Sections, sections_of, sections_of_kept
from providers.storage import Resources, Scratch, Spool
from providers.tables.digest import table_digest
from providers.tables.joining import empty_table
from tests.naive.agreement import SEED

T = TypeVar("T")

SECTION_STEP = 48
"""Rows at whose multiples a section begins, in place of those of a digest's chunk: ranges end elsewhere."""


class TableSource:
    """A table in memory, read in batches of a given number of rows."""

    def __init__(self, table: pa.Table, batch_rows: int) -> None:
        self.schema = table.schema
        self.rows = table.num_rows
        self.nbytes = table.nbytes
        self._table = table
        self._batch_rows = batch_rows

    def batches(self, fields: Sequence[str], start: int = 0) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.schema.names if name in fields]
        return iter(self._table.select(names).slice(start).to_batches(max_chunksize=self._batch_rows))


def swap_out_of_core(
    service: str, table: pa.Table, parameters: dict[str, Any], memory: int, batch_rows: int
) -> SwapResult:
    """Run the provider out of core with this memory budget."""
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    stream = provider.stream(SEED)
    assert provider.scaling.swap is not None
    with SealedScratch(Path(tempfile.gettempdir())) as scratch:
        source = TableSource(table, batch_rows)
        return _whole(provider.scaling.swap(source, params, stream, no_progress, Resources(scratch, memory)))


def _sent(what: T) -> T:
    """Return a pickled copy, as another process receives it."""
    sent: T = pickle.loads(pickle.dumps(what))  # noqa: S301 - our own
    return sent


def _whole(streamed: StreamedResult) -> SwapResult:
    pieces = list(streamed.pieces)
    for piece in pieces:
        assert piece.schema == streamed.schema
    whole = pa.concat_tables([empty_table(streamed.schema), *pieces])
    found = streamed.result()
    return SwapResult(whole, found.summary, found.events, found.provider, found.measures)


def swap_in_units(
    service: str, table: pa.Table, parameters: dict[str, Any], memory: int, batch_rows: int, wanted: int
) -> SwapResult:
    """Run the provider in units, last to first, each with pickled copies as in another process."""
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    sharing, folder = provider.scaling.sharing, Path(tempfile.gettempdir())
    assert sharing is not None
    with SealedScratch(folder) as scratch:
        stream = provider.stream(SEED)
        run = Run(TableSource(table, batch_rows), params, stream, Resources(scratch, memory))
        division = _sent(sharing.divide(run, no_progress, wanted))
        if sharing.prepare is not None:
            made = sharing.prepare(run, no_progress, division, scratch)
            run = replace(run, prepared=replace(made, data=_sent(made.data)))
        run = replace(run, prepared=_completed(sharing, run, division, scratch))
        done = []
        for number in reversed(range(len(division.units))):
            spool = scratch.spool(division.parts, memory)
            figures = sharing.work(run, division, number, spool)
            done.append(UnitResult(spool, _sent(figures)))
        return _assembled(sharing, run, division, done[::-1], wanted)


def _completed(sharing: Sharing[Any], run: Run[Any], division: Division, scratch: Scratch) -> Prepared | None:
    """Return the preparation as units get it. Its pieces are completed last to first."""
    prepared = run.prepared
    pieces = division.pieces if prepared is None else prepared.pieces
    if not pieces:
        return prepared
    assert sharing.complete is not None
    completed = []
    for number in reversed(range(pieces)):
        piece = sharing.complete(run, division, number, scratch)
        completed.append(Prepared(_sent(piece.data), piece.spools))
    return Prepared(prepared.data if prepared else None, (), pieces, tuple(completed[::-1]))


def _assembled(
    sharing: Sharing[Any], run: Run[Any], division: Division, done: Sequence[UnitResult], wanted: int
) -> SwapResult:
    """Assemble the sections last to first, each with pickled copies as in another process."""
    cut = sections_of(run.source.rows, division.starts, wanted, SECTION_STEP)
    if division.dropped is not None:
        dropped = Span([unit.rows for unit in done], division.dropped, len(division.starts))
        cut = sections_of_kept(cut, run.source.rows, division.starts, dropped.read, wanted, SECTION_STEP)
    pieces, figures = [], []
    for section in reversed(cut.sections):
        files = cut.files_of(section, division.starts)
        units = [UnitResult(_OwnParts(unit.rows, cut, files), _sent(unit.figures)) for unit in done]
        streamed = sharing.assemble(run, division, units, section)
        rows = pa.concat_tables([empty_table(streamed.schema), *streamed.pieces])
        figures.append(_sent(streamed.figures()))
        pieces.append(rows)
    found = sharing.finish(run, division, [_sent(unit.figures) for unit in done], figures[::-1])
    whole = pa.concat_tables(pieces[::-1])
    assert all(piece.num_rows and piece.num_rows % SECTION_STEP == 0 for piece in pieces[:0:-1])
    assert whole.schema == found.table.schema
    return SwapResult(whole, found.summary, found.events, found.provider, found.measures)


class _OwnParts:
    """Spool of a unit of which a section has some files only; the other sections read theirs."""

    def __init__(self, spool: Spool, cut: Sections, files: Sequence[int]) -> None:
        self.parts = spool.parts
        self._spool = spool
        self._cut = cut
        self._files = files

    def add(self, part: int, table: pa.Table) -> None:
        raise AssertionError("a section writes to no spool")

    def rows(self, part: int) -> int:
        return self._spool.rows(part) if self._has(part) else 0

    def read(self, part: int) -> Iterator[pa.Table]:
        return self._spool.read(part) if self._has(part) else iter(())

    def clear(self, part: int) -> None:
        """Leave the rows: another section may read them."""

    def _has(self, part: int) -> bool:
        return self._cut.file_of_part(part) in self._files


def assert_same(
    service: str, table: pa.Table, parameters: dict[str, Any], memory: int, batch_rows: int, units: int = 1
) -> SwapResult | None:
    """The destination in memory, equal to that of the out-of-core run in every byte, as is the report.

    ``units``: number of units of the out-of-core run. Returns None if both runs end in the same error.
    """
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    stream = provider.stream(SEED)
    expected = _result_or_error(lambda: provider.swap(table, params, stream, no_progress))
    if units == 1:
        found = _result_or_error(lambda: swap_out_of_core(service, table, parameters, memory, batch_rows))
    else:
        given = service, table, parameters, memory, batch_rows, units
        found = _result_or_error(lambda: swap_in_units(*given))
    if isinstance(expected, ProviderError) or isinstance(found, ProviderError):
        assert (type(found), str(found)) == (type(expected), str(expected))
        return None
    assert table_digest(found.table) == table_digest(expected.table)
    assert found.table.schema.equals(expected.table.schema, check_metadata=True)
    assert found.summary == expected.summary
    assert found.events.counts == expected.events.counts
    assert found.events.listed == expected.events.listed
    assert found.measures == expected.measures
    assert found.provider == expected.provider
    return found


def _result_or_error(swap: Callable[[], SwapResult]) -> SwapResult | ProviderError:
    try:
        return swap()
    except ProviderError as error:
        return error
