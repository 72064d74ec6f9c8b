"""Units that move as one, and series in which a unit keeps its partner: fast and naive agree."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.errors import ParameterError, ReversibleError, UnswappableError
from providers.progress import no_progress
from providers.results import SwapResult
from providers.tables.columns import take_rows
from providers.tables.series_pairs import IDENTITY_BYTES, Identities, SeriesPairs
from tests.naive.agreement import FIGURES, assert_agree, assert_same_values
from tests.naive.series import swap_series
from tests.property.tables import from_pool, swap_parameters, tables
from tests.property.test_households import IDS, SEEDS

KEY = bytes(range(32, 64))
SERVICES = ("DSWAP", "CDSWAP", "DDSWAP")


@st.composite
def unit_tables(draw: st.DrawFn, of_any_size: bool = False) -> tuple[pa.Table, tuple[str, ...]]:
    """A table with a field `person`; with `of_any_size` each swap field has one value in each unit."""
    table, kinds = draw(tables())
    kind, pool = draw(st.sampled_from(IDS))
    persons = draw(from_pool(pool, table.num_rows))
    if of_any_size and table.num_rows:
        first = {person: row for row, person in reversed(list(enumerate(persons)))}
        moved = [name for name in table.column_names if name.startswith("s")]
        taken = take_rows(table.select(moved), np.array([first[person] for person in persons]))
        for name in moved:
            table = table.set_column(table.column_names.index(name), name, taken.column(name))
    return table.append_column("person", pa.array(persons, kind)), kinds


def unit_parameters(
    data: st.DataObject, service: str, table: pa.Table, kinds: tuple[str, ...]
) -> dict[str, Any]:
    parameters = data.draw(swap_parameters(table, targets=True, risks=data.draw(st.booleans())))
    parameters["unit_id"] = "person"
    if service != "DSWAP":
        parameters["control_field"] = [f"c{at}" for at in range(len(kinds))]
    if service == "DDSWAP":
        parameters["block_size"] = data.draw(st.integers(parameters["min_group_size"], 9))
    return parameters


@given(st.data(), SEEDS, st.booleans())
@pytest.mark.parametrize("service", SERVICES)
def test_units(service: str, data: st.DataObject, seed: bytes, of_any_size: bool) -> None:
    """Values, figures and plan are the twin's, for units of equal and of any size."""
    table, kinds = data.draw(unit_tables(of_any_size))
    parameters = unit_parameters(data, service, table, kinds)
    if of_any_size:
        parameters["unit_sizes"] = "any"
    fast, naive = assert_agree(service, table, parameters, seed)
    if fast is None or not of_any_size or parameters["suppression"]["policy"] == "drop":
        return
    persons = table.column("person").to_pylist()
    for name in naive.sources:  # a unit still has one value
        values = fast.table.column(name).to_pylist()
        held: dict[Any, set[str]] = {}
        for person, value in zip(persons, values, strict=True):
            held.setdefault(person, set()).add(repr(value))
        assert all(len(found) == 1 for found in held.values())


def run(
    service: str, table: pa.Table, parameters: dict[str, Any], series: SeriesPairs, seed: bytes
) -> SwapResult:
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    assert provider.swap_series is not None
    return provider.swap_series(table, params, provider.stream(seed), no_progress, series)


def hashed(pairs: dict[Any, Any], kind: pa.DataType) -> set[bytes]:
    """The stored form of pairs of ids."""
    series = SeriesPairs("s", 1, KEY, b"")
    columns = [pa.chunked_array([pa.array(list(ids), kind)]) for ids in (pairs.keys(), pairs.values())]
    units, partners = (Identities.of(column, series).hashes.to_pylist() for column in columns)
    return {unit + partner for unit, partner in zip(units, partners, strict=True)}


def stored(pairs: bytes) -> set[bytes]:
    size = 2 * IDENTITY_BYTES
    return {pairs[first : first + size] for first in range(0, len(pairs), size)}


