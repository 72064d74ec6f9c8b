"""LOCALITY: extraction, sampling and edge cases."""

import datetime
import itertools
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from providers import PROVIDERS
from providers.errors import ParameterError, SourceError
from providers.localities import polytope as polytopes
from providers.localities import relations
from providers.localities.polytope import Polytope
from providers.localities.redraw import RATES_BYTES
from providers.localities.relations import (
    BOTH_SIDED,
    FREE,
    ONE_SIDED,
    UNIFORM,
    max_constraints,
    sense_of,
)
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.services.locality import PAPER, LocalityParams
from tests.kernel_calls import from_python
from tests.naive.agreement import SEED, assert_agree, swap

advance_centre = from_python(polytopes.advance_centre)
round_directions = from_python(polytopes.round_directions)
choose_relations = from_python(relations.choose_relations)

FLOATS = st.floats(allow_nan=False, allow_infinity=False)

# ------------------------------------------------------------------------------------ extraction


@given(st.lists(FLOATS, min_size=3, max_size=3))
def test_comparison_is_exact(values: list[float]) -> None:
    """The sense of d_k - d_j against d_j - d_i is that of exact rationals, over all finite floats."""
    low, middle, high = sorted(values)
    exact = Fraction(high) - 2 * Fraction(middle) + Fraction(low)
    assert sense_of(low, middle, high) == (exact > 0) - (exact < 0)


NEIGHBOURS = st.lists(st.integers(-3, 3), min_size=3, max_size=3)


@given(st.floats(1, 2), NEIGHBOURS)
def test_comparison_is_exact_near_ties(start: float, steps: list[int]) -> None:
    """The sense is exact also if the last bit decides."""
    bits = [2.0**-52 * (1000 * at + step) for at, step in zip((0, 1, 2), steps, strict=True)]
    low, middle, high = (start + bit for bit in bits)
    exact = Fraction(high) - 2 * Fraction(middle) + Fraction(low)
    assert sense_of(low, middle, high) == (exact > 0) - (exact < 0)


def all_constraints(values: list[Any], ties: int = FREE) -> list[tuple[int, ...]]:
    """Return the constraints that the kernels extract and prune if all relations are kept."""
    floats = np.array(values, np.float64)
    whole = all(isinstance(value, int) for value in values)
    units = np.array([value - values[0] for value in values] if whole else [], np.uint64)
    constraints = np.zeros((4, max_constraints(len(values), ties)), np.int32)
    variables = np.arange(len(values))
    key = Stream(SEED, "LOCALITY", 1).key("test")
    count, found, wanted = choose_relations(
        whole, units, floats, ties, 1.0, UNIFORM, variables, variables, key, np.uint64(0), constraints
    )
    assert found == wanted
    return [tuple(int(entry) for entry in constraints[:, c]) for c in range(count)]


INTEGERS = st.lists(st.integers(0, 30), min_size=3, max_size=12, unique=True).map(sorted)
REALS = st.lists(FLOATS, min_size=3, max_size=12, unique=True).map(sorted)


@given(st.one_of(INTEGERS, REALS))
def test_every_triple_is_implied(values: list[Any]) -> None:
    """With the order, the constraints imply the relation of every triple that is no tie; all are true."""
    constraints = all_constraints(values)
    for i, j, k in itertools.combinations(range(len(values)), 3):
        exact = Fraction(values[k]) - 2 * Fraction(values[j]) + Fraction(values[i])
        nearer = any(j == b and i <= a and k <= c and sense < 0 for a, b, c, sense in constraints)
        farther = any(j == b and i >= a and k >= c and sense > 0 for a, b, c, sense in constraints)
        assert (nearer, farther) == (exact < 0, exact > 0)


