"""MEWS is its twin, exactly, and keeps what it promises, over random tables of numbers."""

import contextlib
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from providers.errors import ParameterError
from providers.results import SwapResult
from tests.naive import mews
from tests.naive.agreement import assert_agree, swap
from tests.naive.bins import BinsOutcome, number
from tests.property.bin_tables import bin_parameters, number_tables, selected_by_risk
from tests.property.test_invariance import backwards, data_of, forwards, rechunked

SEEDS = st.binary(min_size=32, max_size=32)


@st.composite
def grids(draw: st.DrawFn, fields: int, others: str) -> dict[str, Any]:
    """Parameters that set the width of the grid's cells."""

    def one_or_each(values: st.SearchStrategy[Any]) -> Any:
        if others == "univariate" or draw(st.booleans()):
            return draw(values)
        return draw(st.lists(values, min_size=fields, max_size=fields))

    how = draw(st.sampled_from(["bins", "bins", "width", "range", "sd"]))
    grid: dict[str, Any]
    if how == "bins":
        grid = {"bins": one_or_each(st.integers(1, 12))}
    else:
        widths = {
            "width": [0.1, 0.5, 1, 2.5, 30.0, 1e300],
            "range": [0.01, 0.2, 0.3, 1.0, 5.0],
            "sd": [0.1, 0.5, 1.0, 4.0],
        }[how]
        grid = {"width": one_or_each(st.sampled_from(widths)), "scale": "field" if how == "width" else how}
    if how != "bins" and draw(st.booleans()):
        grid["origin"] = one_or_each(st.sampled_from([0.0, -3.5, 0.25]))
    return grid


def assert_mews_agrees(table: pa.Table, parameters: dict[str, Any], seed: bytes) -> SwapResult | None:
    fast, naive = assert_agree("MEWS", table, parameters, seed)
    assert isinstance(naive, BinsOutcome)
    if fast is not None:
        for name, value in naive.figures.items():
            assert fast.provider[name] == value, name
        for field, figures in naive.of_others.items():
            assert fast.provider["others"][field] == figures, field
    return fast


@given(st.data(), SEEDS)
def test_mews(data: st.DataObject, seed: bytes) -> None:
    """MEWS is its twin in every value and figure, or cannot distinguish the cells."""
    table, swap_fields, unusable = data.draw(number_tables())
    parameters = data.draw(bin_parameters(table, swap_fields, unusable))
    parameters |= data.draw(grids(len(swap_fields), parameters["others"]))
    parameters["singletons"] = data.draw(st.sampled_from(["merge", "merge", "keep", "suppression"]))
    if parameters["singletons"] == "keep":
        parameters["suppression"] = {"policy": "keep"}
    distinguished = False
    with contextlib.suppress(ParameterError):
        swap("MEWS", table, {**parameters, "suppression": {"policy": "keep"}})
        distinguished = True
    assume(distinguished)  # or float64 cannot distinguish the cells, which tests of its own look at
    assert_mews_agrees(table, parameters, seed)


@given(st.data(), SEEDS)
def test_selection_by_risk(data: st.DataObject, seed: bytes) -> None:
    """Rows selected by risk within the cells, and the report by decile, are those of the twin."""
    table, swap_fields, unusable = data.draw(number_tables())
    parameters = data.draw(bin_parameters(table, swap_fields, unusable))
    parameters["bins"] = data.draw(st.sampled_from([1, 2, 5]))
    parameters["singletons"] = data.draw(st.sampled_from(["merge", "suppression"]))
    table, by_risk = data.draw(selected_by_risk(table))
    assert_mews_agrees(table, parameters | by_risk, seed)


