"""Decimals are computed with as the nearest float64, like the same numbers as double."""

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.worker.row_comparison import _differ
from providers import PROVIDERS
from providers.measures.shared.columns import column_of
from providers.params import RiskSelection
from providers.swapping.row_risk import row_risk
from providers.tables.numbers import counted, float_values, floats_of, nearest_floats, numbers_of
from tests.naive.agreement import assert_agree, swap
from tests.property.out_of_core import assert_same

TENTHS = [Decimal(f"{tenth}e-1") for tenth in range(1, 41)]


def number(units: int, scale: int) -> Decimal:
    """The decimal with this number of units of 10**-scale."""
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.decimal32(9, 1), pa.decimal64(18, 3), pa.decimal64(18, 18)),
        *(pa.decimal128(18, 2), pa.decimal128(25, 5), pa.decimal128(38, 22), pa.decimal128(38, 23)),
        *(pa.decimal256(50, 4), pa.decimal256(76, 40), pa.decimal256(76, 76)),
        *(pa.decimal128(20, -2), pa.decimal128(20, -22), pa.decimal128(5, -30)),
    ],
    ids=str,
)
def test_every_decimal_becomes_the_nearest_float64(kind: pa.DataType) -> None:
    """Small, large, on both sides of 2**53 units and of 64 bits, in slices and dictionaries, with nulls."""
    draws = random.Random(5)
    largest = 10 ** min(kind.precision, 38 + min(kind.scale, 0) if kind.scale < 0 else 76) - 1
    bounds = [bound for bound in (10, 10**4, 2**53, 2**64, largest) if bound <= largest]
    units = [draws.randint(-bound, bound) for bound in bounds for _ in range(60)]
    units += [sign * (bound + near) for bound in bounds[:-1] for near in (-1, 0, 1) for sign in (-1, 1)]
    units = [unit for unit in units if abs(unit) <= largest]
    values = [None, *(number(unit, kind.scale) for unit in units), None]
    array = pa.array(values, kind)
    expected = np.array([np.nan if value is None else float(value) for value in values])
    column = pa.chunked_array([array.slice(0, 9), array.slice(9)])
    for found in (float_values(column), floats_of(column).to_numpy(), counted(column)):
        assert found is not None
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(nearest_floats(array.slice(7))[:-1], expected[7:-1])


def test_tenths_are_not_one_digit_off() -> None:
    """Arrow's cast makes 0.30000000000000004 of 0.3, also of whole numbers with decimals."""
    array = pa.array(TENTHS, pa.decimal128(25, 5))
    assert nearest_floats(array).tolist() == [tenth / 10 for tenth in range(1, 41)]
    assert array.cast(pa.float64()).to_pylist() != [tenth / 10 for tenth in range(1, 41)]


@pytest.mark.parametrize("scale", [2, 10, 18])
def test_locality_reads_decimals_beyond_the_integers_of_float64(scale: int) -> None:
    """The quotient of a rounded number of units and a power of ten was rounded a second time."""
    draws = random.Random(11)
    values = [number(draws.randint(2**53, 2**63 - 1), scale) for _ in range(500)]
    numbers = numbers_of(pa.chunked_array([pa.array(values, pa.decimal128(20, scale))]), "x")
    assert numbers.values.tolist() == list(map(float, values))


@pytest.mark.parametrize("selection", [{"field": "x"}, {"key_fields": ["y"], "weight": "x"}])
def test_risks_and_weights_are_those_of_the_same_numbers_as_double(selection: dict[str, Any]) -> None:
    doubles, decimals = (
        row_risk(numbers_table(kind), RiskSelection.model_validate(selection)).risk
        for kind in (pa.float64(), pa.decimal128(25, 5))
    )
    np.testing.assert_array_equal(doubles, decimals)


def numbers_table(kind: pa.DataType) -> pa.Table:
    """A field of tenths, as a double or a decimal, and others."""
    tenths = [float(tenth) for tenth in TENTHS] if pa.types.is_floating(kind) else TENTHS
    return pa.table(
        {
            "x": pa.array(tenths * 3, kind),
            "y": pa.array([float(row * row % 7) for row in range(120)]),
            "id": [str(row) for row in range(120)],
        }
    )


CASES: list[tuple[str, dict[str, Any]]] = [
    ("MEWS", {"swap_fields": ["x"], "width": 0.1, "origin": 0}),
    ("MEWS", {"swap_fields": ["x"], "width": 0.3}),
    ("MEDS", {"swap_fields": ["x"], "k": 3, "standardise": False}),
    ("MEDS", {"swap_fields": ["x", "y"], "k": 3, "method": "partitioned", "parts": 2}),
    ("RWN", {"distance_fields": ["x"], "perturb_fields": ["id"], "k": 2}),
    ("PABIDOT", {"fields": ["x", "y"]}),
    ("DDSWAP", {"swap_fields": ["id"], "control_field": "x", "block_size": 3}),
]


@pytest.mark.parametrize("kind", [pa.decimal64(9, 1), pa.decimal128(25, 5), pa.decimal256(60, 30)], ids=str)
@pytest.mark.parametrize(("service", "parameters"), CASES)
def test_a_service_gives_the_same_for_decimals_and_doubles(
    service: str, parameters: dict[str, Any], kind: pa.DataType
) -> None:
    """Rows and values are those of the same numbers as double, in memory and out of core."""
    table = numbers_table(kind)
    found = swap(service, table, parameters)
    plain = swap(service, numbers_table(pa.float64()), parameters)
    assert list(map(float, found.table["x"].to_pylist())) == plain.table["x"].to_pylist()
    assert found.table.drop(["x"]).equals(plain.table.drop(["x"]))
    provider = PROVIDERS[service]
    if provider.scaling.can_cut(provider.params.model_validate(parameters)):
        assert_same(service, table, parameters, 1_500_000 if service == "PABIDOT" else 4096, 17)


@pytest.mark.parametrize(("service", "parameters"), CASES)
def test_a_service_agrees_with_its_twin_on_decimals(service: str, parameters: dict[str, Any]) -> None:
    """The twin computes with ``float(Decimal)``."""
    assert_agree(service, numbers_table(pa.decimal128(6, 1)), parameters)


def test_a_constant_field_passes_pabidot_as_it_is() -> None:
    """A constant 0.3 was published as 0.30000000000000004."""
    table = numbers_table(pa.float64()).append_column("c", pa.array([Decimal("0.3")] * 120))
    found = swap("PABIDOT", table, {"fields": ["x", "y", "c"]})
    assert set(found.table["c"].to_pylist()) == {0.3}


def test_measures_and_comparisons_see_no_change_where_there_is_none() -> None:
    """A decimal in the source and the same number as double in the destination are equal."""
    decimals = pa.chunked_array([pa.array(TENTHS, pa.decimal128(6, 1))])
    doubles = pa.chunked_array([pa.array([float(tenth) for tenth in TENTHS])])
    column = column_of("x", decimals, doubles, False)
    np.testing.assert_array_equal(column.codes("source"), column.codes("destination"))
    np.testing.assert_array_equal(column.numbers("source"), column.numbers("destination"))
    assert not _differ(decimals.chunk(0), doubles.chunk(0)).any()
