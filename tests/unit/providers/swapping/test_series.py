"""Series of tables: identities, arrivals without a partner, epsilon, and an intruder's groups."""

from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.attacks.household_groups import household_groups
from providers.errors import ParameterError, ReversibleError, SourceError, UnswappableError
from providers.params import SwapParams
from providers.progress import no_progress
from providers.results import SwapResult
from providers.swapping.permutation_law import epsilon
from providers.tables.series_pairs import Identities, SeriesPairs
from tests.property.out_of_core import swap_out_of_core

KEY = bytes(range(32))
SEED = bytes(range(32, 64))
PARAMETERS: dict[str, Any] = {"swap_fields": ["x"], "unit_id": "who", "series": "panel"}


def persons(numbers: Any) -> pa.Table:
    numbers = list(numbers)
    return pa.table({"who": numbers, "x": [10 * number for number in numbers], "c": [n % 7 for n in numbers]})


def run(
    table: pa.Table, known: SwapResult | None = None, service: str = "DSWAP", key: bytes = KEY, **more: Any
) -> SwapResult:
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(PARAMETERS | more), table.schema)
    stream = provider.stream(SEED)
    pairs, ids = b"", None
    if known is not None:
        assert known.pairs is not None
        pairs, ids = known.pairs.pairs, known.pairs.ids
    assert provider.swap_series is not None
    series = SeriesPairs("panel", 1 + (known is not None), key, pairs, ids)
    return provider.swap_series(table, params, stream, no_progress, series)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 3], pa.int8()),
        pa.array([1, 2, 3], pa.uint64()),
        pa.array([1, 2, 3]).dictionary_encode(),
    ],
)
def test_an_integer_is_the_same_in_every_type(column: pa.Array) -> None:
    """And different from the text of its digits, and under another key."""
    series = SeriesPairs("panel", 1, KEY, b"")
    own = Identities.of(pa.chunked_array([pa.array([1, 2, 3])]), series)
    assert Identities.of(pa.chunked_array([column]), series).hashes.equals(own.hashes)
    text = Identities.of(pa.chunked_array([pa.array(["1", "2", "3"])]), series)
    other = Identities.of(pa.chunked_array([pa.array([1, 2, 3])]), SeriesPairs("panel", 1, bytes(32), b""))
    assert (own.kind, text.kind) == ("integers", "text")
    assert len({*own.hashes.to_pylist(), *text.hashes.to_pylist(), *other.hashes.to_pylist()}) == 9


def test_ids_of_another_type_are_refused() -> None:
    first = run(persons(range(10)))
    table = persons(range(10))
    texts = table.set_column(0, "who", table.column("who").cast(pa.large_string()))
    with pytest.raises(SourceError, match=r"the ids of this table are text, and those of series 'panel' are"):
        run(texts, first)


@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP"])
def test_a_series_without_its_pairs_is_refused(service: str) -> None:
    """A plan is refused as well, and so is a run out of core."""
    more: dict[str, Any] = {"DSWAP": {}, "CDSWAP": {"control_field": "c"}}.get(
        service, {"control_field": "c", "block_size": 3}
    )
    provider, table = PROVIDERS[service], persons(range(10))
    params = provider.check(provider.params.model_validate(PARAMETERS | more), table.schema)
    stream = provider.stream(SEED)
    for refused in (
        lambda: provider.swap(table, params, stream, no_progress),
        lambda: provider.plan(table, params),
    ):
        with pytest.raises(ParameterError, match="only a job of the service") as raised:
            refused()
        assert raised.value.pointer == "/parameters/series"
    with pytest.raises(ParameterError, match="rows of a unit can be anywhere"):
        swap_out_of_core(service, table, PARAMETERS | more, 10**6, 100)


def test_an_arrival_without_a_partner_stays_one() -> None:
    """A single one is suppressed, and gets a partner in the next wave."""
    first = run(persons(range(10)))
    second = run(persons(range(11)), first)
    assert second.table.column("x").to_pylist()[10] is None
    assert second.summary.unswapped_reasons == {"alone": 1}
    assert second.pairs is not None
    assert second.pairs.units == 0
    third = run(persons(range(12)), first)
    assert third.table.column("x").to_pylist()[10:] == [110, 100]
    assert third.provider["series"]["new_pairs"] == 2
    assert third.events.counts["reversible_groups"] == 1
    with pytest.raises(ReversibleError, match=r"^2 units are in 1 group of two"):
        run(persons(range(12)), first, on_reversible="fail")
    with pytest.raises(UnswappableError, match=r"^1 row of 1 group cannot be swapped"):
        run(persons(range(11)), first, suppression={"policy": "fail"})


