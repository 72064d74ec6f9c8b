"""Declaration of a service: Provider, Scaling, Sharing and their callables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from providers.params import MODELS, Params
from providers.progress import Progress
from providers.randomness.chacha20 import Stream
from providers.results import Event, Plan, SwapResult
from providers.sections import Section
from providers.storage import Resources, Scratch, Source, Spool
from providers.tables.series_pairs import SeriesPairs

P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True)
class StreamedResult:
    """Destination of an out-of-core run, produced table by table."""

    schema: pa.Schema
    pieces: Iterator[pa.Table]
    """Tables of this schema that together hold all rows, in order."""
    result: Callable[[], SwapResult]
    """Return the result, with a table without rows. Call it once `pieces` is exhausted."""
    unchanged: frozenset[str] = frozenset()
    """Fields known to have the values of the source in all of its rows; others may have them too."""


@dataclass(frozen=True, slots=True)
class StreamedSection:
    """Consecutive rows of the destination, produced table by table."""

    schema: pa.Schema
    pieces: Iterator[pa.Table]
    """Tables of this schema that together hold all rows of the section, in order."""
    figures: Callable[[], Any]
    """Return the figures that the section adds to the report. Call it once `pieces` is exhausted."""
    unchanged: frozenset[str] = frozenset()
    """Fields known to have the values of the source in all rows of the destination; others may have them too.
    """


@dataclass(frozen=True, slots=True)
class Prepared:
    """Results of the preparation of a divided run, for all of its units."""

    data: Any
    """Plain data; pickled between processes."""
    spools: tuple[Spool, ...]
    """Rows that the units read, or the pieces if there are some."""
    pieces: int = 0
    """Number of pieces in which several workers complete the preparation; 0: it is complete."""
    completed: tuple[Prepared, ...] = ()
    """Results of `Sharing.complete`, in the order of the pieces: units get them in place of `spools`."""


@dataclass(frozen=True, slots=True)
class Run(Generic[P]):
    """Out-of-core run: the source, the checked parameters, the random stream and the resources."""

    source: Source
    params: P
    """Parameters as `Provider.check` returned them."""
    stream: Stream
    resources: Resources
    prepared: Prepared | None = None
    """Results of `Sharing.prepare` and `Sharing.complete`, for units and assembly of a divided run."""

    def piece_spools(self) -> list[Spool]:
        """Return the first spool of each piece; each piece has one."""
        assert self.prepared is not None  # noqa: S101 - the pieces are complete
        return [piece.spools[0] for piece in self.prepared.completed]


@dataclass(frozen=True, slots=True)
class Division:
    """Run divided into units, which any worker can do in any order. It is pickled between processes."""

    units: tuple[Any, ...]
    """Description of each unit, in the order of their numbers."""
    parts: int
    """Number of partitions into which each unit scatters its rows."""
    common: Any = None
    """Data that every unit needs, computed from the whole table."""
    params: Any = None
    """Checked parameters of the run, completed by values that the whole table determines; None: unchanged."""
    starts: tuple[int, ...] = ()
    """First row of each range of the source: part p of a unit's spool has rows of the range p modulo the
    number of ranges. Empty: only a section of all rows can be assembled."""
    dropped: int | None = None
    """First of the last parts, one for each range, which have the places of the rows that the run drops (see
    `providers.sections.sections_of_kept`); None: it drops none."""
    pieces: int = 0
    """Number of pieces that `Sharing.complete` makes before the units, of a service without `prepare`."""
    whole_pieces: int = 0
    """Number of the first of these pieces that read all rows, while each of the others reads a range."""
    piece_files: tuple[int, ...] = ()
    """First part of each unit in the spool of a piece, if a unit reads no parts of others; empty: every unit
    reads all parts."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """Rows and partial figures of a finished unit."""

    rows: Spool
    figures: Any
    """Figures that the unit adds to the report."""


@dataclass(frozen=True, slots=True)
class Sharing(Generic[P]):
    """Functions that divide one run among several workers; the result has the same bytes as without them."""

    divide: Callable[[Run[P], Progress, int], Division]
    """(run, progress, wanted number of units) -> division; raises what `swap` raises of the source."""
    work: Callable[[Run[P], Division, int, Spool], Any]
    """(run, division, number of the unit, spool for its rows) -> figures of the unit."""
    assemble: Callable[[Run[P], Division, Sequence[UnitResult], Section], StreamedSection]
    """(run, division, all units in their order, section) -> rows of the section. The spools have the parts
    of the section's ranges. An error that concerns all rows is left to `finish`, unless the section is all
    there is."""
    finish: Callable[[Run[P], Division, Sequence[Any], Sequence[Any]], SwapResult]
    """(run, division, figures of all units, figures of all sections, both in order) -> result, with a table
    without rows. Its work does not depend on the number of rows, apart from figures of small tables."""
    prepare: Callable[[Run[P], Progress, Division, Scratch], Prepared] | None = None
    """(run, progress, division, scratch space whose rows all units can read) -> data and rows for all units;
    None: the units need no more than the division."""
    complete: Callable[[Run[P], Division, int, Scratch], Prepared] | None = None
    """(run with the preparation if there is one, division, number of a piece, scratch space as for `prepare`)
    -> data and rows of the piece for the units."""
    from_rows: int | None = None
    """Minimum number of rows from which an in-memory run is divided too; None: never."""


def gathered(
    sharing: Sharing[P], run: Run[P], division: Division, done: Sequence[UnitResult]
) -> StreamedResult:
    """Assemble the destination of a divided run as one section."""
    streamed = sharing.assemble(run, division, done, Section(0, run.source.rows))
    of_units = [unit.figures for unit in done]
    return StreamedResult(
        streamed.schema,
        streamed.pieces,
        lambda: sharing.finish(run, division, of_units, [streamed.figures()]),
        streamed.unchanged,
    )


@dataclass(frozen=True, slots=True)
class Scaling(Generic[P]):
    """Fields that a provider reads, the memory that they take, and the run for tables that do not fit.

    A field that a provider neither reads nor changes is copied from source to destination, batch by batch. If
    the fields that it reads do not fit in memory, a provider with `swap` runs *out of core*: it cuts the
    table along its own groups into partitions, stores them in scratch space, and runs them one by one.
    """

    reads: Callable[[P, pa.Schema], tuple[str, ...]]
    """(checked params, schema) -> names of the fields that `swap` reads or changes."""
    memory: Callable[[P, int, int], int]
    """(params, rows, bytes of the fields read) -> estimated peak of `swap` in bytes, with these fields."""
    cut: str
    """Sentences for the service's page: how a table that does not fit is cut, or why it is not."""
    swap: Callable[[Source, P, Stream, Progress, Resources], StreamedResult] | None = None
    """Out-of-core run; None where the fields that are read must fit in memory."""
    can_cut: Callable[[P], bool] = lambda params: True
    """(checked params) -> whether these parameters can run out of core."""
    least: Callable[[P, int], int] = lambda params, rows: 0
    """(checked params, rows) -> least bytes that `swap` takes, in addition to the fields read."""
    sharing: Sharing[P] | None = None
    """Division of a run among several workers; None where one worker does the whole run."""