@given(st.data(), st.lists(SEEDS, min_size=2, max_size=3))
@pytest.mark.parametrize("service", SERVICES)
def test_series(service: str, data: st.DataObject, seeds: list[bytes]) -> None:
    """Values, figures, events and new pairs of each wave are the twin's; known units keep their partner.

    The tables of later waves have other rows, another order and other services' groups.
    """
    of_any_size = data.draw(st.booleans())
    table, kinds = data.draw(unit_tables(of_any_size))
    parameters = unit_parameters(data, service, table, kinds) | {"series": "s", "nulls": "swap"}
    if of_any_size:
        parameters["unit_sizes"] = "any"
    if len(parameters.get("swap_fields", parameters.get("swap_field_indices", []))) > 1:
        parameters["locked"] = True
    provider = PROVIDERS[service]
    known: dict[Any, Any] = {}
    pairs, ids = b"", None
    for wave, seed in enumerate(seeds, start=1):
        rows = data.draw(st.lists(st.integers(0, max(0, table.num_rows - 1)), unique=True, max_size=60))
        part = take_rows(table, np.array(rows if table.num_rows else [], np.int64))
        params = provider.check(provider.params.model_validate(parameters), part.schema)
        naive, new, figures = swap_series(
            service, part.to_pydict(), params, known, wave, seed, provider.draws_revision
        )
        series = SeriesPairs("s", wave, KEY, pairs, ids)
        if naive.unreachable:
            with pytest.raises(ParameterError, match="no rate reaches target_epsilon"):
                run(service, part, parameters, series, seed)
            return
        if naive.failed:
            with pytest.raises((UnswappableError, ReversibleError)):
                run(service, part, parameters, series, seed)
            return
        fast = run(service, part, parameters, series, seed)
        assert_same_values(fast.table, naive.table)
        for figure in FIGURES:
            assert getattr(fast.summary, figure) == getattr(naive, figure), figure
        assert fast.events.counts == naive.events
        assert fast.provider["series"] == {"name": "s"} | figures
        assert fast.pairs is not None
        assert fast.pairs.units == len(new)
        assert stored(fast.pairs.pairs) == hashed(new, table.schema.field("person").type)
        assert not set(new) & set(known)
        known |= new
        pairs, ids = pairs + fast.pairs.pairs, fast.pairs.ids


@given(st.data(), st.lists(SEEDS, min_size=3, max_size=3))
@pytest.mark.parametrize("service", SERVICES)
def test_a_join_shows_one_partner(service: str, data: st.DataObject, seeds: list[bytes]) -> None:
    """Joined by `person`, the values of a unit in several tables and waves are those of one partner.

    Every key of the released visits is in the released persons. Units whose partner has left are suppressed.
    """
    everyone = list(range(data.draw(st.integers(2, 25))))
    income = {person: 100 * person for person in everyone}
    number = {person: data.draw(st.integers(1, 3)) for person in everyone}
    pairs, ids = b"", None
    donors: dict[int, int] = {}
    for wave, seed in enumerate(seeds, start=1):
        present = data.draw(st.lists(st.sampled_from(everyone), unique=True, min_size=1))
        if wave == 2:  # visits: several rows a person
            present = [person for person in present for _ in range(number[person])]
        table = pa.table(
            {
                "person": present,
                "income": [income[person] for person in present],
                "area": [person % 2 for person in present],
                "age": [person * 7 % 10 for person in present],
            }
        )
        parameters: dict[str, Any] = {
            "swap_fields": ["income"], "unit_id": "person", "unit_sizes": "any", "series": "s"
        }  # fmt: skip
        if service == "CDSWAP":
            parameters["control_field"] = "area"
        if service == "DDSWAP":
            parameters |= {"control_field": "age", "block_size": 3}
        result = run(service, table, parameters, SeriesPairs("s", wave, KEY, pairs, ids), seed)
        assert result.pairs is not None
        pairs, ids = pairs + result.pairs.pairs, result.pairs.ids
        assert result.table.column("person").equals(table.column("person"))
        for person, value in zip(present, result.table.column("income").to_pylist(), strict=True):
            if value is None:
                assert person not in donors or donors[person] not in present
                continue
            donor = value // 100
            assert donors.setdefault(person, donor) == donor
            assert donor in present
            if service == "CDSWAP":
                assert person % 2 == donor % 2
    assert len(set(donors.values())) == len(donors)