@given(st.data(), st.integers(1, 40), SEEDS)
def test_degree(data: st.DataObject, degree: int, seed: bytes) -> None:
    """The wanted degree is met as nearly as the twin meets it, which tries every number of cells."""
    rows = data.draw(st.integers(1, 40))
    lattice = st.sampled_from([0.0, 0.1, 0.25, 0.3, 1.0, 2.5, 3.7, 9.9, 10.0])
    names = ["x", "y", "z"][: data.draw(st.integers(1, 3))]
    columns = {name: data.draw(st.lists(lattice, min_size=rows, max_size=rows)) for name in names}
    table = pa.table({**columns, "label": [""] * rows})
    parameters: dict[str, Any] = {"swap_fields": names, "degree": degree, "suppression": {"policy": "keep"}}
    if data.draw(st.booleans()):
        parameters["origin"] = data.draw(st.sampled_from([-0.5, -30.0]))
    assert_mews_agrees(table, parameters, seed)


@given(st.data(), st.sampled_from([0.05, 0.3, 1.0]))
def test_no_value_moves_further_than_a_width(data: st.DataObject, width: float) -> None:
    """Unless merged; swap fields stay together, others stay where they are."""
    values = st.floats(-1e3, 1e3, allow_nan=False)
    rows = data.draw(st.integers(1, 60))
    x, y = (data.draw(st.lists(values, min_size=rows, max_size=rows)) for _ in "xy")
    table = pa.table({"x": x, "y": y, "row": range(rows)})
    parameters = {"swap_fields": ["x", "y"], "width": width, "scale": "range", "singletons": "keep"}
    result = swap("MEWS", table, parameters)
    pairs = result.table.to_pydict()
    assert sorted(zip(pairs["x"], pairs["y"], strict=True)) == sorted(zip(x, y, strict=True))
    assert pairs["row"] == list(range(rows))
    for name, before in (("x", x), ("y", y)):
        step = result.provider["widths"][name] * (1 + 1e-12) + 1e-12  # of rounding x - lo at the edge
        assert all(abs(a - b) <= step for a, b in zip(before, pairs[name], strict=True))


