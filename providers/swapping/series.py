"""Swap of one table of a series. A unit keeps its partner in all tables of a series.

Units are recognised by a keyed hash of their ids. A unit that has a partner from an earlier table gets that
partner's values. The others, the arrivals, form a table of their own, which goes through the swap of whole
units as without a series. Their pairs are returned, so that the next table of the series finds them. A unit
that a rate below 1 leaves in place is its own partner, and stays in place in later tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Int64Array
from providers.errors import ParameterError, UnswappableError
from providers.grouping.groups import Groups, Pairing
from providers.params import Params, RiskSelection, Suppression, SwapParams
from providers.progress import Progress
from providers.randomness.chacha20 import Stream
from providers.results import Event, Events, SwapResult
from providers.swapping.exchange import sources
from providers.swapping.guarantee import published_fields
from providers.swapping.households import Members, classes_of, swap_households
from providers.swapping.participation import REASONS, Exchange, Participation, participation_by_field
from providers.swapping.report import add_nothing_changed_events, swap_summary
from providers.swapping.risk_report import unique_rows
from providers.swapping.row_risk import row_risk
from providers.swapping.suppression import Unswappable, describe, remaining_rows, suppress
from providers.tables.columns import gathered, take, take_rows, unused
from providers.tables.series_pairs import Identities, SeriesPairs, positions

P = TypeVar("P", bound=SwapParams)

SERIES_GUARANTEE = (
    "With `series`: a unit keeps its partner in every table and wave of the series, so that tables joined on "
    "`unit_id` show the values of one partner, and the released keys are those of the source."
)
"""Sentence for the pages of the services about the guarantee of a series."""

SERIES_LIMIT = (
    "With `series`: anyone who learns a unit's partner in one table knows it in all of them. A unit whose "
    "partner has left, or has another number of rows, is not swapped, and values whose receiver has left are "
    "in no row. New units are exchanged only with each other, so that a wave with few new units protects "
    "them badly."
)
"""Sentence for the pages of the services about the disclosure by a series."""

_REASONS = {
    "partner_missing": "the unit's partner in the series is not in this table",
    "partner_size_differs": "the unit's partner in the series has another number of rows in this table",
    "partner_class_differs": "the unit's partner in the series is in another class in this table",
}
"""Reason for which a unit does not get its partner's values -> message of the events of its rows."""

SERIES_STARTED = "series_started"
"""Code of the event about the first table of a series."""


def refuse_series(params: Params) -> None:
    """Raise ParameterError if the parameters name a series, whose pairs are not at hand."""
    if isinstance(params, SwapParams) and params.series is not None:
        raise ParameterError(
            "a series has pairs of earlier tables, which only a job of the service reads and writes: leave "
            "'series' out of previews, comparisons and runs of the command line",
            "/parameters/series",
        )


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """Result of a run of a series, with the origin of each unit's values."""

    result: SwapResult
    members: Members
    exchanges: list[Exchange]
    """Exchanges of all units of the table, as without a series."""
    origin: Int64Array
    """Unit whose values each unit gets; shape (units,)."""


def swap_series(
    table: pa.Table,
    params: P,
    exchanges_of: Callable[[pa.Table, P], tuple[Members, list[Exchange]]],
    stream: Stream,
    progress: Progress,
    series: SeriesPairs,
    keeps_groups: bool = True,
) -> SeriesRun:
    """Exchange the values of units with their partners in a series, and pair the arrivals.

    Parameters
    ----------
    table : pa.Table
        The source; not modified.
    params : SwapParams
        Checked, with `unit_id` and `series`. `rate`, `risk`, `mechanism` and `min_group_size` concern the
        arrivals.
    exchanges_of : callable
        (table, params) -> units of a table, and the exchanges of the service; one, since a unit has one
        partner.
    stream, progress
        As in `swap_each`.
    series : SeriesPairs
    keeps_groups : bool
        Whether the service promises that no value leaves its group, such as a class.

    Returns
    -------
    SeriesRun
        The figures `group_bits`, `matching_bits`, `guarantee` and those of risk are about the arrivals. The
        result has the new pairs.

    Raises
    ------
    SourceError
        The ids have another type than in earlier waves, or as `members_of`.
    UnswappableError, ReversibleError
        As `swap_each`; the latter for the arrivals.
    """
    run = _SeriesRun(table, params, exchanges_of, series, keeps_groups)
    return run.swap(stream, progress)


