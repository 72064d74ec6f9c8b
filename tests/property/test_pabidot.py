"""PABIDOT is its twin, bit by bit; and what must not matter does not."""

import math
from decimal import Decimal
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.errors import SourceError
from providers.progress import no_progress
from providers.results import SwapResult
from providers.rotation.moments import BLOCK
from tests.naive import pabidot
from tests.naive.agreement import SEED, assert_agree, swap
from tests.property.tables import columns, from_pool
from tests.property.test_invariance import data_of, rechunked

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "lattice": (pa.int8(), [-2, -1, 0, 1, 2]),
    "constant": (pa.int64(), [7]),
    "sizes": (pa.float64(), [0.0, -0.0, 1e-140, 1.5, -1e140, 1e140, 3e100]),
    "outlier": (pa.float64(), [1.0, 1.1, 1.2, 1.3, 1e9]),
    "close": (pa.float64(), [1e15, 1e15 + 0.125, 1e15 + 2]),
    "too large": (pa.float64(), [-1e300, 0.5, 1e308]),
    "too close": (pa.float64(), [5e-324, 1e-170, 0.0]),
    "beyond 2**53": (pa.int64(), [2**53, 2**53 + 1, 2**60 + 1, -(2**62) - 3]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1, 2**63 + 1]),
    "float32": (pa.float32(), [0.1, -2.5, 3e38]),
    "decimal": (pa.decimal128(20, 2), [Decimal("-1.50"), Decimal("0.10"), Decimal("18.25")]),
    "tenths": (pa.decimal64(9, 1), [Decimal("0.3"), Decimal("0.6"), Decimal("0.7"), Decimal("-4.7")]),
    "encoded": (pa.dictionary(pa.int8(), pa.int64()), [30, -3, 300]),
    "broken": (pa.float64(), [math.nan, math.inf, -math.inf, 1.0, 2.0, 3.0, 4.0, 5.0]),
}
NAMES = ["a", "with space", "größe", "🦊", "x/y", "noise/a"]
SEEDS = st.binary(min_size=32, max_size=32)


@st.composite
def numeric_tables(draw: st.DrawFn) -> pa.Table:
    """Two or three numeric fields, mostly of kinds that are fit to be rotated, and text."""
    rows = draw(st.one_of(st.integers(0, 3), st.integers(4, 40), st.integers(4, 40)))
    good = [
        "lattice",
        "sizes",
        "outlier",
        "close",
        "beyond 2**53",
        "unsigned",
        "float32",
        "decimal",
        "encoded",
    ]
    kinds = draw(st.lists(st.sampled_from(good), min_size=2, max_size=3))
    if draw(st.integers(0, 2)) == 0:
        kinds[draw(st.integers(0, len(kinds) - 1))] = draw(st.sampled_from(sorted(POOLS)))
    nulls = draw(st.integers(0, 4)) == 0
    table = {}
    for name, kind in zip(draw(st.permutations(NAMES)), kinds, strict=False):
        data_type, pool = POOLS[kind]
        values = draw(from_pool([*pool, None] if nulls else pool, rows))
        plain = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        column = pa.array(values, plain)
        table[name] = (
            column.cast(data_type) if plain == data_type else column.dictionary_encode().cast(data_type)
        )
    table["text"] = pa.array([f"row {row}" for row in range(rows)])
    return pa.table(table)


def assert_twin(table: pa.Table, parameters: dict[str, Any], seed: bytes) -> SwapResult | None:
    """Assert that both agree in every bit and figure, or that both refuse the source."""
    provider = PROVIDERS["PABIDOT"]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    try:
        fast, naive = assert_agree("PABIDOT", table, parameters, seed)
    except pabidot.CannotRotateError:
        with pytest.raises(SourceError) as planned:
            provider.plan(table, params)
        with pytest.raises(SourceError) as swapped:
            provider.swap(table, params, provider.stream(seed), no_progress)
        assert str(planned.value) == str(swapped.value)
        return None
    assert fast is not None
    assert isinstance(naive, pabidot.Rotated)
    assert fast.provider == {**naive.provider, "phi": pytest.approx(naive.provider["phi"], abs=1e-12)}
    return fast


@given(
    numeric_tables(),
    st.sampled_from([0.0, 0.3, 2.0]),
    st.sampled_from(["paper", "definition"]),
    st.booleans(),
    st.sampled_from(["fail", "drop_from_fit", "drop_from_fit", "drop_from_fit"]),
    SEEDS,
)
def test_pabidot(
    table: pa.Table, sigma: float, selection: str, shuffle: bool, nulls: str, seed: bytes
) -> None:
    """PABIDOT is its twin, over random tables and parameters."""
    parameters = {"sigma": sigma, "selection": selection, "shuffle": shuffle, "nulls": nulls}
    assert_twin(table, parameters, seed)


