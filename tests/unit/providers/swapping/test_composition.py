"""Composition of releases: a stated sum bounds the ratio over all outcomes; without one it is infinite."""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import chain, combinations, permutations, product
from typing import Any

import pyarrow as pa
import pytest

from providers.swapping.composition import UNKNOWN_FIELDS, RunEpsilon, compose, listed, run_epsilon
from providers.swapping.permutation_law import epsilon
from tests.naive import permutation as naive
from tests.naive.agreement import swap

Row = dict[str, Any]
Blocks = tuple[tuple[str, ...], ...]

PEOPLE: list[Row] = [{"a": 1, "b": "x", "c": 0.1}, {"a": 2, "b": "y", "c": 0.2}, {"a": 3, "b": "z", "c": 0.3}]
"""Three people of one group, no two of whom have a value in common."""

RATES = (Fraction(1, 2), Fraction(4, 5))
"""Rates of the first and the second release."""


def outcomes(rows: list[Row], blocks: Blocks, rate: Fraction) -> dict[tuple[Any, ...], Fraction]:
    """Release -> probability, over all permutations of each block."""
    found: dict[tuple[Any, ...], Fraction] = defaultdict(Fraction)
    for orders in product(permutations(range(len(rows))), repeat=len(blocks)):
        chance, released = Fraction(1), [dict(row) for row in rows]
        for block, order in zip(blocks, orders, strict=True):
            moving = sum(row != origin for row, origin in enumerate(order))
            chance *= naive.probability(len(rows), moving, rate)
            for row, origin in enumerate(order):
                released[row] |= {name: rows[origin][name] for name in block}
        if chance:
            found[tuple(tuple(row.values()) for row in released)] += chance
    return found


def exchanged(rows: list[Row], fields: tuple[str, ...]) -> list[Row]:
    """Exchange the values of some fields between the first two people."""
    one, two, *rest = (dict(row) for row in rows)
    for name in fields:
        one[name], two[name] = two[name], one[name]
    return [one, two, *rest]


def largest_ratio(releases: tuple[Blocks, Blocks], fields: tuple[str, ...]) -> float:
    """Logarithm of the largest ratio over all outcomes; infinite if one has only one of the two sources."""
    sources = PEOPLE, exchanged(PEOPLE, fields)
    laws = [
        [outcomes(rows, blocks, rate) for blocks, rate in zip(releases, RATES, strict=True)]
        for rows in sources
    ]
    largest = Fraction(0)
    for one, two in (laws, laws[::-1]):
        for (first, p), (second, q) in product(one[0].items(), one[1].items()):
            other = two[0].get(first, 0) * two[1].get(second, 0)
            if not other:
                return math.inf
            largest = max(largest, p * q / other)
    return math.log(largest)


def run_of(blocks: Blocks, rate: Fraction, rows: int = len(PEOPLE)) -> RunEpsilon:
    return RunEpsilon(blocks, tuple(epsilon(rows, float(rate)) for _ in blocks))


def subsets(names: str) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1)))


def check(releases: tuple[Blocks, Blocks], names: str) -> None:
    """Compare the composition with the ratios of all exchanges of these fields."""
    runs = [run_of(blocks, rate) for blocks, rate in zip(releases, RATES, strict=True)]
    found = compose(runs)
    ratios = {fields: largest_ratio(releases, fields) for fields in subsets(names)}
    assert all(math.isinf(ratio) for fields, ratio in ratios.items() if not set(fields) <= set(found.fields))
    if found.epsilon is None:
        assert found.fields == ()
        assert all(map(math.isinf, ratios.values()))
        assert found.reason
    else:
        assert ratios[found.fields] == pytest.approx(found.epsilon, rel=1e-12)  # it is the least bound
        finite = [ratio for ratio in ratios.values() if not math.isinf(ratio)]
        assert max(finite) <= found.epsilon * (1 + 1e-12)
        assert bool(found.reason) == (set(found.fields) != runs[0].fields | runs[1].fields)


TWO_FIELDS: list[Blocks] = [(("a",),), (("b",),), (("a",), ("b",)), (("a", "b"),)]


@pytest.mark.parametrize("first", TWO_FIELDS, ids=str)
@pytest.mark.parametrize("second", TWO_FIELDS, ids=str)
def test_a_sum_is_the_largest_ratio_of_two_releases(first: Blocks, second: Blocks) -> None:
    """All pairs of releases of one or two fields, locked or not, and all exchanges."""
    check((first, second), "ab")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((("a", "b"), ("c",)), (("b", "c"),), ()),  # a is missing, b is locked with it, c with b
        ((("a", "b"), ("c",)), (("c",),), ("c",)),
        ((("a", "b", "c"),), (("a", "b"), ("c",)), ("a", "b", "c")),
        ((("a", "b", "c"),), (("a", "b"),), ()),
        ((("a", "b"),), (("b",), ("c",)), ()),
        ((("a", "b"),), (("b",), ("a",)), ("a", "b")),
        ((("a",), ("c",)), (("c",), ("b",)), ("c",)),
    ],
)
def test_three_fields(first: Blocks, second: Blocks, expected: tuple[str, ...]) -> None:
    check((first, second), "abc")
    assert compose([run_of(first, RATES[0]), run_of(second, RATES[1])]).fields == expected