def test_ten_fields_and_a_tiny_width() -> None:
    """Ids of hundreds of bits: rows share a bin where all ten cells agree, and nowhere else."""
    random = np.random.default_rng(3)
    rows = 3000
    base = random.integers(0, 2**40, (rows // 3, 10)).astype(float)
    values = np.concatenate([base, base, base + (np.arange(10) == 9)])  # thirds that differ in the last cell
    values = np.concatenate([values, np.zeros((1, 10)), np.full((1, 10), 2.0**40)])[random.permutation(rows)]
    table = pa.table({f"x{at}": values[:, at] for at in range(10)} | {"label": [""] * rows})
    parameters: dict[str, Any] = {"swap_fields": [f"x{at}" for at in range(10)], "width": 1.0, "origin": -0.5}
    parameters["singletons"] = "keep"
    fast = assert_mews_agrees(table, parameters, bytes(32))
    assert fast is not None
    assert fast.provider["partition_degree"] == len(np.unique(values, axis=0))
    assert fast.provider["cells"]["x0"] > 2**39


@pytest.mark.parametrize("fields", [1, 2, 5])
def test_merging_many(fields: int) -> None:
    """Many single rows among many bins go where a plain search over all of them says."""
    random = np.random.default_rng(fields)
    table = pa.table(
        {f"x{at}": np.round(random.normal(size=1500) * 4) / 4 for at in range(fields)}
        | {"label": [""] * 1500}
    )
    parameters = {"swap_fields": table.column_names[:-1], "bins": 40 if fields < 5 else 6}
    fast = assert_mews_agrees(table, parameters, bytes(32))
    assert fast is not None
    assert fast.provider["merged"] > 3


def test_rows_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than one thread counts by itself: the same number of cells."""
    random = np.random.default_rng(9)
    rows = 33_000
    table = pa.table({"x": random.normal(size=rows), "y": random.integers(0, 50, rows), "label": [""] * rows})
    parameters = {"swap_fields": ["x", "y"], "degree": 60, "singletons": "keep"}
    fast = swap("MEWS", table, parameters)
    columns = [[number(value) for value in table[name].to_pylist()] for name in ("x", "y")]
    m = mews.m_of_degree(columns, [min(xs) for xs in columns], 60)
    assert fast.provider["cells"] == {"x": m, "y": m}


# ------------------------------------------------------------------------------ what must not matter


@pytest.fixture(scope="module")
def people() -> pa.Table:
    random = np.random.default_rng(12)
    rows = 70_001  # enough that kernels cut the work between threads
    income = random.lognormal(size=rows)
    return pa.table(
        {
            "age": random.integers(0, 90, rows),
            "income": income,
            "weight": random.normal(size=rows).astype(np.float32),
            "rent": income * 0.3 + random.random(rows),
            "label": (np.arange(rows) % 7).astype(str),
        }
    )


GRIDS: list[dict[str, Any]] = [
    {"bins": 25},
    {"width": 0.4, "scale": "sd", "others": "univariate"},
    {"degree": 700},
]


@pytest.mark.parametrize("grid", GRIDS)
def test_threads_change_no_byte(grid: dict[str, Any], people: pa.Table) -> None:
    """One thread and two give the same bytes and the same report."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one processor only")
    results = []
    before = numba.get_num_threads()
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            results.append(swap("MEWS", people, {"swap_fields": ["age", "income", "weight"], **grid}))
    finally:
        numba.set_num_threads(before)
    one, two = results
    assert data_of(one.table) == data_of(two.table)
    assert (one.summary, one.provider) == (two.summary, two.provider)


@pytest.mark.parametrize("grid", GRIDS)
def test_chunks_and_encodings_change_nothing(grid: dict[str, Any], people: pa.Table) -> None:
    """Chunked, sliced and dictionary-encoded columns give the values that plain ones give."""
    people = people.slice(0, 5000)
    parameters = {"swap_fields": ["age", "income"], **grid}
    plain = swap("MEWS", people, parameters)
    before = people.to_pydict()
    cut = swap("MEWS", rechunked(people, [17, 2000, 2001]), parameters)
    assert cut.table.equals(plain.table)
    assert (cut.summary, cut.provider) == (plain.summary, plain.provider)
    for encode in (forwards, backwards):
        encoded = people
        for at, name in enumerate(people.column_names[:3]):
            encoded = encoded.set_column(at, name, encode(people.column(name)))
        found = swap("MEWS", encoded, parameters)
        assert found.table.schema == encoded.schema
        assert found.table.cast(people.schema).equals(plain.table)
        assert found.provider == plain.provider
    assert people.to_pydict() == before


def test_other_fields_change_nothing(people: pa.Table) -> None:
    """Other fields, also those that are swapped independently, do not change the swap of the swap fields."""
    parameters = {"swap_fields": ["age", "income"], "bins": 25}
    alone = swap("MEWS", people.select(["income", "age", "label"]), parameters).table
    for others in ("keep", "univariate"):
        together = swap("MEWS", people, {**parameters, "others": others}).table
        assert together.select(["income", "age"]).equals(alone.select(["income", "age"]))


@pytest.mark.parametrize("fields", [1, 2, 3])
def test_a_few_among_many_bins(fields: int) -> None:
    """With few singletons only the bins that can be nearest are searched, and the same bins are found."""
    random = np.random.default_rng(fields)
    crowd = np.round(random.random((1200, fields)) * 12) / 12
    far = random.normal(size=(6, fields)) * 3
    values = np.concatenate([crowd, crowd + 1e-3 * random.random(crowd.shape), far])
    table = pa.table({f"x{at}": values[:, at] for at in range(fields)} | {"label": [""] * len(values)})
    parameters = {"swap_fields": table.column_names[:-1], "width": 1 / 12, "origin": -1 / 24}
    fast = assert_mews_agrees(table, parameters, bytes(32))
    assert fast is not None
    assert 0 < 4 * fast.provider["merged"] < fast.provider["partition_degree"] or fields == 1
