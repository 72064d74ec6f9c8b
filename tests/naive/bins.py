"""Common part of MEWS and MEDS in plain Python: participation of rows, and a locked exchange within bins."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from providers.binning.swap import BinParams
from providers.params import Suppression, SwapParams
from tests.naive.pairing import Group
from tests.naive.swapping import Exchange, Outcome, Table, row_count, swap_each


@dataclass
class Bins:
    """Bins of the rows of a matrix, numbered from 0, with figures and events of the report."""

    rows: list[list[int]]
    figures: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)


MakeBins = Callable[[list[str], list[list[float]]], Bins]
"""Callback(names, columns) -> bins; never called without rows."""


@dataclass
class BinsOutcome(Outcome):
    """Outcome with the provider's figures: of the swap fields, and of each field swapped on its own."""

    figures: dict[str, Any] = field(default_factory=dict)
    of_others: dict[str, dict[str, Any]] = field(default_factory=dict)


def number(value: Any) -> float:
    """Convert a value to the nearest float; NaN for null."""
    return math.nan if value is None else float(value)


def swap_in_bins(
    table: Table,
    params: BinParams,
    make_bins: MakeBins,
    seed: bytes,
    service: str,
    revision: int,
    suppression: Suppression | None = None,
) -> BinsOutcome:
    """Exchange the swap fields together within bins, and each remaining number within its own."""
    others: list[str] = []
    if params.others == "univariate":  # a field without any value counts as numeric here
        kinds = int | float | Decimal | None
        others = [
            name
            for name in table
            if name not in params.swap_fields and all(isinstance(value, kinds) for value in table[name])
        ]
    exchanges: list[Exchange] = []
    made: list[Bins] = []
    for names in (list(params.swap_fields), *([name] for name in others)):
        columns = {name: [number(value) for value in table[name]] for name in names}
        absent = {name: {r for r, x in enumerate(xs) if not math.isfinite(x)} for name, xs in columns.items()}
        assert params.nulls == "keep" or not any(absent.values())
        present = [row for row in range(row_count(table)) if not any(row in rows for rows in absent.values())]
        bins = Bins([], {"partition_degree": 0, "minimal_depth": 0, "singletons": 0})
        if present:
            bins = make_bins(names, [[columns[name][row] for row in present] for name in names])
        groups = [Group(min(rows), sorted(rows)) for rows in ([present[r] for r in b] for b in bins.rows)]
        exchanges.append(Exchange(tuple(names), groups, not exchanges, absent))
        made.append(bins)
    common = SwapParams(
        swap_fields=(*params.swap_fields, *others),
        locked=True,
        suppression=suppression or params.suppression,
        on_reversible=params.on_reversible,
        rate=params.rate,
        risk=params.risk,
    )
    done = swap_each(table, common, exchanges, seed, service, revision)
    outcome = BinsOutcome(**vars(done), figures=made[0].figures)
    outcome.of_others = {name: bins.figures for name, bins in zip(others, made[1:], strict=True)}
    for bins in made:
        for code in bins.events:
            outcome.events[code] += 1
    return outcome


def assert_figures(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Assert that figures are equal, but for the last digits of a share that the twin computes exactly."""
    for name, value in expected.items():
        if isinstance(value, float):
            assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-12), name
        else:
            assert found[name] == value, name