def test_a_second_release_of_another_field_leaves_nothing() -> None:
    """The case that was stated as a sum: ages are permuted, and then published as they are."""
    table = pa.table({"age": [20, 30, 40, 50], "income": [1, 2, 3, 4]})
    runs = []
    for name in ("age", "income"):
        parameters = {"swap_fields": [name], "mechanism": "permutation", "rate": 0.5}
        result = swap("DSWAP", table, parameters)
        assert result.table["age"].to_pylist() == [20, 30, 40, 50] or name == "age"
        runs.append(run_epsilon(result.provider["guarantee"]))
    assert compose(runs) == (  # type: ignore[arg-type]
        None,
        (),
        "not all releases swap 'age' and 'income', which the others publish row by row",
    )


def test_members_in_another_order_leave_no_sum() -> None:
    """An exchange of the first household's rows with the second's, in their order, has an epsilon in DSWAP.

    In CDSWAP it moves values between classes: no release of one source is possible from the other.
    """
    runs, released = [], []
    for service, more in (("DSWAP", {}), ("CDSWAP", {"control_field": "kind"})):
        for values in ([1, 2, 3, 4], [3, 4, 1, 2]):
            table = pa.table({"home": [1, 1, 2, 2], "kind": ["p", "q", "q", "p"], "x": values})
            parameters = {"swap_fields": ["x"], "household": "home", "mechanism": "permutation", "rate": 0.5}
            results = [swap(service, table, parameters | more, bytes([seed] * 32)) for seed in range(20)]
            released.append({tuple(each.table["x"].to_pylist()) for each in results})
        runs.append(run_epsilon(results[0].provider["guarantee"]))
    assert [len(found) for found in released] == [2] * 4
    assert released[0] == released[1]
    assert not released[2] & released[3]
    assert [run and run.epsilons for run in runs] == [(0.0,), (0.0,)]
    reason = "not all releases exchange the rows of two units in the same order"
    assert compose(runs) == (None, (), reason)  # type: ignore[arg-type]
    assert runs[1] == RunEpsilon.read({"epsilon": 0.0} | runs[1].document())  # type: ignore[union-attr]


def test_the_order_of_members_names_the_classes() -> None:
    """Other breaks make other classes, by which the rows of two households meet otherwise."""
    table = pa.table({"home": [1, 1, 2, 2], "age": [10, 40, 40, 10], "x": [1, 2, 3, 4]})
    orders = []
    for classifier in ("identity", {"breaks": [20]}, {"breaks": [30]}):
        parameters = {"swap_fields": ["x"], "household": "home", "control_field": "age"}
        permuted = {"mechanism": "permutation", "rate": 0.5, "classifier": classifier}
        guarantee = swap("CDSWAP", table, parameters | permuted).provider["guarantee"]
        orders.append(guarantee["member_order"])
        assert f"member by member in the order of {orders[-1]}." in guarantee["holds_for"]
    assert orders[0] == "the classes of 'age', then of rows"
    assert len(set(orders)) == 3


def test_the_sum_is_of_the_fields_that_all_swap() -> None:
    one = RunEpsilon((("a",),), (1.0,))
    two = RunEpsilon((("a",), ("b",)), (2.0, 4.0))
    assert compose([one]) == (1.0, ("a",), "")
    assert compose([two, two]) == (12.0, ("a", "b"), "")
    found = compose([one, two, one])
    assert (found.epsilon, found.fields) == (4.0, ("a",))
    assert found.reason == "not all releases swap 'b', which the others publish row by row"
    locked = RunEpsilon((("a", "b"),), (8.0,))
    assert compose([two, locked]) == (14.0, ("a", "b"), "")
    assert compose([locked, one]) == (
        None,
        (),
        "not all releases swap 'b', which the others publish row by row, and some lock 'a' with such a field",
    )


def test_rows_and_households_are_different_units() -> None:
    """Rows of a household that move as one show their joint table, which an exchange of two rows changes."""
    rows = RunEpsilon((("a",),), (1.0,))
    households = rows._replace(unit="home")
    assert compose([rows, households]).epsilon is None
    assert "households" in compose([rows, households]).reason
    assert compose([households, households]).epsilon == 2.0


@pytest.mark.parametrize("locked", [False, True])
def test_a_run_names_the_fields_of_its_orders(locked: bool) -> None:
    """Also by indices, and with a comma in a name."""
    table = pa.table({"a, b": range(6), "c": range(6), "home": [1, 1, 2, 2, 3, 3]})
    parameters = {"swap_field_indices": [1, 2], "mechanism": "permutation", "rate": 0.5, "locked": locked}
    run = run_epsilon(swap("DSWAP", table, parameters).provider["guarantee"])
    value = epsilon(6, 0.5)
    blocks: Blocks = (("a, b", "c"),) if locked else (("a, b",), ("c",))
    assert run == (blocks, (value,) * len(blocks), None, None)
    of_homes = run_epsilon(swap("DSWAP", table, parameters | {"household": "home"}).provider["guarantee"])
    assert of_homes is not None
    assert RunEpsilon.read({"epsilon": 1.0, **of_homes.document()}) == of_homes
    assert of_homes == (blocks, (epsilon(3, 0.5),) * len(blocks), "home", "rows")


def test_what_an_entry_does_not_have() -> None:
    assert run_epsilon({"epsilon": None, "by_field": {"a": {"epsilon": 1.0}}}) is None
    assert RunEpsilon.read({}) is None
    assert RunEpsilon.read({"epsilon": None, "draw": "0" * 32}) is None
    assert RunEpsilon.read({"epsilon": 2.0}) == UNKNOWN_FIELDS


def test_at_most_five_names_are_listed() -> None:
    assert listed(["b"]) == "'b'"
    assert listed("edcba") == "'a', 'b', 'c', 'd' and 'e'"
    assert listed("fedcba") == "'a', 'b', 'c', 'd' and 2 more fields"