@pytest.mark.parametrize("rows", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3, 9001])
def test_across_the_sizes_of_blocks(rows: int) -> None:
    """Rows around whole blocks of sums, beyond one bucket of the shuffle, some of them passing through."""
    random = np.random.default_rng(rows)
    values = random.normal(size=(3, rows)).cumsum(axis=1) * [[1.0], [1e-3], [1e6]] + [[0.0], [1e3], [-5e6]]
    gaps = random.random(rows) < 0.1
    gaps[BLOCK : 2 * BLOCK] = rows > 2 * BLOCK  # a block in which nobody takes part
    table = pa.table(
        {"a": values[0], "b": pa.array(values[1], mask=gaps), "c": values[2], "row": range(rows)}
    )
    assert_twin(table, {"label_fields": ["row"], "nulls": "drop_from_fit"}, SEED)
    assert_twin(table.select(["a", "c", "row"]), {"fields": ["c", "a"], "selection": "definition"}, SEED)


@pytest.fixture(scope="module")
def large() -> pa.Table:
    """More rows than one slice of any kernel."""
    random = np.random.default_rng(3)
    rows = 1_100_000
    values = random.normal(size=(4, rows))
    return pa.table(
        {
            "a": values[0],
            "b": pa.array(values[1] + values[0], mask=values[1] > 2.5),
            "c": np.exp(values[2]),
            "d": (100 * values[3]).astype(np.int32),
            "t": (np.arange(rows) % 7).astype(str),
        }
    )


def test_threads_change_no_byte(large: pa.Table) -> None:
    """One thread and two give the same bytes and the same report; progress never goes back."""
    before = numba.get_num_threads()
    provider = PROVIDERS["PABIDOT"]
    params = provider.check(provider.params(nulls="drop_from_fit"), large.schema)
    reported: list[float] = []
    results = []
    try:
        for threads in (1, 2):
            if threads > numba.config.NUMBA_NUM_THREADS:
                pytest.skip("one processor only")
            numba.set_num_threads(threads)
            reported.clear()
            stream = provider.stream(SEED)
            results.append(provider.swap(large, params, stream, lambda share, stage: reported.append(share)))
            assert reported == sorted(reported)
            assert 0 <= reported[0] <= reported[-1] <= 1
            assert len(reported) > 10
    finally:
        numba.set_num_threads(before)
    one, two = results
    assert data_of(one.table) == data_of(two.table)
    assert (one.summary, one.provider, one.measures) == (two.summary, two.provider, two.measures)


def test_a_large_table_is_shuffled_as_a_whole(large: pa.Table) -> None:
    """The shuffle is one permutation of all rows: labels and perturbed fields move together."""
    table = large.select(["a", "c", "d"]).append_column("row", pa.array(np.arange(large.num_rows)))
    parameters = {"label_fields": ["row"]}
    shuffled = swap("PABIDOT", table, parameters).table
    plain = swap("PABIDOT", table, {**parameters, "shuffle": False}).table
    order = shuffled["row"].to_numpy()
    assert (np.sort(order) == np.arange(table.num_rows)).all()
    for name in ("a", "c", "d"):
        assert (shuffled[name].to_numpy() == plain[name].to_numpy()[order]).all()
    fixed = np.count_nonzero(order == np.arange(table.num_rows))
    assert fixed < 10  # one is expected
    assert abs(np.corrcoef(order, np.arange(table.num_rows))[0, 1]) < 0.005


@settings(max_examples=25)
@given(st.data(), st.lists(st.integers(0, 100), max_size=4))
def test_chunks_slices_and_encodings_change_nothing(data: st.DataObject, cuts: list[int]) -> None:
    """However the source is chunked, sliced or encoded, the destination is the same; the source stays."""
    kinds = data.draw(st.lists(st.sampled_from(["int8", "int64", "float64"]), min_size=2, max_size=3))
    rows = data.draw(st.integers(2, 30))
    table = pa.table({f"s{at}": data.draw(columns(kind, rows)) for at, kind in enumerate(kinds)})
    table = table.append_column("n", pa.array(range(rows))).append_column("m", pa.array(np.arange(rows) ** 2))
    before = str(table.to_pydict())
    try:
        whole = swap("PABIDOT", table, {"nulls": "drop_from_fit"})
    except SourceError:
        return
    encoded = table.set_column(0, "s0", table.column("s0").dictionary_encode())
    for other in (rechunked(table, cuts), encoded, rechunked(encoded, cuts)):
        again = swap("PABIDOT", other, {"nulls": "drop_from_fit"})
        assert data_of(again.table) == data_of(whole.table)
        assert (again.summary, again.provider) == (whole.summary, whole.provider)
    assert str(table.to_pydict()) == before


def test_orders_of_few_rows_are_uniform() -> None:
    """Two rows have two orders, three have six, equally often."""
    for rows, orders in ((2, 2), (3, 6)):
        table = pa.table(
            {"a": range(rows), "b": np.arange(rows) ** 2 + 1, "t": [str(r) for r in range(rows)]}
        )
        found: dict[str, int] = {}
        for seed in range(60 * orders):
            moved = swap("PABIDOT", table, {}, seed.to_bytes(32, "big")).table
            key = "".join(moved["t"].to_pylist())
            found[key] = found.get(key, 0) + 1
        assert len(found) == orders
        expected = 60
        chi_square = sum((count - expected) ** 2 / expected for count in found.values())
        assert chi_square < 20  # 1 in 1000 of five degrees of freedom