class _SeriesRun:
    """Units of a table with their partners, and the arrivals among them."""

    def __init__(
        self,
        table: pa.Table,
        params: SwapParams,
        exchanges_of: Callable[[pa.Table, Any], tuple[Members, list[Exchange]]],
        series: SeriesPairs,
        keeps_groups: bool,
    ) -> None:
        self._table, self._params, self._series = table, params, series
        self._exchanges_of = exchanges_of
        self._members, self._exchanges = exchanges_of(table, params)
        assert params.unit_id is not None  # noqa: S101 - `series` needs it
        ids = take(table.column(params.unit_id), pa.array(self._members.first))
        self._identities = Identities.of(ids, series)
        self._origin = np.arange(len(self._members), dtype=np.int64)
        self._reasons: dict[str, BoolArray] = {}
        self._known = self._find_partners(keeps_groups)
        self._arrivals = np.flatnonzero(~self._known)

    def _find_partners(self, keeps_groups: bool) -> BoolArray:
        """Set origins, and the reasons of units without their partner; return the mask of known units."""
        hashes = self._identities.hashes
        pair = positions(hashes, self._series.units)
        known: BoolArray = pair >= 0
        partner = np.full(len(known), -1, np.int64)
        partner[known] = positions(self._series.partners.take(pa.array(pair[known])), hashes)
        present = partner >= 0
        unit = np.flatnonzero(present)
        of_unit = partner[unit]
        other_size, other_class = np.zeros_like(known), np.zeros_like(known)
        if not self._members.of_any_size:
            other_size[unit] = self._members.sizes[unit] != self._members.sizes[of_unit]
        if keeps_groups and len(unit):
            group = classes_of(self._exchanges[0].groups)
            other_class[unit] = group[unit] != group[of_unit]
        self._reasons = {
            "partner_missing": known & ~present,
            "partner_size_differs": other_size,
            "partner_class_differs": other_class & ~other_size,
        }
        kept = present & ~other_size & ~other_class
        self._origin[kept] = partner[kept]
        return known

    def swap(self, stream: Stream, progress: Progress) -> SeriesRun:
        """Pair the arrivals and move all values."""
        table, params, members = self._table, self._params, self._members
        part, inner = self._arrivals_table()
        part_members, part_exchanges = self._exchanges_of(part, inner)
        entry = participation_by_field(part, inner, part_exchanges[0])[params.swap_fields[0]]
        unswappable = self._unswappable(entry, part_exchanges[0].groups)
        if params.suppression.policy == "fail":
            self._refuse(unswappable)

        def record(name: str, pairing: Pairing) -> None:
            self._origin[self._arrivals] = self._arrivals[sources(pairing)]

        found = swap_households(part, inner, part_members, part_exchanges, stream, progress, record)
        row_origin = members.sources(self._origin)
        columns = list(table.columns)
        changed: dict[str, int] = {}
        for name in params.swap_fields:
            index = table.schema.get_field_index(name)
            columns[index], differs = gathered(columns[index], row_origin)
            changed[name] = int(np.count_nonzero(differs))
        swapped = pa.Table.from_arrays(columns, schema=table.schema)
        events = self._events(found)
        swapped, suppressed = suppress(swapped, params, unswappable, events)
        for reason, mask in self._reasons.items():
            if mask.any():
                events.add_rows(reason, _REASONS[reason], members.rows_of(np.flatnonzero(mask)))
        moved = self._origin != np.arange(len(members))
        took_part = int(members.sizes[moved].sum())
        by_field = dict.fromkeys(params.swap_fields, took_part)
        add_nothing_changed_events(changed, by_field, events)
        reasons = self._reasons_of_rows(entry, moved)
        summary = swap_summary(
            rows=table.num_rows,
            groups=found.summary.groups,
            group_size=found.summary.group_size,
            took_part=took_part,
            took_part_by_field=by_field,
            changed=changed,
            suppressed=suppressed,
            unswapped=sum(reasons.values()),
            reasons=reasons,
        )
        figures = self._figures(found, swapped, moved, unswappable)
        paired = np.delete(self._arrivals, entry.unswappable)
        new_pairs = self._identities.new_pairs(paired, self._origin[paired])
        figures["series"] = self._series_figures(len(paired))
        result = SwapResult(
            swapped,
            summary,
            events,
            figures,
            origin=remaining_rows(params, unswappable, table.num_rows),
            pairs=new_pairs,
        )
        return SeriesRun(result, members, self._exchanges, self._origin)

    def _arrivals_table(self) -> tuple[pa.Table, SwapParams]:
        """Return the rows of the arrivals, and the parameters of their swap."""
        params = self._params
        part = take_rows(self._table, self._members.rows_of(self._arrivals))
        risk = params.risk
        if risk is not None and risk.key_fields:
            # The risk of a row depends on all rows of the table, not only on those of the arrivals.
            found = row_risk(self._table, risk)
            values = found.risk
            if risk.k:
                values = np.where(found.required, values, np.minimum(values, 1.0 / risk.k))
            name = unused("risk", self._table.schema.names)
            column = pa.array(values[self._members.rows_of(self._arrivals)])
            part, risk = part.append_column(name, column), RiskSelection(field=name, k=risk.k)
        policy = Suppression(policy="keep")
        if params.suppression.policy != "keep":
            policy = Suppression(policy="suppress", fields=params.suppression.fields)
        inner = params.model_copy(update={"series": None, "checks": (), "suppression": policy, "risk": risk})
        return part, inner

    def _unswappable(self, entry: Participation, groups: Groups) -> Unswappable:
        """Return the rows of units without a partner, and the groups of those arrivals."""
        without = np.logical_or.reduce(list(self._reasons.values()))
        units = np.concatenate([np.flatnonzero(without), self._arrivals[entry.unswappable]])
        rows = self._members.rows_of(units)
        places = groups.places[entry.unswappable]
        count = len(np.unique(np.searchsorted(groups.starts, places, side="right")))
        return Unswappable(dict.fromkeys(self._params.swap_fields, rows), count)

    def _refuse(self, unswappable: Unswappable) -> None:
        """Raise UnswappableError if a row cannot be swapped."""
        rows = len(unswappable.rows)
        parted = int(sum(self._members.sizes[mask].sum() for mask in self._reasons.values()))
        if not rows:
            return
        if not parted:
            raise UnswappableError(describe(rows, unswappable.groups))
        raise UnswappableError(
            f"{rows} row{'s' if rows != 1 else ''} cannot be swapped: in {parted} of them the unit's partner "
            f"in series '{self._series.name}' is missing, or has other rows or classes; choose another "
            "suppression policy"
        )

    def _events(self, found: SwapResult) -> Events:
        """Return the events of the arrivals' swap with the row numbers of the table."""
        events = Events()
        if self._series.wave == 1:
            message = (
                f"this is the first table of series '{self._series.name}': all units are new; if the series "
                "exists already under a similar name, the units have partners there"
            )
            events.add(Event(SERIES_STARTED, message))
        rows = self._members.rows_of(self._arrivals)
        left_out = ("suppressed", "kept", "nothing_changed")  # they are recorded for the whole table
        for event in found.events.listed:
            if event.code not in left_out:
                row = None if event.row is None else int(rows[event.row])
                events.listed.append(Event(event.code, event.message, row, event.field))
        events.counts.update(
            {code: count for code, count in found.events.counts.items() if code not in left_out}
        )
        return events

    def _reasons_of_rows(self, entry: Participation, moved: BoolArray) -> dict[str, int]:
        """Return reason -> rows that keep their place for it; every such row has one reason."""
        sizes = self._members.sizes
        masks = dict(self._reasons)
        for reason, units in (("alone", entry.singletons), ("group_too_small", entry.too_small)):
            masks[reason] = np.zeros(len(sizes), np.bool_)
            masks[reason][self._arrivals[units]] = True
        masks["rate"] = ~moved & ~np.logical_or.reduce(list(masks.values()))
        order = [*REASONS, *_REASONS]
        return {name: int(sizes[masks[name]].sum()) for name in sorted(masks, key=order.index)}

    def _figures(
        self, found: SwapResult, swapped: pa.Table, moved: BoolArray, unswappable: Unswappable
    ) -> dict[str, Any]:
        """Return the provider's figures of the arrivals' swap, and the units of the whole table."""
        params, figures = self._params, found.provider
        if params.risk is not None and params.risk.key_fields:
            keys = params.risk.key_fields
            figures["risk_selection"]["unique_before"] = int(unique_rows(self._table, keys).sum())
            figures["risk_selection"]["unique_after"] = int(unique_rows(swapped, keys).sum())
        if "guarantee" in figures:
            self._limit_guarantee(figures["guarantee"])
        alone = np.unique(self._members.of_rows(unswappable.rows))
        figures["units"] = {
            "units": len(self._members),
            "took_part_by_field": dict.fromkeys(params.swap_fields, int(np.count_nonzero(moved))),
            "without_partner": len(alone),
            "rows_without_partner": len(unswappable.rows),
        }
        return figures

    def _limit_guarantee(self, guarantee: dict[str, Any]) -> None:
        """State that epsilon is for the arrivals; remove it if units without their partner stay."""
        guarantee["holds_for"] = _ARRIVALS_ONLY + guarantee["holds_for"]
        rows = int(sum(self._members.sizes[mask].sum() for mask in self._reasons.values()))
        if rows and published_fields(self._params):
            guarantee["epsilon"] = None
            guarantee["holds_for"] = (
                f"No finite epsilon: {rows} row{'s' if rows > 1 else ''} of units without their partner "
                f"keep{'' if rows > 1 else 's'} the values of the source. {guarantee['holds_for']}"
            )

    def _series_figures(self, paired: int) -> dict[str, Any]:
        known = int(np.count_nonzero(self._known))
        parted = {name: int(np.count_nonzero(mask)) for name, mask in self._reasons.items()}
        return {
            "name": self._series.name,
            "wave": self._series.wave,
            "known": known,
            "kept_partner": known - sum(parted.values()),
            **parted,
            "arrivals": len(self._arrivals),
            "new_pairs": paired,
        }


_ARRIVALS_ONLY = (
    "This concerns units that are new in this run; the epsilon of a unit that kept its partner is that of "
    "the run which paired it. All tables of the series share their pairs: together they have an epsilon only "
    "for an exchange of the values of all of their swap fields at once. "
)
