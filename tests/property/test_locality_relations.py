"""LOCALITY's relations and selections: fast and naive agree, and no relation is ever broken, in fractions."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.errors import ParameterError
from providers.localities.property_constraints import PropertyConstraints, source_slacks
from tests.naive.agreement import assert_agree, swap
from tests.naive.locality import LocalityOutcome, segment_starts
from tests.property.out_of_core import assert_same
from tests.property.test_locality import SEEDS, assert_same_figures
from tests.property.test_locality import cases as locality_cases

STATISTICS = ["min", "max", "median", "mean", "q:0", "q:0.25", "q:0.9", "q:1"]
COEFFICIENTS = st.one_of(st.sampled_from([1.0, -1.0, 0.1, -2.5]), st.integers(-3, 3).map(float)).filter(bool)


def numbers_of(column: list[Any]) -> list[Any]:
    """The values as they count in a relation: the nearest float64; dates in days since 1970."""
    days = pa.scalar(0, pa.int32()).cast(pa.date32()).as_py()
    return [
        None if value is None else Fraction(float((value - days).days if hasattr(value, "year") else value))
        for value in column
    ]


def statistic(ordered: list[Fraction], name: str) -> Fraction:
    """An order statistic, or the mean, by its definition."""
    size = len(ordered)
    if name == "mean":
        return sum(ordered, Fraction(0)) / size
    if name == "median":
        return (ordered[(size - 1) // 2] + ordered[size // 2]) / 2
    share = {"min": Fraction(0), "max": Fraction(1)}.get(name)
    share = Fraction(name[2:]) if share is None else share
    return ordered[max(1, math.ceil(share * size)) - 1]


def sums(relation: dict[str, Any], column: list[Any], size: int) -> Iterator[Fraction]:
    """The left side of the relation, in every segment that has it."""
    numbers = numbers_of(column)
    if relation.get("rows"):
        yield sum((Fraction(c) * numbers[int(row)] for row, c in relation["rows"].items()), Fraction(0))
        return
    for start, stop in itertools.pairwise([*segment_starts(len(numbers), size), len(numbers)]):
        ordered = sorted(number for number in numbers[start:stop] if number is not None)
        if ordered:
            found = (Fraction(c) * statistic(ordered, s) for s, c in relation["coefficients"].items())
            yield sum(found, Fraction(0))


def least_limit(relation: dict[str, Any], column: list[Any], size: int) -> float:
    """The least limit that the relation may have, of those that are taken."""
    exact = max(sums(relation, column, size), default=Fraction(0))
    limit = float(max(min(exact, Fraction(10**300)), Fraction(-(10**300))))  # `cases` leaves out one so large
    return limit if abs(limit) >= 1e-200 else 0.0 if limit <= 0 else 1e-200


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any]]:
    """A table and parameters with relations that hold on it, some with equality."""
    table, parameters = draw(locality_cases())
    if parameters["ties"] == "equal":
        parameters["ties"] = "one_sided"
    parameters["selection"] = draw(st.sampled_from(["uniform", "nearest", "widest"]))
    parameters["relations"] = []
    size = parameters["segment_size"]
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(parameters["fields"]))
        column = table.column(name).to_pylist()
        relation: dict[str, Any] = {"field": name}
        starts = [*segment_starts(len(column), size), len(column)]
        pieces = [list(range(*pair)) for pair in itertools.pairwise(starts)] if column else []
        named = [[row for row in piece if column[row] is not None] for piece in pieces]
        named = [piece for piece in named if piece]
        of_records = draw(st.booleans())
        if named and of_records:
            rows = draw(st.lists(st.sampled_from(draw(st.sampled_from(named))), min_size=1, max_size=3))
            relation["rows"] = {str(row): draw(COEFFICIENTS) for row in sorted(set(rows))}
        else:
            of = draw(st.lists(st.sampled_from(STATISTICS), min_size=1, max_size=3, unique=True))
            relation["coefficients"] = {name: draw(COEFFICIENTS) for name in of}
        limit = least_limit(relation, column, size)
        room = draw(st.sampled_from([0.0, 0.0, 1.0, 100.0]))
        relation["at_most"] = limit + room
        if Fraction(limit + room) < Fraction(limit) or abs(limit + room) > 1e299:
            continue
        parameters["relations"].append(relation)
    return table, parameters


def is_possible(table: pa.Table, parameters: dict[str, Any]) -> bool:
    """Whether no two relations require an equality, which is refused."""
    provider = PROVIDERS["LOCALITY"]
    try:
        provider.check(provider.params.model_validate(parameters), table.schema)
    except ParameterError as error:
        if "require an equality" in error.message:
            return False
        raise
    return True


def assert_kept(table: pa.Table, published: pa.Table, parameters: dict[str, Any]) -> None:
    """Assert every relation in fractions of the published numbers, and the order."""
    size = parameters["segment_size"]
    for relation in parameters["relations"]:
        for total in sums(relation, published.column(relation["field"]).to_pylist(), size):
            assert float(total) <= relation["at_most"]  # exact, and rounded once
    for name in parameters["fields"]:
        before, after = (numbers_of(part.column(name).to_pylist()) for part in (table, published))
        for start, stop in itertools.pairwise([*segment_starts(len(before), size), len(before)]):
            rows = [row for row in range(start, stop) if before[row] is not None]
            rows.sort(key=lambda row: (before[row], after[row]))
            assert all(after[one] <= after[two] for one, two in itertools.pairwise(rows))


@settings(max_examples=150, deadline=None)
@given(cases(), SEEDS)
def test_relations_and_selections(case: tuple[pa.Table, dict[str, Any]], seed: bytes) -> None:
    """LOCALITY is its twin, and no relation is broken, with equality or not."""
    table, parameters = case
    if not is_possible(table, parameters):
        return
    fast, naive = assert_agree("LOCALITY", table, parameters, seed)
    assert_same_figures(fast, naive)
    assert fast is not None
    assert_kept(table, fast.table, parameters)
    for code in fast.events.counts:
        event(code)
    event(f"relations: {bool(parameters['relations'])}")
    event(f"repaired: {bool(fast.provider['segments_repaired'])}")
    reported = {int(number): part["segments"] for number, part in fast.provider.get("relations", {}).items()}
    assert isinstance(naive, LocalityOutcome)
    assert reported == naive.provider["relations"]


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 40), st.sampled_from([1, 2, 5]))
def test_relations_out_of_core(case: tuple[pa.Table, dict[str, Any]], batch_rows: int, units: int) -> None:
    """The same destination, report and errors out of core and in units; also where a relation is broken."""
    table, parameters = case
    source = pa.concat_tables([table, table.slice(1), table])
    if is_possible(table, parameters):
        assert_same("LOCALITY", source, parameters, 3000, batch_rows, units)


BROKEN: list[tuple[list[dict[str, Any]], str]] = [
    ([{"coefficients": {"max": 1}, "at_most": 97, "field": "x"}], "in segment 9 .from record 90 on. by 2 %"),
    ([{"coefficients": {"min": -1}, "at_most": -5, "field": "x"}], "in segment 0 .* by 5.1 %"),
    ([{"rows": {"95": 1, "94": 1}, "at_most": 1e6, "field": "y"}], "record 95 holds no value in field 'y'"),
    ([{"rows": {"100": 1}, "at_most": 1e6, "field": "y"}], "there is no record 100"),
    (
        [{"rows": {"9": 1, "10": 1}, "at_most": 1e6, "field": "y"}],
        "records 9 and 10 are in different segments",
    ),
    (
        [
            {"rows": {"95": 1}, "at_most": 1e6, "field": "y"},
            {"coefficients": {"mean": 1}, "at_most": 50, "field": "y"},
            {"coefficients": {"median": 2}, "at_most": 150, "field": "x"},
        ],
        "relation 2 does not hold on field 'x' of the source in 2 segments",
    ),
]


@pytest.mark.parametrize(("relations", "message"), BROKEN)
def test_broken_relations_are_refused_the_same_out_of_core(
    relations: list[dict[str, Any]], message: str
) -> None:
    """The first field's first fault of all rows, before there is a destination."""
    number = np.arange(100)
    table = pa.table({"x": number, "y": pa.array(number, mask=number == 95)})
    parameters = {"fields": ["x", "y"], "segment_size": 10, "relations": relations}
    for units in (1, 2):
        assert assert_same("LOCALITY", table, parameters, 3000, 7, units) is None
    with pytest.raises(ParameterError, match=message):
        swap("LOCALITY", table, parameters)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_slacks_are_exact(data: st.DataObject) -> None:
    """The kernel's left side is that of fractions, rounded once."""
    finite = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x == 0 or abs(x) > 2.0**-700)
    values = np.array(data.draw(st.lists(finite, min_size=1, max_size=6, unique=True).map(sorted)))
    size = st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9)
    terms = data.draw(st.lists(st.tuples(st.integers(0, len(values) - 1), size, st.integers(1, 1500))))
    near = sum((m * Fraction(c) * Fraction(values[v]) for v, c, m in terms), Fraction(0))
    count = data.draw(st.integers(1, 1500))
    nearest = float(near / count) if abs(near) < 10**300 else 0.0
    limits = [0.0, 1.0, nearest, math.nextafter(nearest, -math.inf), data.draw(st.floats(-1e300, 1e300))]
    bound = data.draw(st.sampled_from([limit for limit in limits if not 0 < abs(limit) < 1e-200]))
    variable, coefficient, multiple = (np.array([term[part] for term in terms]) for part in range(3))
    constraints = PropertyConstraints(
        np.array([0, 1]), np.array([0, len(terms)]), variable.astype(np.int64), coefficient.astype(float),
        multiple.astype(np.int64), np.array([bound]), np.array([count]), np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )  # fmt: skip
    slacks, variables = np.zeros(1), np.arange(len(values))
    starts, sizes = np.array([0, len(values)]), np.array([len(values)])
    source_slacks(starts, values, variables, variables, sizes, constraints, slacks)
    if abs(near / count) < Fraction(2) ** 1023:
        assert slacks[0] == bound - float(near / count)
    else:
        assert (slacks[0] < 0) == (near > 0)
