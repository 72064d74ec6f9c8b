"""Settings, random streams and report of an RWN run.

The method itself is in `providers.services.rwn`, and for tables larger than memory in
`providers.neighbours.out_of_core.release`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Int32Array
from providers.errors import SourceError
from providers.neighbours import donors
from providers.neighbours.candidates import CandidateRows, PairShortage
from providers.neighbours.donors import NeighbourRule, mark_kept_rows
from providers.neighbours.points import kind_of
from providers.randomness.chacha20 import Key, Stream
from providers.results import Event, Events, Summary, SwapResult, count_sizes, group_size_of_counts
from providers.tables.joining import empty_table

COUNTED_ROWS = 10_000
"""Approximate number of neighbourhoods that are counted in a table with an epsilon."""

_RARELY_CHANGED = 0.01  # share of changed draws below which a category field gets an event

_MOST_ROWS = 2**31 - 1

_ROWS_PER_DRAW = 128  # rows whose uniform numbers one call of the generator yields


class Settings(Protocol):
    """Parameters of RWN; `providers.services.rwn.RwnParams` describes them."""

    @property
    def k(self) -> int:
        """Number of nearest rows in a neighbourhood."""

    @property
    def epsilon(self) -> float:
        """Distance within which all rows are neighbours."""

    @property
    def q(self) -> float:
        """Probability with which each value is replaced."""

    @property
    def ties(self) -> str:
        """Treatment of ties at the k-th distance: `include` or `index`."""

    @property
    def distance_fields(self) -> Sequence[str]:
        """Fields from which distances are computed."""

    @property
    def perturb_fields(self) -> Sequence[str]:
        """Fields whose values are replaced."""

    @property
    def categorical_fields(self) -> Sequence[str]:
        """Distance fields that are categories whatever their type."""

    @property
    def ordinal_fields(self) -> Mapping[str, Sequence[Any]]:
        """Levels of the ordinal distance fields."""

    @property
    def categorical_weight(self) -> float:
        """Weight of the categories in a distance."""

    @property
    def candidates(self) -> CandidateRows:
        """Candidate rows of a neighbourhood."""


def check_rows(rows: int, settings: Settings) -> None:
    """Raise SourceError if the table has too few or too many rows."""
    if rows == 1:
        raise SourceError("the source holds 1 row, which has no neighbour; RWN needs 2 rows or more")
    if rows > _MOST_ROWS:
        raise SourceError(f"the source holds {rows} rows; RWN takes at most {_MOST_ROWS}")
    parts = settings.candidates.parts
    if rows and parts > rows // 2:
        raise SourceError(
            f"{parts} parts of {rows} rows leave a row without a neighbour in its part; "
            f"use at most {rows // 2} parts",
            "/parameters/parts",
        )


def neighbour_rule(rows: int, settings: Settings) -> NeighbourRule:
    """Return the definition of a neighbourhood in a table of `rows` rows."""
    count_every = max(1, -(-rows // COUNTED_ROWS)) if settings.epsilon > 0 else 1
    k = min(settings.k, max(rows, 1))
    return NeighbourRule(
        k, float(settings.epsilon), settings.ties == "include", count_every, donors.MOST_LISTED,
        donors.MOST_COVER_NODES,
    )  # fmt: skip


def donor_keys(settings: Settings, stream: Stream) -> list[Key]:
    """Return the key of each perturbed field, by which its donors and its kept values are drawn."""
    return [stream.key(f"donor/{name}") for name in settings.perturb_fields]


def kept_rows(key: Key, q: float, first: int, rows: int) -> BoolArray:
    """Mask of the rows `first` to `first` + `rows` that keep their own value, with probability 1 - q each."""
    before = first % _ROWS_PER_DRAW
    kept = np.zeros(before + rows, np.bool_)
    if q < 1:
        mark_kept_rows(key, q, first - before, kept)
    return kept[before:]


@dataclass
class NeighbourhoodCounts:
    """Counts of the neighbourhoods of some rows. Those of a unit are pickled between processes."""

    sizes: Counter[int] = field(default_factory=Counter)
    """Size -> number of counted neighbourhoods of this size."""
    shortage: PairShortage = field(default_factory=PairShortage)
    """Rows with too few pairs."""

    def add_sizes(self, sizes: Int32Array) -> None:
        """Count the sizes of some neighbourhoods."""
        count_sizes(self.sizes, sizes.astype(np.int64))

    def add(self, other: NeighbourhoodCounts) -> None:
        """Add the counts of other rows."""
        self.sizes.update(other.sizes)
        self.shortage.few += other.shortage.few
        self.shortage.none += other.shortage.none


class ReleaseTally:
    """Released table and the counts for its report, filled field by field and row range by row range."""

    def __init__(self, schema: pa.Schema, settings: Settings) -> None:
        """Create the tally of a source with this schema."""
        fields = settings.perturb_fields
        self.table: pa.Table = empty_table(schema)
        """Released table; without rows if it is streamed."""
        self.neighbourhoods = NeighbourhoodCounts()
        self._schema = schema
        self._settings = settings
        self._rows = 0
        self._replaced: dict[str, int] = dict.fromkeys(fields, 0)
        self._changed: dict[str, int] = dict.fromkeys(fields, 0)
        self._rows_replaced = self._rows_kept = self._rows_unchanged = 0
        self._range_masks: tuple[BoolArray, BoolArray, BoolArray] | None = None
        """Rows of the current range with a replaced, with a kept, and with a changed value."""

    def add(self, name: str, kept: BoolArray, changed: BoolArray) -> None:
        """Count the kept and the changed values of one field in the current row range."""
        if self._range_masks is None:
            self._range_masks = (
                np.zeros(len(kept), np.bool_), np.zeros(len(kept), np.bool_), np.zeros(len(kept), np.bool_)
            )  # fmt: skip
        any_replaced, any_kept, any_changed = self._range_masks
        self._replaced[name] += len(kept) - int(np.count_nonzero(kept))
        self._changed[name] += int(np.count_nonzero(changed))
        any_replaced |= ~kept
        any_kept |= kept
        any_changed |= changed

    def end_range(self) -> None:
        """Close the current row range, after all fields have been counted."""
        if self._range_masks is not None:
            replaced, kept, changed = self._range_masks
            self._rows += len(replaced)
            self._rows_replaced += int(np.count_nonzero(replaced))
            self._rows_kept += int(np.count_nonzero(kept))
            self._rows_unchanged += len(replaced) - int(np.count_nonzero(changed))
            self._range_masks = None

    def merge(self, later: ReleaseTally) -> None:
        """Add the counts of later rows; not those of neighbourhoods, which units count."""
        for name in self._replaced:
            self._replaced[name] += later._replaced[name]
            self._changed[name] += later._changed[name]
        self._rows += later._rows
        self._rows_replaced += later._rows_replaced
        self._rows_kept += later._rows_kept
        self._rows_unchanged += later._rows_unchanged

    def result(self, varies: Callable[[str], bool]) -> SwapResult:
        """Return the released table with its report.

        Parameters
        ----------
        varies : callable
            Whether a category field holds two different values.
        """
        return SwapResult(self.table, self._summary(), self._events(varies), self._figures())

    def _summary(self) -> Summary:
        """Figures that every report contains. The group of a row is its neighbourhood."""
        shares = [count / self._rows for count in self._replaced.values() if self._rows]
        return Summary(
            rows=self._rows,
            groups=self._rows,
            group_size=group_size_of_counts(self.neighbourhoods.sizes),
            took_part=self._rows_replaced,
            took_part_by_field=self._replaced,
            changed=self._changed,
            suppressed=0,
            unswapped=self._rows_kept,
            unswapped_reasons={"rate": self._rows_kept} if self._rows_kept else {},
            achieved_rate=sum(shares) / len(shares) if shares else 0.0,
        )

    def _figures(self) -> dict[str, Any]:
        """Figures that only the report of RWN contains.

        `matching_bits` is log2 of the number of possible choices of all donors. If only a sample of the
        neighbourhoods was counted, it is scaled up to all rows.
        """
        settings, rows = self._settings, self._rows
        counts = self.neighbourhoods.sizes
        sizes = np.array(sorted(counts), np.int64)
        frequencies = np.array([counts[size] for size in sizes.tolist()], np.int64)
        counted = counts.total()
        # At q < 1 the row itself is one more possible origin of each value.
        bits = float(np.sum(frequencies * np.log2(sizes + (settings.q < 1)))) if counted else 0.0
        scale = rows / counted if counted else 0.0
        size = group_size_of_counts(counts)
        figures = {
            "neighbourhood_size": {
                "smallest": size.smallest,
                "median": size.median,
                "mean": int(np.sum(sizes * frequencies)) / counted if counted else 0.0,
                "largest": size.largest,
                "rows_counted": counted,
            },
            "effective_k": settings.candidates.effective_k(rows, settings.k),
            "unchanged_rows": self._rows_unchanged,
            "unchanged_share": self._rows_unchanged / rows if rows else 0.0,
            "matching_bits": bits * scale * len(settings.perturb_fields),
        }
        if settings.candidates.method == "pairs":
            shortage = self.neighbourhoods.shortage
            figures |= {"rows_below_k": shortage.few, "rows_without_pair": shortage.none}
        return figures

    def _events(self, varies: Callable[[str], bool]) -> Events:
        """Warnings about categories that rarely change, and about rows that are released unchanged."""
        settings = self._settings
        events = Events()
        for name, replaced in self._replaced.items():
            changed = self._changed[name]
            rarely = replaced and changed < _RARELY_CHANGED * replaced
            if rarely and self._is_nominal(name) and varies(name):
                message = (
                    f"{changed / replaced:.2%} of the values drawn differ from those they replaced: nearly "
                    "all neighbours agree on the categorical fields, whose cells hold more than "
                    f"k = {settings.k} rows; a smaller categorical_weight or a larger k changes more"
                )
                events.add(Event("category_kept", message, field=name))
            elif replaced and not changed:
                events.add(Event("nothing_changed", "every value was replaced by an equal one", field=name))
        if self._rows_unchanged:
            remedy = "a larger q changes more" if settings.q < 1 else "their neighbours have equal values"
            message = (
                f"{self._rows_unchanged} of {self._rows} rows ({self._rows_unchanged / self._rows:.1%}) "
                f"are released with no value changed: {remedy}"
            )
            events.add(Event("rows_unchanged", message))
        return events

    def _is_nominal(self, name: str) -> bool:
        """Whether the field counts as a category in distances."""
        settings = self._settings
        if name not in settings.distance_fields or name in settings.ordinal_fields:
            return False
        if not settings.categorical_weight:
            return False
        return name in settings.categorical_fields or kind_of(self._schema.field(name).type) == "nominal"