@given(INTEGERS)
def test_ties(values: list[int]) -> None:
    """A one-sided tie keeps the `>=`, a both-sided tie the equation; no other relation is lost."""
    for ties in (ONE_SIDED, BOTH_SIDED):
        constraints = all_constraints(values, ties)
        for i, j, k in itertools.combinations(range(len(values)), 3):
            exact = values[k] - 2 * values[j] + values[i]
            below = any(j == b and i <= a and k <= c and sense <= 0 for a, b, c, sense in constraints)
            above = any(j == b and i >= a and k >= c and sense >= 0 for a, b, c, sense in constraints)
            if exact or ties == BOTH_SIDED:
                assert (below, above) == (exact <= 0, exact >= 0)
            else:
                assert above


@pytest.mark.parametrize("sigma", [0.1, 0.35, 0.7])
def test_each_relation_is_as_likely_as_any_other(sigma: float) -> None:
    """Exactly ceil(sigma |P|) relations are drawn without replacement, each equally often."""
    values = np.array([0.0, 1.0, 3.0, 7.0, 7.5, 12.0])
    variables, key = np.arange(6), Stream(SEED, "LOCALITY", 1).key("test")
    units, constraints = np.zeros(0, np.uint64), np.zeros((4, max_constraints(6, FREE)), np.int32)
    counts: dict[tuple[int, ...], int] = {}
    segments = 3000
    for number in range(segments):
        written, found, wanted = choose_relations(
            False,
            units,
            values,
            FREE,
            sigma,
            UNIFORM,
            variables,
            variables,
            key,
            np.uint64(number),
            constraints,
        )
        assert wanted == int(np.ceil(round(sigma * found, 9)))
        for c in range(written):
            constraint = tuple(int(entry) for entry in constraints[:, c])
            counts[constraint] = counts.get(constraint, 0) + 1
    corners = [one for one in all_constraints(values.tolist()) if one in counts]  # never hidden by pruning
    never_hidden = [counts[one] for one in corners]
    expected = segments * wanted / found
    spread = np.sqrt(expected * (1 - wanted / found))
    assert all(abs(count - expected) < 4.5 * spread for count in never_hidden)


# ------------------------------------------------------------------------------------ sampling

VALUES = [0.0, 1.0, 3.0, 4.5, 9.0]


