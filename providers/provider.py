"""What a provider is: a declaration that the service, the docs and the tests read."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from providers.params import Params
from providers.radix import IndexArray
from providers.rng import Stream
from providers.storage import Room, Source, Spool

P = TypeVar("P", bound=Params)

EVENTS_SHOWN = 100
"""At most so many events are listed one by one; `Events.counts` counts them all."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one row (0-based, in the source), or to a field or the table as a whole."""

    code: str
    message: str
    row: int | None = None
    field: str | None = None


@dataclass(slots=True)
class Events:
    """Events in the order of rows: the first `EVENTS_SHOWN` listed, all of them counted by code."""

    listed: list[Event] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        """Record one event."""
        self.counts[event.code] += 1
        if len(self.listed) < EVENTS_SHOWN:
            self.listed.append(event)

    def add_rows(self, code: str, message: str, rows: Any, field_name: str | None = None) -> None:
        """Record the same event for many rows (array of row numbers) without a list of them all."""
        self.counts[code] += len(rows)
        for row in rows[: max(0, EVENTS_SHOWN - len(self.listed))]:
            self.listed.append(Event(code, message, int(row), field_name))


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Rows in the smallest, the median and the largest group; all 0 where there is no group."""

    smallest: int
    median: float
    largest: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures that every report says, whatever the provider."""

    rows: int
    groups: int
    group_size: GroupSize
    took_part: int
    """Rows that took part in an exchange of at least one swap field."""
    took_part_by_field: dict[str, int]
    changed: dict[str, int]
    """For each swap field the rows whose value differs from the source's. An exchange of equal
    values protects nobody, so this is less than or equal to `took_part_by_field`, before
    suppression."""
    suppressed: int
    """Rows in which a value was nulled, replaced, or that were dropped."""
    unswapped: int
    """Rows in which at least one swap field kept its place."""
    unswapped_reasons: dict[str, int]
    """Why: `alone`, `group_too_small`, `null` (nulls: keep), `rate` (not drawn); rows for each."""
    achieved_rate: float
    """Mean over the swap fields of the share of the rows that took part."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do, found without a single random draw."""

    rows: int
    groups: int
    group_size: GroupSize
    unswappable_rows: int
    unswappable_groups: int
    estimated_memory_bytes: int
    """Peak of the worker beyond its idle size: source, destination, codes and orders."""


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The destination table and everything the report says of it."""

    table: pa.Table
    summary: Summary
    events: Events
    provider: dict[str, Any] = field(default_factory=dict)
    """The provider's own figures."""
    measures: dict[str, Any] = field(default_factory=dict)
    """Key in `providers.measures.MEASURES` -> value, of the measures that the run itself gives."""
    origin: IndexArray | None = field(default=None, repr=False)
    """The source's row of each row of the destination; None where it is the row of the same number.
    A secret: it undoes a shuffle. For the measures only, in the worker; never written or told."""


class Progress(Protocol):
    """Told how far the work is; may be called from the provider's thread at any moment."""

    def __call__(self, fraction: float, stage: str) -> None:
        """`fraction` of the whole is done (0 to 1); `stage` names what is being done."""


def no_progress(fraction: float, stage: str) -> None:
    """Progress that nobody looks at."""


def part_of(progress: Progress, start: float, end: float, of: str = "") -> Progress:
    """The progress of a part of the whole: its own fractions 0 to 1 are told as `start` to `end`.

    Work that goes over the rows again does not go back. ``of`` names the part before each of its stages.
    """
    farthest = 0.0

    def told(fraction: float, stage: str) -> None:
        nonlocal farthest
        farthest = max(farthest, min(1.0, fraction))
        progress(start + (end - start) * farthest, f"{of}: {stage}" if of else stage)

    return told


@dataclass(frozen=True, slots=True)
class Streamed:
    """A destination that comes in pieces."""

    schema: pa.Schema
    pieces: Iterator[pa.Table]
    """All rows in order, of this schema."""
    result: Callable[[], SwapResult]
    """What the report says, its table without rows; to be called when the pieces have ended."""


@dataclass(frozen=True, slots=True)
class Run(Generic[P]):
    """A run out of core: what is swapped, how, and what that may use."""

    source: Source
    params: P
    """Checked."""
    stream: Stream
    room: Room


@dataclass(frozen=True, slots=True)
class Division:
    """A run cut into units, which any workers may do, in any order; it travels between processes."""

    units: tuple[Any, ...]
    """What tells each unit from the others."""
    parts: int
    """In how many parts each unit puts its rows aside."""
    common: Any = None
    """What was found out of the whole table."""


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What a unit has left behind."""

    rows: Spool
    figures: Any
    """What it adds to the report."""


@dataclass(frozen=True, slots=True)
class Sharing(Generic[P]):
    """How the units of one run are done by several workers, with the same result to the last bit."""

    divide: Callable[[Run[P], Progress, int], Division]
    """(run, progress, wanted number of units) -> division; raises what `swap` raises of the source."""
    work: Callable[[Run[P], Division, int, Spool], Any]
    """(run, division, number of the unit, where its rows go) -> its figures."""
    gather: Callable[[Run[P], Progress, Division, Sequence[UnitDone]], Streamed]
    """(run, progress, division, all units in their order) -> destination."""
    from_rows: int | None = None
    """From so many rows on, also what fits in memory is shared; None: only what does not."""


@dataclass(frozen=True, slots=True)
class Scaling(Generic[P]):
    """What a provider reads, what memory that takes, and how it works where that is not there.

    A field that a provider neither looks at nor changes passes by it from source to destination, batch
    by batch. Where even the others do not fit, a provider that can runs *out of core*: it cuts the
    table along its own groups into parts that are put aside and worked on one after the other.
    """

    reads: Callable[[P, pa.Schema], tuple[str, ...]]
    """(checked params, schema) -> the fields that `swap` looks at or changes."""
    memory: Callable[[P, int, int], int]
    """(params, rows, bytes of the fields read) -> about the peak of `swap`, those fields included."""
    cut: str
    """How the table is cut where it does not fit, or why it is not: for the service's page."""
    swap: Callable[[Source, P, Stream, Progress, Room], Streamed] | None = None
    """The swap out of core; None where the fields that are read must fit in memory."""
    can_cut: Callable[[P], bool] = lambda params: True
    """(checked params) -> whether they let it run out of core, where it can at all."""
    sharing: Sharing[P] | None = None
    """How several workers do it; None where one does."""


@dataclass(frozen=True, slots=True)
class Provider(Generic[P]):
    """One service: what it is called, what it takes, what it does and what it promises."""

    identifier: str
    title: str
    summary: str
    revision: int
    """Raised whenever a change alters an output for a given seed."""
    params: type[P]
    check: Callable[[P, pa.Schema], P]
    """(params, schema) -> params with every name resolved; raises ParameterError. No data."""
    plan: Callable[[pa.Table, P], Plan]
    """(table, checked params) -> what `swap` would do."""
    swap: Callable[[pa.Table, P, Stream, Progress], SwapResult]
    """(table, checked params, stream, progress) -> result. The table is never modified."""
    guarantees: tuple[str, ...]
    """What stays as it is, and what an intruder cannot learn."""
    changes: tuple[str, ...]
    """What does not stay as it is."""
    limits: tuple[str, ...]
    """What it does not protect against, in plain words: it stands in every report."""
    scaling: Scaling[P]
    cost: str
    """Time and memory in the number of rows n, fields p and the method's own parameters."""
    instead: tuple[str, ...]
    """When to choose which other service."""
    references: tuple[str, ...]
    errata: tuple[str, ...] = ()
    """Errors of the source, and what is done in their place."""
