"""Fast and naive side by side: they must agree in every value and every figure."""

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import ParameterError, ReversibleError, UnswappableError
from providers.progress import no_progress
from providers.results import SwapResult
from tests.naive import cdswap, ddswap, dswap, locality, meds, mews, pabidot, rswap, rwn
from tests.naive.columns import lists_of, values_of
from tests.naive.swapping import Outcome, differing

NAIVE: dict[str, ModuleType] = {
    "DSWAP": dswap,
    "CDSWAP": cdswap,
    "DDSWAP": ddswap,
    "MEWS": mews,
    "MEDS": meds,
    "RWN": rwn,
    "PABIDOT": pabidot,
    "LOCALITY": locality,
    "RSWAP": rswap,
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
    """Run the provider on the table, with checked parameters."""
    provider = PROVIDERS[identifier]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    return provider.swap(table, params, provider.stream(seed), no_progress)


def naive_swap(identifier: str, table: pa.Table, parameters: dict[str, Any], seed: bytes = SEED) -> Outcome:
    """Run the provider's twin on the table."""
    provider = PROVIDERS[identifier]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    outcome: Outcome = NAIVE[identifier].swap(lists_of(table), params, seed, provider.draws_revision)
    return outcome


def assert_agree(
    identifier: str, table: pa.Table, parameters: dict[str, Any], seed: bytes = SEED
) -> tuple[SwapResult | None, Outcome]:
    """Both results, after every comparison; no fast one where the policy is to fail and it did."""
    provider = PROVIDERS[identifier]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    stream = provider.stream(seed)
    naive = naive_swap(identifier, table, parameters, seed)
    if naive.unreachable:
        for run in (
            lambda: provider.plan(table, params),
            lambda: provider.swap(table, params, stream, no_progress),
        ):
            with pytest.raises(ParameterError, match="no rate reaches target_epsilon"):
                run()
        return None, naive
    if naive.failed:
        unswappable = naive.unswappable and params.suppression.policy == "fail"
        kind = UnswappableError if unswappable else ReversibleError
        message = (
            f"^{naive.unswappable} rows? of "
            if unswappable
            else r"^\d+ (rows|households|units) are in \d+ groups? of (two|three), "
        )
        with pytest.raises(kind, match=message) as planned:
            provider.plan(table, params)
        with pytest.raises(kind, match=message) as swapped:
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
    assert ("guarantee" in fast.provider) == bool(naive.guarantee)
    if naive.guarantee:
        assert_same_guarantee(fast.provider["guarantee"], naive.guarantee)
        assert plan.guarantee == fast.provider["guarantee"]
    assert ("risk_selection" in fast.provider) == bool(naive.risk_selection)
    if naive.risk_selection:
        found = dict(fast.provider["risk_selection"])
        assert found.pop("no_epsilon").startswith("No finite epsilon")
        assert found == naive.risk_selection
        assert fast.provider["risk_deciles"] == naive.provider["risk_deciles"]
    assert ("checks" in fast.provider) == bool(naive.checks)
    if naive.checks:
        assert fast.provider["checks"] == naive.checks
    if "group_bits" in naive.provider:
        assert_same_group_bits(fast.provider, naive.provider)
        twos_and_threes = [
            fast.provider["group_bits"][f"rows_in_groups_of_{size}"] for size in ("two", "three")
        ]
        assert plan.reversible_rows == (sum(twos_and_threes) if fast.provider["reversible"] else 0)
    if plan.group_size_is_exact:
        assert plan.group_size == size
    else:
        assert identifier == "RWN"
        assert params.neighbours != "exact"
        assert plan.group_size.largest <= size.smallest or params.neighbours == "sample"
    everything = (1.0, 1.0, "pairs")
    if (
        getattr(params, "rate", 1.0), getattr(params, "q", 1.0), getattr(params, "mechanism", "pairs")
    ) == everything:  # fmt: skip
        assert plan.expected_part_by_field in ({}, fast.summary.took_part_by_field)
    return fast, naive


def assert_same_guarantee(fast: dict[str, Any], naive: dict[str, Any]) -> None:
    """Assert that rate and epsilon are the twin's: the rate exactly, epsilon but for the last digits."""
    assert fast["rate"] == naive["rate"]
    total = naive["epsilon"]
    assert fast["epsilon"] == (None if total is None else pytest.approx(total, rel=1e-9, abs=1e-12))
    by_field = {name: entry["epsilon"] for name, entry in fast["by_field"].items()}
    assert by_field == {
        name: value if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)
        for name, value in naive["by_field"].items()
    }


def assert_same_group_bits(fast: dict[str, Any], naive: dict[str, Any]) -> None:
    """Assert that the figures on what could have been drawn are the twin's, but for the last digits."""
    assert fast["reversible"] == naive["reversible"]
    assert fast["group_bits"].keys() == naive["group_bits"].keys()
    for name, value in naive["group_bits"].items():
        found = fast["group_bits"][name]
        assert found == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)), name


def assert_same_values(table: pa.Table, columns: dict[str, list[Any]]) -> None:
    """Assert that the table holds these values, floats bit by bit."""
    assert table.column_names == list(columns)
    for name, values in columns.items():
        found = values_of(table.column(name))
        assert len(found) == len(values)
        different = differing(found, values)
        assert not different, (name, different[:5])
