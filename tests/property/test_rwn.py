"""RWN and its twin agree exactly, and RWN keeps what it promises, over random tables and parameters."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.neighbours import donors, kdtree
from providers.neighbours import k_nearest as nearest
from providers.neighbours.closest_record import closest
from providers.neighbours.points import Points
from providers.services.rwn import RwnParams
from tests.naive import rwn
from tests.naive.agreement import assert_agree, swap
from tests.property.tables import KINDS, NESTED, array, from_pool

SEEDS = st.binary(min_size=32, max_size=32)
NAMES = ["age", "net income", "", "🦊", "a/b~c"]

Column = tuple[str, list[Any]]


def finite(value: Any) -> bool:
    return not (isinstance(value, float) and math.isinf(value))


@st.composite
def values(draw: st.DrawFn, rows: int) -> pa.Array:
    """A column: of any kind, on a lattice, of huge or tiny numbers, with outliers, or all equal."""
    shape = draw(st.sampled_from(["kind", "lattice", "huge", "tiny", "outlier", "equal", "float"]))
    if shape == "kind":
        kind = draw(st.sampled_from(sorted(set(KINDS) - set(NESTED))))
        return array(kind, draw(from_pool([*filter(finite, KINDS[kind][1]), None], rows)))
    pools: dict[str, st.SearchStrategy[Any]] = {
        "lattice": st.integers(0, 3),
        "huge": st.sampled_from([-1.7e308, 1.7e308, 0.0, 1e300]),
        "tiny": st.sampled_from([0.0, 5e-324, 1e-310, -1e-310]),
        "outlier": st.sampled_from([0.0, 0.1, 0.2, 0.3, 1e6]),
        "equal": st.just(7),
        "float": st.one_of(st.floats(-1, 1), st.none()),
    }
    return pa.array(draw(st.lists(pools[shape], min_size=rows, max_size=rows)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any]]:
    """A table and parameters that fit it."""
    rows = draw(st.one_of(st.sampled_from([0, 2, 3]), st.integers(2, 12), st.integers(13, 70)))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    table = pa.table({name: draw(values(rows)) for name in names})
    parameters: dict[str, Any] = {
        "k": draw(st.sampled_from([1, 2, 3, 5, 10, 69, 70, 1000])),
        "epsilon": draw(st.sampled_from([0.0, 0.0, 0.1, 1 / 3, 1.0, 2.0, 100.0])),
        "q": draw(st.sampled_from([1.0, 1.0, 0.5, 0.01])),
        "ties": draw(st.sampled_from(["include", "index"])),
        "categorical_weight": draw(st.sampled_from([1.0, 1.0, 0.05, 3.0, 0.0])),
        "categorical_fields": draw(st.lists(st.sampled_from(names), unique=True)),
    }
    modes = ["exact", "exact", "sample", "own_sample", "pairs", "partition", "partition"]
    mode = draw(st.sampled_from(modes))
    sizes = st.one_of(st.integers(2, 4), st.integers(2, rows + 3))
    if mode in ("sample", "own_sample", "pairs"):
        parameters |= {"neighbours": mode, "sample_size": draw(sizes)}
    if mode == "partition":
        parameters |= {"neighbours": mode, "parts": draw(st.integers(1, max(1, rows // 2)))}
        within = draw(st.sampled_from(["exact", "sample", "own_sample", "pairs"]))
        if within != "exact":
            parameters |= {"within": within, "sample_size": draw(sizes)}
    if draw(st.booleans()):
        nested = draw(st.sampled_from(NESTED))
        column = array(nested, draw(from_pool([*KINDS[nested][1], None], rows)))
        parameters["distance_fields"] = draw(st.permutations(names))
        table = table.append_column("nested", column)
    return table, parameters


def agree(table: pa.Table, parameters: dict[str, Any], seed: bytes) -> None:
    """Assert that fast and naive agree in the provider's own figures, too."""
    fast, naive = assert_agree("RWN", table, parameters, seed)
    assert fast is not None
    assert fast.provider["unchanged_rows"] == naive.provider["unchanged_rows"]
    assert fast.provider["neighbourhood_size"]["mean"] == pytest.approx(
        naive.provider["neighbourhood_size"], rel=1e-12
    )
    assert fast.provider["matching_bits"] == pytest.approx(naive.provider["matching_bits"], rel=1e-9)
    for name in ("rows_below_k", "rows_without_pair"):
        assert fast.provider.get(name) == naive.provider.get(name)


@given(cases(), SEEDS)
def test_agreement(case: tuple[pa.Table, dict[str, Any]], seed: bytes) -> None:
    """RWN is its twin."""
    agree(*case, seed)