@dataclass(frozen=True, slots=True)
class Provider(Generic[P]):
    """Declaration of one service: identifier, parameters, functions, guarantees and limits."""

    identifier: str
    title: str
    summary: str
    revision: int
    """Raised whenever a change alters an output for a given seed."""
    draws_revision: int
    """Last revision that altered the output of every table; part of the key of all random draws. A change
    that alters some outputs raises only `revision`, and all other outputs stay the same: jobs of this and
    later revisions are rerun, and the digest of their rows decides."""
    params: type[P]
    check: Callable[[P, pa.Schema], P]
    """(params, schema) -> params with every name resolved; raises ParameterError. No data."""
    plan: Callable[[pa.Table, P], Plan]
    """(table, checked params) -> what `swap` would do."""
    swap: Callable[[pa.Table, P, Stream, Progress], SwapResult]
    """(table, checked params, stream, progress) -> result. The table is never modified."""
    guarantees: tuple[str, ...]
    """Properties of the table that are kept, and facts that an intruder cannot learn."""
    changes: tuple[str, ...]
    """Properties of the table that change."""
    limits: tuple[str, ...]
    """Risks against which the service does not protect, in plain words. Every report includes them."""
    repeated_releases: tuple[str, ...]
    """Attacks on several releases of one source with different seeds, with the share that they recover."""
    scaling: Scaling[P]
    cost: str
    """Time and memory in the number of rows n, fields p and the method's own parameters."""
    instead: tuple[str, ...]
    """Cases in which another service fits better, and which one."""
    references: tuple[str, ...]
    errata: tuple[str, ...] = ()
    """Errors of the source, and the correction that the service implements."""
    special_values: tuple[str, ...] = ()
    """Treatment of tables with few or no rows, equal rows, nulls, NaN, -0.0 and integers beyond 2^53."""
    swap_series: Callable[[pa.Table, P, Stream, Progress, SeriesPairs | None], SwapResult] | None = None
    """`swap` with the pairs of a series, if the parameters name one; None: the service has no series."""
    notices: Callable[[P, pa.Schema], tuple[Event, ...]] = lambda params, schema: ()
    """(checked params, schema of the whole source) -> events that need no row.

    `swap` may see fewer fields than this schema has.
    """
    check_rows: Callable[[P, int], None] = lambda params, rows: None
    """(checked params, rows of the source) -> None; raises the SourceError that `swap` raises of every table
    of as many rows. `swap` does not rely on it."""

    def __post_init__(self) -> None:
        """Register the parameters, so that other services' messages can point to this service."""
        MODELS[self.identifier] = self.params

    def stream(self, seed: bytes) -> Stream:
        """Return the random stream of a run with this seed."""
        return Stream(seed, self.identifier, self.draws_revision)