def keeps(x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Rows of x that keep every relation of VALUES."""
    kept = np.ones(len(x), np.bool_)
    for i, j, k in itertools.combinations(range(5), 3):
        sense = np.sign(VALUES[k] - 2 * VALUES[j] + VALUES[i])
        kept &= sense * (x[:, k] - 2 * x[:, j] + x[:, i]) >= 0
    return kept


@pytest.fixture(scope="module")
def rejected() -> npt.NDArray[np.float64]:
    """Uniform points of the polytope in [0, 9]^5, by rejection."""
    random = np.random.default_rng(1)
    points = np.sort(random.uniform(0, 9, (400_000, 5)), axis=1)
    return points[keeps(points)]


def sampled(copies: int, **parameters: Any) -> npt.NDArray[np.float64]:
    """One point of each of many equal segments."""
    table = pa.table({"x": VALUES * copies})
    parameters = {"fields": ["x"], "segment_size": 5, "sigma": 1, "bounds": "column", **parameters}
    result = swap("LOCALITY", table, parameters, bytes([1]) * 32)
    assert result.provider["violations"] == result.provider["segments_repaired"] == 0
    return np.asarray(result.table["x"].to_numpy()).reshape(copies, 5)


@pytest.mark.parametrize(
    "parameters",
    [
        {"iterations": 60},
        {"iterations": 60, "start": "data"},
        {"iterations": 60, "duplicates": "spread"},
        {"iterations": 60, "walk": "hit_and_run"},
    ],
)
def test_points_are_uniform_in_the_polytope(
    rejected: npt.NDArray[np.float64], parameters: dict[str, Any]
) -> None:
    """Coordinates of values and shapes agree with rejection sampling (KS test at 1 %)."""
    points = sampled(3000, **parameters)
    assert keeps(points).all()
    critical = 1.628 * np.sqrt((len(points) + len(rejected)) / (len(points) * len(rejected)))
    for at in range(5):
        assert stats.ks_2samp(points[:, at], rejected[:, at]).statistic < critical
    ours, theirs = ((p[:, 1:4] - p[:, :1]) / (p[:, 4:] - p[:, :1]) for p in (points, rejected))
    for at in range(3):
        assert stats.ks_2samp(ours[:, at], theirs[:, at]).statistic < critical


def test_ends_have_their_exact_law() -> None:
    """The span is Beta(n - 1, 2) of the width, the least value Beta(1, n), the greatest Beta(n, 1)."""
    points = sampled(20_000, iterations=1) / 9
    for drawn, law in (
        (points[:, 4] - points[:, 0], stats.beta(4, 2)),
        (points[:, 0], stats.beta(1, 5)),
        (points[:, 4], stats.beta(5, 1)),
    ):
        assert stats.kstest(drawn, law.cdf).statistic < 1.628 / np.sqrt(len(drawn))


@pytest.mark.parametrize("walk", ["rounded", "hit_and_run"])
@pytest.mark.parametrize(
    ("values", "dimensions"),
    [
        ([0.0, 1.0, 2.0], 0),  # all shapes are evenly spaced
        ([0.0, 1.0, 2.0, 3.0, 4.0], 0),
        ([0.0, 1.0, 2.0, 5.0, 11.0], 2),  # one tie of five values
        ([0.0, 1.0, 3.0, 11.0, 40.0], 3),  # no tie
    ],
)
def test_equal_ties_leave_the_span_the_law_of_their_dimensions(
    values: list[float], dimensions: int, walk: str
) -> None:
    """The span of shapes of d dimensions is Beta(d + 1, 2) of the width, and not Beta(n - 1, 2)."""
    n, segments = len(values), 6000
    table = pa.table({"x": values * segments})
    parameters = {"fields": ["x"], "segment_size": n, "sigma": 1, "ties": "equal", "walk": walk}
    parameters |= {"bounds": "segment", "margin": 0.0, "iterations": 2}
    x = swap("LOCALITY", table, parameters).table["x"].to_numpy().reshape(segments, n)
    spans = (x[:, -1] - x[:, 0]) / (values[-1] - values[0])
    law = stats.beta(dimensions + 1, 2)
    assert stats.kstest(spans, law.cdf).statistic < 1.628 / np.sqrt(segments)


def test_equal_ties_are_drawn_like_the_values_that_have_them() -> None:
    """Rejection from uniform values with the one free distance agrees with the walk over shapes."""
    segments = 6000
    table = pa.table({"x": [0.0, 1.0, 2.0, 6.0] * segments})  # x_2 - x_1 = x_1 - x_0 < (x_3 - x_2) / 2
    parameters = {"fields": ["x"], "segment_size": 4, "sigma": 1, "ties": "equal", "margin": 0.0}
    x = swap("LOCALITY", table, parameters).table["x"].to_numpy().reshape(segments, 4)
    first, step, last = np.random.default_rng(5).random((3, 400_000)) * 6
    inside = (first + 2 * step <= last) & (last - first - 2 * step > 2 * step)
    for ours, theirs in (
        (x[:, 3] - x[:, 0], (last - first)[inside]),
        (x[:, 1] - x[:, 0], step[inside]),
        (x[:, 0], first[inside]),
    ):
        critical = 1.628 * np.sqrt(1 / len(ours) + 1 / len(theirs))
        assert stats.ks_2samp(ours, theirs).statistic < critical


def test_the_papers_walk_is_not_uniform() -> None:
    """Forward steps lead to the arcsine law in one dimension, whole chords to the uniform one."""
    table = pa.table({"x": [0.0, 1.0, 3.0] * 3000})  # x_1 is anywhere up to the middle of the true ends
    for walk, law in (("paper", stats.arcsine), ("hit_and_run", stats.uniform), ("rounded", stats.uniform)):
        parameters = {"fields": ["x"], "segment_size": 3, "sigma": 1, "bounds": "keep", "walk": walk}
        x = swap("LOCALITY", table, parameters).table["x"].to_numpy()[1::3]
        assert stats.kstest(x, law(0, 1.5).cdf).statistic < 1.628 / np.sqrt(len(x))


@pytest.mark.slow
def test_round_directions_make_the_hessian_the_identity() -> None:
    """At the centre, the gradient vanishes and the rounded Hessian is the identity."""
    random = np.random.default_rng(2)
    values = np.sort(random.normal(size=30))
    n = len(values)
    constraints = np.zeros((4, max_constraints(n, FREE)), np.int32)
    variables, key = np.arange(n), Stream(SEED, "LOCALITY", 1).key("test")
    no_units, identity = np.zeros(0, np.uint64), np.uint64(0)
    written, _, _ = choose_relations(
        False, no_units, values, FREE, 1.0, UNIFORM, variables, variables, key, identity, constraints
    )
    z = (values - values[0]) / (values[-1] - values[0])
    none = np.empty((0, n))
    polytope = Polytope(constraints, written, False, none, np.empty(0))
    assert advance_centre(z, polytope, none, np.zeros(3), 400) == 1
    directions = np.empty((n - 2, n))
    assert round_directions(z, polytope, none, directions)
    matrix = np.zeros((written + n - 1, n))
    for c in range(written):
        i, j, k, sense = constraints[:, c]
        matrix[c, [i, j, k]] = np.array([1, -2, 1]) * sense
    matrix[written + np.arange(n - 1), np.arange(n - 1)] = -1
    matrix[written + np.arange(n - 1), np.arange(1, n)] = 1
    slack = matrix @ z
    assert (slack > 0).all()
    scaled = matrix @ directions.T / slack[:, None]
    assert np.abs((1 / slack) @ matrix[:, 1:-1]).max() < 1e-2 * np.abs(1 / slack).max()
    assert scaled.T @ scaled == pytest.approx(np.eye(n - 2), abs=1e-9)


def test_rounding_mixes_faster() -> None:
    """A rounded walk is worth the most independent draws, the paper's walk the fewest."""
    random = np.random.default_rng(3)
    table = pa.table({"x": np.exp(2 * random.normal(size=2000))})
    shared = {"fields": ["x"], "segment_size": 50, "sigma": 1}
    worth = {
        law: swap("LOCALITY", table, {**shared, "walk": law}).provider["mixing"]["independent_draws"]
        for law in ("rounded", "hit_and_run", "paper")
    }
    assert worth["rounded"] > 3 * worth["hit_and_run"]
    assert worth["rounded"] > 5 * worth["paper"]


# ------------------------------------------------------------------------------------ invariance


def numbers(rows: int = 3000) -> pa.Table:
    random = np.random.default_rng(4)
    whole = random.integers(0, 60, rows)
    return pa.table(
        {
            "a": pa.array(whole, mask=whole == 7),
            "b": pa.array(random.normal(size=rows)),
            "c": pa.array((whole * 100).astype(np.int32)).cast(pa.date32()),
        }
    )


@pytest.mark.parametrize("walk", ["rounded", "paper"])
def test_threads_and_other_fields_change_nothing(walk: str) -> None:
    """The same bytes result from one thread or two, and from any set and order of fields."""
    table = numbers()
    parameters = {"segment_size": 30, "sigma": 0.5, "walk": walk, "iterations": 20}
    before = numba.get_num_threads()
    try:
        results = []
        for threads in {1, min(2, numba.config.NUMBA_NUM_THREADS)}:
            numba.set_num_threads(threads)
            results.append(swap("LOCALITY", table, {"fields": ["a", "b", "c"], **parameters}))
    finally:
        numba.set_num_threads(before)
    first = results[0]
    assert all(other.table.equals(first.table) for other in results)
    assert all(other.provider == first.provider for other in results)
    reordered = swap("LOCALITY", table, {"fields": ["c", "a"], **parameters}).table
    for name in ("a", "c"):
        assert reordered.column(name).equals(first.table.column(name))


def test_encodings_and_chunks_change_nothing() -> None:
    """Dictionary encoding, chunks and slices give the same values."""
    table = numbers(500)
    parameters = {"fields": ["a", "b", "c"], "sigma": 0.5}
    plain = swap("LOCALITY", table, parameters).table
    encoded = pa.table({name: table.column(name).dictionary_encode() for name in table.column_names})
    assert swap("LOCALITY", encoded, parameters).table.equals(plain)
    cut = pa.concat_tables([table.slice(0, 13), table.slice(13, 200), table.slice(213)])
    assert swap("LOCALITY", cut, parameters).table.equals(plain)
    inner = pa.concat_tables([table, table, table]).slice(500, 500)
    assert swap("LOCALITY", inner, parameters).table.equals(plain)


def test_slices_of_work_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes result from time slices of any size, with or without the rates in memory."""
    table = numbers(600)
    parameters = {"fields": ["a", "b"], "segment_size": 60, "sigma": 1}
    whole = swap("LOCALITY", table, parameters)
    monkeypatch.setattr("providers.localities.redraw._WORK", 1.0)
    monkeypatch.setattr("providers.localities.redraw.RATES_BYTES", 50_000)
    monkeypatch.setattr("providers.localities.segments._VARIABLES", 100)
    assert RATES_BYTES > 50_000
    again = swap("LOCALITY", table, parameters)
    assert again.table.equals(whole.table)
    assert {**again.provider, "mixing": None} == {**whole.provider, "mixing": None}


def test_progress_is_reported_within_a_walk() -> None:
    """Progress never decreases, and advances also within the walk of a single segment."""
    reported: list[float] = []
    provider = PROVIDERS["LOCALITY"]
    table = pa.table({"x": np.random.default_rng(5).normal(size=200)})
    params = provider.check(LocalityParams(fields=("x",), segment_size=200), table.schema)
    stream = Stream(SEED, "LOCALITY", 1)
    provider.swap(table, params, stream, lambda fraction, stage: reported.append(fraction))
    assert len(reported) > 8000 // 1024
    assert reported == sorted(reported)
    assert 0 <= reported[0] <= reported[-1] <= 1


# ------------------------------------------------------------------------------------ types and edges


def test_types_of_the_destination() -> None:
    """The destination is float64, unless decimals are the type's own; nulls stay."""
    table = pa.table(
        {
            "i": pa.array([5, 1, None, 9, 4, 4, 30, 12], pa.int16()),
            "u": pa.array([5, 1, 0, 9, 4, 4, 30, None], pa.uint64()),
            "m": pa.array([Decimal("1.50"), None, *map(Decimal, "123457")], pa.decimal128(9, 2)),
            "s": pa.array([Decimal("1.50"), None, *map(Decimal, "123457")], pa.decimal32(9, 2)),
            "d": pa.array([datetime.date(2024, 1, day) for day in (1, 3, 4, 9, 20, 21, 30)] + [None]),
            "f": pa.array([0.5, 1.25, 3.0, 4.0, 7.0, 7.5, 9.0, 11.0], pa.float32()),
            "e": pa.array([5, 1, 0, 9, 4, 4, 30, None], pa.int8()).dictionary_encode(),
        }
    )
    names = table.column_names
    plain = swap("LOCALITY", table, {"fields": names, "sigma": 1}).table
    assert {str(field.type) for field in plain.schema} == {"double"}
    rounded = swap("LOCALITY", table, {"fields": names, "sigma": 1, "decimals": 0})
    kinds = ["int16", "uint64", "double", "double", "date32[day]", "double", "int8"]
    assert [str(field.type) for field in rounded.table.schema] == kinds
    cents = swap("LOCALITY", table, {"fields": ["m", "s"], "sigma": 1, "decimals": 2}).table
    assert [cents.schema.field(name).type for name in ("m", "s")] == [pa.decimal128(9, 2), pa.decimal32(9, 2)]
    for result in (plain, rounded.table):
        for name in names:
            assert result.column(name).is_null().equals(table.column(name).is_null())
    assert rounded.provider["violations"] == 0


def test_dates_are_days() -> None:
    """Dates are redrawn as days since 1970, between the ends that are kept."""
    days = [datetime.date(1969, 12, 31), datetime.date(1970, 1, 11), datetime.date(1970, 2, 1)]
    table = pa.table({"d": pa.array(days).cast(pa.date64())})
    out = swap("LOCALITY", table, {"fields": ["d"], "bounds": "keep"}).table["d"].to_pylist()
    assert out[0] == -1.0
    assert out[2] == 31.0
    assert -1 < out[1] < 31


def test_fewer_than_three_distinct_values_are_reported() -> None:
    """Two values follow their ends; a single value stays if its segment has no range."""
    table = pa.table({"x": [3.0] * 10 + [1.0, 2.0] * 5})
    result, _ = assert_agree("LOCALITY", table, {"fields": ["x"], "segment_size": 10})
    assert result is not None
    assert result.events.counts == {"no_localities": 1}
    assert result.provider["segments_without_localities"] == 2
    assert result.provider["relations_kept"] is None
    assert result.table["x"].to_pylist()[:10] == [3.0] * 10
    assert len(set(result.table["x"].to_pylist()[10:])) == 2


@pytest.mark.parametrize("rows", [0, 1, 2, 9, 10, 14, 15, 29])
def test_segments(rows: int) -> None:
    """A last segment of under half the size joins the one before."""
    table = pa.table({"x": pa.array(np.arange(rows, dtype=np.float64))})
    result, _ = assert_agree("LOCALITY", table, {"fields": ["x"], "segment_size": 10})
    assert result is not None
    assert result.summary.groups == {0: 0, 1: 1, 2: 1, 9: 1, 10: 1, 14: 1, 15: 2, 29: 3}[rows]


def test_no_value_leaves_its_domain() -> None:
    """Bounds `segment` end at the domain, bounds `column` fill it."""
    table = pa.table({"x": np.random.default_rng(6).uniform(0, 1, 2000)})
    for bounds in ("segment", "column"):
        parameters = {"fields": ["x"], "bounds": bounds, "domain": {"x": [0, 1]}}
        result = swap("LOCALITY", table, parameters)
        x = result.table["x"].to_numpy()
        assert 0 <= x.min() < x.max() <= 1
        assert not result.events.counts
    own = swap("LOCALITY", table, {"fields": ["x"], "bounds": "column"})
    assert own.events.counts == {"domain_disclosed": 1}
    free = swap("LOCALITY", table, {"fields": ["x"]}).table["x"].to_numpy()
    assert free.min() < 0 < 1 < free.max()


def test_neighbouring_floats_become_one() -> None:
    """If float64 has no other point that keeps the relations, all values become one, with an event."""
    table = pa.table({"x": [1.0 + at * 2.0**-52 for at in (0, 1, 3, 4, 7, 8, 12)]})
    result, _ = assert_agree("LOCALITY", table, {"fields": ["x"], "sigma": 1})
    assert result is not None
    assert result.provider["violations"] == 0
    assert result.events.counts["collapsed"] == (len(set(result.table["x"].to_pylist())) == 1)


def test_spread_draws_equal_values_separately() -> None:
    """Spread duplicates differ, and the relations of all copies hold."""
    table = pa.table({"x": [1, 1, 1, 5, 5, 6, 9, 9, 20, 20] * 20})
    together = swap("LOCALITY", table, {"fields": ["x"], "segment_size": 10})
    apart = swap("LOCALITY", table, {"fields": ["x"], "segment_size": 10, "duplicates": "spread"})
    assert len(set(together.table["x"].to_pylist())) == 20 * 5
    assert len(set(apart.table["x"].to_pylist())) == 20 * 10
    assert apart.provider["violations"] == 0


# ------------------------------------------------------------------------------------ refused

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"fields": ["aa"]}, "/parameters/fields/0", "did you mean 'a'"),
    ({"fields": ["a", "a"]}, "/parameters/fields/1", "twice"),
    ({"fields": ["t"]}, "/parameters/fields/0", "integers, floats, decimals or dates"),
    ({"fields": ["a"], "domain": {"b": [0, 1]}}, "/parameters/domain/b", "not redrawn"),
    ({"fields": ["a"], "domain": {"a": [100, 0]}}, "/parameters/domain/a", "in this order"),
    ({"fields": ["a"], "domain": {"a": [0.5, 9]}}, "/parameters/domain/a/0", "an integer"),
    ({"fields": ["c"], "domain": {"c": [0, 1]}}, "/parameters/domain/c/0", "ISO date"),
]