@given(cases(), SEEDS, st.sampled_from([0, 1, 3, 8]), st.sampled_from([1, 2, 3, 8]))
def test_agreement_where_neighbourhoods_are_not_listed(
    case: tuple[pa.Table, dict[str, Any]], seed: bytes, listed: int, cover: int
) -> None:
    """Drawing from a cover is the twin's, too: the sizes from which it is done are made small."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (donors, rwn):
            patch.setattr(module, "MOST_LISTED", listed)
            patch.setattr(module, "MOST_COVER_NODES", cover)
        agree(*case, seed)


def test_agreement_where_an_own_sample_is_all_others() -> None:
    """It is then as `exact` is, whose neighbourhoods are drawn from a cover where they are not listed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (donors, rwn):
            patch.setattr(module, "MOST_LISTED", 0)
        parameters = {"k": 1, "epsilon": 1.0, "neighbours": "own_sample", "sample_size": 5}
        agree(pa.table({"age": [0, 0, 0, 0, 1, 0]}), parameters, bytes(32))


@pytest.mark.parametrize("encoded", [False, True])
def test_agreement_on_nothing_but_nulls_in_chunks(encoded: bool) -> None:
    """Arrow cannot unify the dictionaries of the null type."""
    nulls = pa.chunked_array([pa.nulls(3), pa.nulls(2)])
    column = nulls.dictionary_encode() if encoded else nulls
    agree(pa.table({"nothing": column, "x": [1, 2, 3, 4, 5]}), {"k": 2}, bytes(32))


@pytest.mark.slow
def test_agreement_on_more_rows_than_are_listed() -> None:
    """Neighbourhoods of over a thousand rows: equal ones, and what is within epsilon of the rest."""
    random = np.random.default_rng(2)
    rows = 1090
    x = np.where(np.arange(rows) < 1060, 0.0, random.random(rows))
    table = pa.table({"x": x, "c": np.where(np.arange(rows) % 500 == 0, "a", "b")})
    agree(table, {"epsilon": 0.3, "categorical_weight": 0.1}, bytes(32))


def test_agreement_with_many_nearest_rows() -> None:
    """A heap keeps the nearest where they are many."""
    random = np.random.default_rng(3)
    table = pa.table({"x": random.random(300), "y": random.integers(0, 20, 300)})
    for k in (63, 64, 65, 200):
        for ties in ("include", "index"):
            agree(table, {"k": k, "ties": ties}, bytes(32))


@pytest.mark.parametrize("fields", [7, 8, 9, 16, 17])
def test_agreement_in_many_dimensions(fields: int) -> None:
    """More numbers than boxes are read at a time; some are tied, and one field is a category."""
    random = np.random.default_rng(fields)
    columns = {f"x{at}": random.random(150) if at % 2 else random.integers(0, 4, 150) for at in range(fields)}
    agree(pa.table({**columns, "c": random.integers(0, 3, 150).astype(str)}), {"k": 6}, bytes(32))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 48, 49, 80, 256, 257, 1000, 4097, 20_090])
