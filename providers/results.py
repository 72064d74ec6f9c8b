"""Results of a run: events, group sizes, plan, summary, swap result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import IndexArray, Int64Array


@dataclass(frozen=True, slots=True)
class Event:
    """Event that concerns one row (its 0-based number in the source), a field, or the whole table."""

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
        """Record the same event for many rows without listing all of them.

        ``rows``: array of row numbers, ascending.
        """
        self.counts[code] += len(rows)
        for row in rows[: max(0, EVENTS_SHOWN - len(self.listed))]:
            self.listed.append(Event(code, message, int(row), field_name))


def append_events(events: Events, more: Events, first: int = 0) -> None:
    """Append events of later rows; their row numbers count from `first`."""
    events.counts.update(more.counts)
    for event in more.listed[: max(0, EVENTS_SHOWN - len(events.listed))]:
        row = None if event.row is None else event.row + first
        events.listed.append(Event(event.code, event.message, row, event.field))


def count_sizes(counter: Counter[int], sizes: Int64Array) -> None:
    """Add the number of groups of each size to the counter."""
    found, times = np.unique(sizes, return_counts=True)
    counter.update(dict(zip(found.tolist(), times.tolist(), strict=True)))


EVENTS_SHOWN = 100
"""Maximum number of events that are listed one by one; `Events.counts` counts all of them."""


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Rows in the smallest, the median and the largest group; all 0 where there is no group."""

    smallest: int
    median: float
    largest: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures that the report of every provider has."""

    rows: int
    groups: int
    group_size: GroupSize
    took_part: int
    """Rows that took part in an exchange of at least one swap field."""
    took_part_by_field: dict[str, int]
    changed: dict[str, int]
    """Swap field -> rows whose value differs from the source's, before suppression. An exchange of equal
    values changes nothing, so this is at most `took_part_by_field`."""
    suppressed: int
    """Rows in which a value was nulled or replaced, and rows that were dropped."""
    unswapped: int
    """Rows in which at least one swap field kept its place."""
    unswapped_reasons: dict[str, int]
    """Reason -> rows: `alone`, `group_too_small`, `null` (nulls: keep), `rate` (not drawn)."""
    achieved_rate: float
    """Mean over the swap fields of the share of the rows that took part."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Preview of a run, computed without a random draw."""

    rows: int
    groups: int
    group_size: GroupSize
    unswappable_rows: int
    unswappable_groups: int
    estimated_memory_bytes: int
    """Estimated peak memory of the worker beyond its idle size: source, destination, codes and orders."""
    reversible_rows: int = 0
    """Rows in groups of two or three, whose exchange anyone who knows the groups undoes."""
    guarantee: dict[str, Any] | None = None
    """Epsilon of the permutation mechanism and its scope; None for other mechanisms."""
    group_size_is_exact: bool = True
    """Whether the run has the stated group sizes; if not, they are lower bounds."""
    expected_part_by_field: Mapping[str, float] = field(default_factory=dict)
    """Field -> expected number of rows that take part; empty if only the run counts them."""


@dataclass(frozen=True, slots=True)
class NewPairs:
    """Pairs that a run adds to its series: see `providers.tables.series_pairs`."""

    pairs: bytes = field(repr=False)
    ids: str
    """Type of the ids, ``integers`` or ``text``."""
    units: int
    """Number of pairs."""


@dataclass(frozen=True, slots=True)
class SwapResult:
    """Destination table, with everything that its report states."""

    table: pa.Table
    summary: Summary
    events: Events
    provider: dict[str, Any] = field(default_factory=dict)
    """The provider's own figures."""
    measures: dict[str, Any] = field(default_factory=dict)
    """Key in `providers.measures.MEASURES` -> value, of the measures that the run itself computes."""
    origin: IndexArray | None = field(default=None, repr=False)
    """Source row of each destination row; None where the numbers are equal. A secret, since it undoes a
    shuffle: only the measures in the worker use it, and it is never written or published."""
    pairs: NewPairs | None = field(default=None, repr=False)
    """New pairs of a series, which the service stores sealed; None: the run belongs to no series."""


def group_size(sizes: Int64Array) -> GroupSize:
    """Rows in the smallest, the median and the largest group."""
    if not len(sizes):
        return GroupSize(0, 0.0, 0)
    if len(sizes) == 1:
        return GroupSize(int(sizes[0]), float(sizes[0]), int(sizes[0]))
    middle = [(len(sizes) - 1) // 2, len(sizes) // 2]
    lower, upper = np.partition(sizes, middle)[middle].tolist()
    return GroupSize(int(sizes.min()), (lower + upper) / 2, int(sizes.max()))


def group_size_of_counts(groups: Counter[int]) -> GroupSize:
    """`group_size` of a counter: size of a group -> number of groups of that size."""
    if not groups:
        return GroupSize(0, 0.0, 0)
    sizes = np.array(sorted(groups), np.int64)
    ends = np.cumsum([groups[size] for size in sizes.tolist()])
    middle = [(ends[-1] - 1) // 2, ends[-1] // 2]
    median = float(np.mean(sizes[np.searchsorted(ends, middle, side="right")]))
    return GroupSize(int(sizes[0]), median, int(sizes[-1]))