@pytest.mark.parametrize(("parameters", "pointer", "words"), REFUSED)
def test_what_does_not_fit_is_refused(parameters: dict[str, Any], pointer: str, words: str) -> None:
    """The error names the fault and points to the parameter."""
    table = numbers(5).append_column("t", pa.array(list("abcde")))
    with pytest.raises(ParameterError) as caught:
        swap("LOCALITY", table, parameters)
    assert caught.value.pointer == pointer
    assert words in caught.value.message


@pytest.mark.parametrize(
    "parameters",
    [
        {"fields": []},
        {"fields": ["a"], "segment_size": 2},
        {"fields": ["a"], "segment_size": 1001},
        {"fields": ["a"], "sigma": 0},
        {"fields": ["a"], "bounds": "keep", "margin": 0.1},
        {"fields": ["a"], "ties": "equal", "duplicates": "spread"},
        {"fields": ["a"], "ties": "equal", "bounds": "keep"},
        {"fields": ["a"], "ties": "equal", "decimals": 1},
        {"fields": ["a"], "iterations": 0},
        {"fields": ["a"], "iterations": {"totl": 5}},
        {"fields": ["a"], "decimals": -1},
    ],
)
def test_parameters_that_contradict_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LocalityParams.model_validate(parameters)


@pytest.mark.parametrize(
    ("values", "parameters", "words"),
    [
        ([1.0, float("nan"), float("inf")], {}, "2 values that are not finite"),
        ([1.0, 2.0, 3.0], {"domain": {"x": [0, 2]}}, "1 value outside its domain"),
        ([0.1, 2.0**60, 3.0], {"decimals": 3}, "fewer decimals"),
    ],
)
def test_sources_that_cannot_be_used(values: list[float], parameters: dict[str, Any], words: str) -> None:
    """The field and the count are named, never a value."""
    with pytest.raises(SourceError, match=words):
        swap("LOCALITY", pa.table({"x": values}), {"fields": ["x"], **parameters})


def test_the_profile_replaces_defaults() -> None:
    """The profile replaces defaults, also after the parameters were stored and read."""
    params = LocalityParams.model_validate({"fields": ["a"], "profile": "paper", "segment_size": 50})
    assert params.segment_size == 50
    assert params.iterations == type(params.iterations).model_validate(PAPER["iterations"])  # type: ignore[union-attr]
    assert (params.walk, params.start, params.bounds) == ("paper", "data", "column")
    assert LocalityParams.model_validate(params.model_dump(mode="json")) == params


def test_plan_predicts_the_segments_of_swap() -> None:
    """The plan counts rows and segments without drawing."""
    table = numbers(95)
    provider = PROVIDERS["LOCALITY"]
    params = provider.check(LocalityParams(fields=("a",)), table.schema)
    plan = provider.plan(table, params)
    result = provider.swap(table, params, Stream(SEED, "LOCALITY", 1), no_progress)
    assert (plan.rows, plan.groups, plan.group_size) == (95, 5, result.summary.group_size)
    assert plan.estimated_memory_bytes > 0