def test_leaves_are_as_few_as_hold_the_rows(count: int) -> None:
    """A node of one leaf has it on its left; below each node of any level they are the same leaves."""
    starts = kdtree.leaf_starts(count)
    sizes = np.diff(starts)
    assert (starts[0], starts[-1]) == (0, count)
    assert np.count_nonzero(sizes) == -(-count // kdtree.LEAF)
    assert sizes.max() <= kdtree.LEAF
    assert np.ptp(sizes[sizes > 0]) <= 1
    assert len(sizes) == 1 or sizes[::2].all()
    for level in range(max(1, kdtree.depth_of(count))):
        firsts = kdtree.node_starts(count, level)
        np.testing.assert_array_equal(starts[:: len(sizes) >> level], firsts)
        halves = np.diff(starts[:: max(1, len(sizes) >> (level + 1))])
        assert np.ptp(halves[halves > 0]) <= kdtree.LEAF + 1
        below = [kdtree.leaf_starts(count, level, node) for node in range(1 << level)]
        whole = [leaves[:-1] + first for leaves, first in zip(below, firsts, strict=False)]
        np.testing.assert_array_equal(np.concatenate([*whole, [count]]), starts)


def test_a_tree_cut_level_by_level_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper levels of a large table are cut by all threads, of a small one by one: the tree is one."""
    random = np.random.default_rng(6)
    numbers = np.column_stack([random.random(3000), random.integers(0, 5, 3000), np.repeat(0.5, 3000)])
    codes = random.integers(0, 3, (3000, 2)).astype(np.int32)
    points = Points(numbers, codes, 1, 2.0)
    rows = np.flatnonzero(random.random(3000) < 0.9).astype(np.int32)
    small = kdtree.grow(points, rows)
    monkeypatch.setattr(kdtree, "_SMALL_TABLE", 100)
    for one, other in zip(small, kdtree.grow(points, rows), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [1e-300, 1e-38, 1e-22, 1e-19, 1.0, 1e7, 1e19, 1e38, 1e39, 1e150, None])
def test_the_closest_of_points_of_any_size(size: float | None) -> None:
    """Too large, or too small, for single precision, in which boxes are left out; some of them tied."""
    random = np.random.default_rng(8)
    numbers = np.round(random.normal(size=(2, 400, 3)), 2)
    numbers *= size or 10.0 ** random.integers(-40, 40, 3)
    codes = random.integers(0, 3, (2, 400, 2)).astype(np.int32)
    weight = float(np.square(numbers).mean())
    one, other = (Points(numbers[side], codes[side], 2, weight) for side in range(2))
    apart = np.zeros((400, 400))
    for field in range(3):
        apart += np.square(numbers[0, :, None, field] - numbers[1, None, :, field])
    apart += weight * np.count_nonzero(codes[0, :, None] != codes[1, None], axis=2)
    found = closest(one, other)
    np.testing.assert_array_equal(found.distances, np.sqrt(apart.min(axis=1)))
    near = apart <= apart.min(axis=1, keepdims=True) * nearest.TIE
    np.testing.assert_array_equal(found.ties, np.count_nonzero(near, axis=1))


@settings(max_examples=30)
@given(cases(), SEEDS)
def test_every_donor_is_a_neighbour(case: tuple[pa.Table, dict[str, Any]], seed: bytes) -> None:
    """No row gets its own value from itself: it comes from its neighbourhood, by the twin's measure."""
    table, parameters = case
    if not table.num_rows:
        return
    tagged = table.append_column("row", pa.array(range(table.num_rows)))
    fields = parameters.get("distance_fields") or table.column_names
    parameters = {**parameters, "distance_fields": fields, "perturb_fields": ["row"], "q": 1.0}
    result = swap("RWN", tagged, parameters, seed)
    params = RwnParams.model_validate(parameters)
    points = rwn.space(table.to_pydict(), params)
    given_by = result.table["row"].to_pylist()
    for rows, candidates, _ in rwn.parts(table.num_rows, params, seed, PROVIDERS["RWN"].draws_revision):
        for i in rows:
            assert given_by[i] in rwn.neighbourhood(rwn.distances(points, i, candidates), params)
            assert given_by[i] != i


def donors_of(table: pa.Table, times: int, **parameters: Any) -> np.ndarray[Any, Any]:
    """Number of times that each row was the donor of each, shape (rows, rows); fields draw independently."""
    rows = table.num_rows
    counts = np.zeros((rows, rows))
    tags = [f"row {time}" for time in range(times)]
    tagged = table
    for tag in tags:
        tagged = tagged.append_column(tag, pa.array(range(rows)))
    shared = {"distance_fields": table.column_names, "perturb_fields": tags, **parameters}
    moved = swap("RWN", tagged, shared).table
    for tag in tags:
        counts[np.arange(rows), moved[tag].to_numpy()] += 1
    return counts


@pytest.mark.parametrize("listed", [1024, 4])
def test_donors_are_uniform(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square over who gives to a row, listed or drawn from a cover."""
    monkeypatch.setattr(donors, "MOST_LISTED", listed)
    monkeypatch.setattr(donors, "MOST_COVER_NODES", 2)
    table = pa.table({"x": np.arange(40.0), "y": np.arange(40.0) % 7})
    counts = donors_of(table, 600, k=9)
    for row in (0, 13, 39):
        among = counts[row][counts[row] > 0]
        assert 9 <= len(among) <= 12  # ties
        chi_square = ((among - 600 / len(among)) ** 2 / (600 / len(among))).sum()
        assert chi_square < 31.3  # the 0.1 % point of 11 degrees of freedom


def test_identical_rows_never_give_to_themselves() -> None:
    """Among rows that are all the same every other is a neighbour, and the row itself is none."""
    counts = donors_of(pa.table({"x": [1.5] * 50, "c": ["a"] * 50}), 40, k=5)
    assert counts.diagonal().sum() == 0
    assert (counts.sum(axis=0) > 0).all()


def test_ties_by_index_are_the_first_rows() -> None:
    """Exactly k neighbours, those of the smallest row numbers among the equally near."""
    counts = donors_of(pa.table({"x": [0] * 20}), 60, k=3, ties="index")
    assert set(np.flatnonzero(counts[10])) == {0, 1, 2}
    assert set(np.flatnonzero(counts[1])) == {0, 2, 3}


def test_probability_of_replacement() -> None:
    """About q of the cells are drawn, each on its own."""
    random = np.random.default_rng(4)
    table = pa.table({name: random.random(5000) for name in "ab"})
    result = swap("RWN", table, {"q": 0.3})
    for name in "ab":
        assert result.summary.took_part_by_field[name] == result.summary.changed[name]
        assert result.summary.changed[name] == pytest.approx(1500, abs=3.5 * math.sqrt(5000 * 0.3 * 0.7))
    assert result.provider["unchanged_share"] == pytest.approx(0.49, abs=0.03)
    assert result.events.counts == {"rows_unchanged": 1}