def test_a_missing_partner_fails_the_run_if_wanted() -> None:
    first = run(persons(range(10)))
    with pytest.raises(
        UnswappableError, match=r"in 1 of them the unit's partner in series 'panel' is missing"
    ):
        run(persons(range(1, 10)), first, suppression={"policy": "fail"})


def test_a_unit_that_the_rate_left_in_place_stays_there() -> None:
    first = run(persons(range(100)), rate=0.4)
    kept = [n for n, x in enumerate(first.table.column("x").to_pylist()) if x == 10 * n]
    assert len(kept) == 60
    second = run(persons(range(99, -1, -1)), first, rate=1.0)
    assert second.table.column("x").to_pylist()[::-1] == first.table.column("x").to_pylist()
    assert second.provider["series"]["kept_partner"] == 100
    assert second.summary.unswapped_reasons == {"rate": 60}


def test_epsilon_is_that_of_the_arrivals() -> None:
    first = run(persons(range(100)), mechanism="permutation", rate=0.5)
    second = run(persons(range(120)), first, mechanism="permutation", rate=0.5)
    for result, size in ((first, 100), (second, 20)):
        guarantee = result.provider["guarantee"]
        assert guarantee["epsilon"] == pytest.approx(epsilon(size, 0.5))
        assert guarantee["by_field"]["x"]["largest_group"] == size
        assert guarantee["holds_for"].startswith("This concerns units that are new in this run")


@pytest.mark.parametrize(("policy", "finite"), [("keep", False), ("suppress", True), ("drop", True)])
def test_a_unit_that_stays_for_lack_of_its_partner_leaves_no_epsilon(policy: str, finite: bool) -> None:
    """Its values are published as they are, unless they are suppressed."""
    mechanism: dict[str, Any] = {"mechanism": "permutation", "rate": 0.9}
    first = run(persons(range(10)), **mechanism)
    second = run(persons(range(1, 20)), first, suppression={"policy": policy}, **mechanism)
    assert second.provider["series"]["partner_missing"] == 1
    guarantee = second.provider["guarantee"]
    assert guarantee["epsilon"] == (pytest.approx(epsilon(10, 0.9)) if finite else None)
    assert ("1 row of units without their partner keeps" in guarantee["holds_for"]) == (not finite)
    assert guarantee["by_field"]["x"]["epsilon"] == pytest.approx(epsilon(10, 0.9))


def test_a_unit_in_another_class_is_not_swapped() -> None:
    """The promise of CDSWAP comes before the partner, who is kept for a later table."""
    first = run(persons(range(70)), service="CDSWAP", control_field="c")
    table = persons(range(70))
    moved = table.set_column(2, "c", pa.array([99 if n == 0 else n % 7 for n in range(70)]))
    second = run(moved, first, service="CDSWAP", control_field="c")
    figures = second.provider["series"]
    assert (figures["partner_class_differs"], figures["kept_partner"]) == (2, 68)
    assert second.events.counts == {"suppressed": 2, "partner_class_differs": 2}
    again = run(table, first, service="CDSWAP", control_field="c")
    assert again.table.equals(first.table)


def test_an_intruder_takes_all_units_of_a_size_for_partners() -> None:
    """A unit of a series of DDSWAP keeps its partner when it has moved to another block."""
    table = persons([1, 1, 2, 2, 3, 4, 5, 6])
    own: dict[str, Any] = {"swap_fields": ("x",), "unit_id": "who", "control_field": ("c",), "block_size": 2}
    sizes = []
    for more in ({"series": "panel"}, {}, {"unit_sizes": "any"}):
        params = PROVIDERS["DDSWAP"].params.model_validate(own | more)
        assert isinstance(params, SwapParams)
        ((fields, groups),) = household_groups(table, params)
        assert fields == ("x",)
        sizes.append(sorted(groups.sizes.tolist()))
    assert sizes == [[2, 2, 4], [2, 2, 2, 2], [2, 2, 4]]
