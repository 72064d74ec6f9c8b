"""Fast and naive side by side: they must agree in every value and every figure."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import UnswappableError
from providers.provider import SwapResult, no_progress
from providers.rng import Stream
from tests.naive import cdswap, ddswap, dswap, locality, meds, mews, pabidot, rwn
from tests.naive.swapping import Outcome, same

NAIVE: dict[str, ModuleType] = {
    "DSWAP": dswap,
    "CDSWAP": cdswap,
    "DDSWAP": ddswap,
    "MEWS": mews,
    "MEDS": meds,
    "RWN": rwn,
    "PABIDOT": pabidot,
    "LOCALITY": locality,
}

SEED = bytes(range(32))

FIGURES = (
    "groups",
    "took_part",
    "took_part_by_field",
    "changed",
    "suppressed",
    "unswapped",
    "unswapped_reasons",
)


def swap(identifier: str, table: pa.Table, parameters: dict[str, Any], seed: bytes = SEED) -> SwapResult:
    """What the provider makes of the table, its parameters checked first."""
    provider = PROVIDERS[identifier]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    return provider.swap(table, params, Stream(seed, identifier, provider.revision), no_progress)


def naive_swap(identifier: str, table: pa.Table, parameters: dict[str, Any], seed: bytes = SEED) -> Outcome:
    """What its twin makes of it."""
    provider = PROVIDERS[identifier]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    outcome: Outcome = NAIVE[identifier].swap(table.to_pydict(), params, seed, provider.revision)
    return outcome


def assert_agree(
    identifier: str, table: pa.Table, parameters: dict[str, Any], seed: bytes = SEED
) -> tuple[SwapResult | None, Outcome]:
    """Both results, after every comparison; no fast one where the policy is to fail and it did."""
    provider = PROVIDERS[identifier]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    stream = Stream(seed, identifier, provider.revision)
    naive = naive_swap(identifier, table, parameters, seed)
    if naive.failed:
        message = f"^{naive.unswappable} rows? of "
        with pytest.raises(UnswappableError, match=message) as planned:
            provider.plan(table, params)
        with pytest.raises(UnswappableError, match=message) as swapped:
            provider.swap(table, params, stream, no_progress)
        assert str(planned.value) == str(swapped.value)
        return None, naive
    plan = provider.plan(table, params)
    assert (plan.rows, plan.groups, plan.unswappable_rows) == (
        table.num_rows,
        naive.groups,
        naive.unswappable,
    )
    fast = provider.swap(table, params, stream, no_progress)
    assert_same_values(fast.table, naive.table)
    for figure in FIGURES:
        assert getattr(fast.summary, figure) == getattr(naive, figure), figure
    size = fast.summary.group_size
    assert (size.smallest, size.median, size.largest) == naive.group_size
    assert fast.events.counts == naive.events
    if identifier == "RWN":  # whose plan says the least sizes: it looks for no neighbour
        assert plan.group_size.largest <= size.smallest or params.neighbours == "sample"
    else:
        assert plan.group_size == size
    return fast, naive


def assert_same_values(table: pa.Table, columns: dict[str, list[Any]]) -> None:
    """Assert that the table holds these values, floats bit by bit."""
    assert table.column_names == list(columns)
    for name, values in columns.items():
        found = table.column(name).to_pylist()
        assert len(found) == len(values)
        different = [row for row, pair in enumerate(zip(found, values, strict=True)) if not same(*pair)]
        assert not different, (name, different[:5])
