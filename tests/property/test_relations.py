"""Relations between runs: tables that say the same in other words give the same rows and the same figures."""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from tests.naive.agreement import swap

# --------------------------------------------------------- control fields that define the same groups

LABELS: dict[str, Callable[[int], Any]] = {
    "other numbers": lambda x: (x * 7) % 41 / 8,
    "text": lambda x: f"town {(x * 11) % 41}",
    "decimals": lambda x: Decimal((x * 5) % 41).scaleb(20),
    "signed text": lambda x: f"{x:+}",
}
"""Other names of the integers -20 to 20, each for one."""

GROUPS = {"a": [1, 2, 3], "b": [-5, 7]}

CLASSES: dict[str, tuple[Any, Callable[[int, list[int]], Any]]] = {
    "breaks": ({"breaks": [-7, 0, 3.5]}, lambda x, _: bisect_right([-7, 0, 3.5], x)),
    "quantiles": ({"quantiles": 4}, lambda x, present: 4 * bisect_left(present, x) // len(present)),
    "prefix": ({"prefix": 2}, lambda x, _: (x < 0, str(abs(x))[:2])),
    "groups": (
        {"groups": GROUPS, "other": "one_class"},
        lambda x, _: next((name for name, members in GROUPS.items() if x in members), "other"),
    ),
    "groups and single values": (
        {"groups": GROUPS, "other": "identity"},
        lambda x, _: next((name for name, members in GROUPS.items() if x in members), f"value {x}"),
    ),
}
"""Classifier of integers, and the class of a value, given all values in order."""

CONTROLS = st.lists(st.none() | st.integers(-20, 20), max_size=40)

SWAPS = st.sampled_from(
    [{}, {"rate": 0.5}, {"locked": True}, {"min_group_size": 3}, {"suppression": {"policy": "drop"}}]
)


def controlled(values: list[Any], **more: list[Any]) -> pa.Table:
    """A table with a control field of these values, and a swap field of distinct ones."""
    kind = pa.string() if all(value is None for value in values) else None
    return pa.table({"c": pa.array(values, kind), **more, "v": range(len(values))})


def same_rows(one: SwapResult, other: SwapResult) -> None:
    """The swap field and the summary are equal."""
    assert one.table["v"].equals(other.table["v"])
    assert one.summary == other.summary


@settings(max_examples=25)
@given(CONTROLS, SWAPS, st.sampled_from(sorted(LABELS)))
def test_names_of_classes_do_not_matter(values: list[int | None], more: dict[str, Any], labels: str) -> None:
    """CDSWAP depends on which rows are in a class together, and not on what they share."""
    named = [None if value is None else LABELS[labels](value) for value in values]
    parameters = {"swap_fields": ["v"], "control_field": "c", "on_reversible": "warn"} | more
    plain = swap("CDSWAP", controlled(values), parameters)
    same_rows(swap("CDSWAP", controlled(named), parameters), plain)
    signs = [None if value is None else value < 0 for value in values]
    sizes = [None if value is None else abs(value) for value in values]
    parts = controlled(sizes, sign=signs)
    same_rows(swap("CDSWAP", parts, parameters | {"control_field": ["c", "sign"]}), plain)


@settings(max_examples=25)
@given(CONTROLS, SWAPS, st.sampled_from(sorted(CLASSES)))
def test_a_classifier_is_a_field_of_its_classes(
    values: list[int | None], more: dict[str, Any], name: str
) -> None:
    """CDSWAP with a classifier does the same as without one on a field that holds the class of each row."""
    classifier, class_of = CLASSES[name]
    present = sorted(value for value in values if value is not None)
    classes = [None if value is None else repr(class_of(value, present)) for value in values]
    parameters = {"swap_fields": ["v"], "control_field": "c", "on_reversible": "warn"} | more
    table = pa.table({"c": pa.array(values, pa.int64()), "v": range(len(values))})
    same_rows(
        swap("CDSWAP", table, parameters | {"classifier": classifier}),
        swap("CDSWAP", controlled(classes), parameters),
    )


ORDERED: dict[str, Callable[[list[int | None]], pa.Array]] = {
    "cubes": lambda values: pa.array([None if x is None else float(x) ** 3 for x in values], pa.float64()),
    "text": lambda values: pa.array([None if x is None else f"{x + 20:04}" for x in values], pa.string()),
    "times": lambda values: pa.array(values, pa.int64()).cast(pa.timestamp("ns", "UTC")),
    "long decimals": lambda values: pa.array(
        [None if x is None else Decimal(x).scaleb(40) for x in values], pa.decimal256(60, 2)
    ),
    "half floats": lambda values: pa.array(
        [None if x is None else np.float16(x / 4) for x in values], pa.float16()
    ),
}


@settings(max_examples=25)
@given(CONTROLS, SWAPS, st.integers(2, 9), st.sampled_from(sorted(ORDERED)))
def test_only_the_order_of_a_control_field_matters(
    values: list[int | None], more: dict[str, Any], block_size: int, name: str
) -> None:
    """DDSWAP does the same with any increasing function of its control field, in any type."""
    parameters = {"swap_fields": ["v"], "control_field": "c", "block_size": block_size} | more
    parameters |= {"on_reversible": "warn"}
    parameters.pop("min_group_size", None)
    rows = range(len(values))
    plain = swap("DDSWAP", pa.table({"c": pa.array(values, pa.int64()), "v": rows}), parameters)
    other = swap("DDSWAP", pa.table({"c": ORDERED[name](values), "v": rows}), parameters)
    same_rows(other, plain)
    distance = "swapping_distance"
    assert other.provider[distance]["ranks"] == plain.provider[distance]["ranks"]


# ----------------------------------------------------------- units, types, names and order of fields

RUNS: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {"swap_fields": ["a", "s"], "locked": True}),
    ("CDSWAP", {"swap_fields": ["a", "b"], "control_field": ["s"], "locked": True}),
    ("DDSWAP", {"swap_fields": ["b", "s"], "control_field": "a", "block_size": 5, "locked": True}),
    ("MEWS", {"swap_fields": ["a", "b"], "bins": 4}),
    ("MEWS", {"swap_fields": ["a", "b"], "width": 0.8, "scale": "sd", "singletons": "keep"}),
    ("MEWS", {"swap_fields": ["a", "b"], "degree": 6}),
    ("MEDS", {"swap_fields": ["a", "b"], "k": 3}),
    ("MEDS", {"swap_fields": ["a", "b"], "k": 3, "standardise": False, "method": "mdav"}),
    ("MEDS", {"swap_fields": ["a", "b"], "k": 3, "method": "partitioned", "parts": 2}),
    ("RWN", {"k": 4, "perturb_fields": ["a", "s"], "distance_fields": ["a", "b", "s"], "epsilon": 0.2}),
    ("RWN", {"k": 2, "perturb_fields": ["b"], "distance_fields": ["a", "b"], "ties": "index", "q": 0.5}),
    ("PABIDOT", {"fields": ["a", "b"], "label_fields": ["s"]}),
    ("LOCALITY", {"fields": ["a", "b"], "segment_size": 15, "iterations": 5}),
    ("RSWAP", {"hierarchy": ["s"], "risk_fields": ["a", "b"], "swap_rate": 0.4}),
]

FIELDS = ("a", "b", "s", "rest")


def people(seed: int) -> pa.Table:
    """Rows with ties in two fields of numbers and one of text."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(20, 60))
    return pa.table(
        {
            "a": random.integers(-8, 9, rows),
            "b": random.integers(0, 100, rows),
            "s": [f"s{code}" for code in random.integers(0, 4, rows)],
            "rest": range(rows),
        }
    )


def with_numbers(table: pa.Table, change: Callable[[int], Any], kind: pa.DataType) -> pa.Table:
    """The table with the numbers changed, in this type."""
    for index, name in enumerate(("a", "b")):
        changed = pa.array([change(value) for value in table[name].to_pylist()], kind)
        table = table.set_column(index, name, changed)
    return table


def run(service: str, table: pa.Table, parameters: Mapping[str, Any]) -> SwapResult:
    """Run the service, also on groups of two and three rows."""
    warns = "on_reversible" in PROVIDERS[service].params.model_fields
    return swap(service, table, {**parameters, **({"on_reversible": "warn"} if warns else {})})


def numbers(result: SwapResult, name: str, divisor: float = 1.0) -> list[float]:
    """A field of numbers of the destination."""
    return [float(value) / divisor for value in result.table[name].to_pylist()]


@pytest.mark.parametrize(("service", "parameters"), RUNS, ids=lambda each: str(each))
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32), power=st.sampled_from([1, -30, 200]))
def test_the_unit_of_numbers_does_not_matter(
    service: str, parameters: dict[str, Any], seed: int, power: int
) -> None:
    """Numbers times a power of two, which rounds nothing, give the same rows times that power."""
    table, unit = people(seed), math.ldexp(1.0, power)
    plain = run(service, with_numbers(table, float, pa.float64()), parameters)
    scaled = run(service, with_numbers(table, lambda value: value * unit, pa.float64()), parameters)
    for name in ("a", "b"):
        assert numbers(scaled, name, unit) == numbers(plain, name)
    assert scaled.table.select(["s", "rest"]).equals(plain.table.select(["s", "rest"]))
    assert (scaled.summary, scaled.events.counts) == (plain.summary, plain.events.counts)


CONVERT: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int8(): int,
    pa.uint64(): int,
    pa.float16(): np.float16,
    pa.float32(): float,
    pa.decimal128(30, 3): Decimal,
    pa.decimal256(70, 0): Decimal,
}


@pytest.mark.parametrize(("service", "parameters"), RUNS, ids=lambda each: str(each))
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(list(CONVERT)), names=st.permutations(FIELDS))
def test_types_names_and_order_of_fields_do_not_matter(
    service: str, parameters: dict[str, Any], seed: int, kind: pa.DataType, names: list[str]
) -> None:
    """Equal numbers in any type give equal rows and reports; so do fields in another order and company."""
    table = with_numbers(people(seed), lambda value: abs(value), pa.int64())
    plain = run(service, table, parameters)
    other = run(service, with_numbers(table, CONVERT[kind], kind), parameters)
    moved = run(service, table.append_column("more", table["s"]).select([*names, "more"]), parameters)
    for found in (other, moved):
        for name in ("a", "b"):
            assert numbers(found, name) == numbers(plain, name)
        assert found.table.select(["s", "rest"]).equals(plain.table.select(["s", "rest"]))
        assert repr((found.summary, found.provider, found.measures, found.events.counts)) == repr(
            (plain.summary, plain.provider, plain.measures, plain.events.counts)
        )


@pytest.mark.parametrize(
    ("service", "parameters"),
    [each for each in RUNS if each[0] in ("DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS", "RSWAP")],
    ids=lambda each: str(each),
)
def test_names_of_fields_that_move_together_do_not_matter(service: str, parameters: dict[str, Any]) -> None:
    """A field's name is part of the key of its random draws only where each field is swapped on its own."""
    table, names = people(7), {name: f"new {name}" for name in FIELDS}

    def renamed(value: Any) -> Any:
        return [names[name] for name in value] if isinstance(value, list) else names.get(value, value)

    plain = run(service, table, parameters)
    other = run(
        service,
        table.rename_columns(list(names.values())),
        {key: value if key == "scale" else renamed(value) for key, value in parameters.items()},
    )
    assert other.table.rename_columns(list(FIELDS)).equals(plain.table)


# ------------------------------------------------------------------------------------------ measures

MEASURED = (
    *("changed_share", "unique_combinations", "mean_k", "k_anonymity", "l_diversity", "t_closeness", "suda"),
    *("pscr", "dcr", "interval_sd", "record_linkage", "outlier_exposure", "marginals", "delta_rho"),
    *("association", "il2", "il3", "r_squared", "total_correlation", "distortion", "weighted_marginals"),
    *("weighted_correlations", "weighted_regression", "domain_totals"),
)
"""Measures without consecutive rows, random draws, or a search that begins at some row."""

OPTIONS = MeasureOptions.model_validate(
    {
        "key_fields": ["a", "s"],
        "known_fields": ["b", "u"],
        "sensitive_fields": ["flag"],
        "target": "x",
        "weight_fields": ["w"],
        "stratum_field": "u",
        "domain_fields": ["s"],
        "rounding": {"a": 5},
        "only": MEASURED,
    }
)


def measured(source: pa.Table, destination: pa.Table, origin: Any = None) -> dict[str, Any]:
    """Figures of the measures."""
    found = assess(
        Release(source, destination, origin), OPTIONS, Stream(bytes(32), "measures", 1), pictures=False
    )
    assert not set(found.left_out).intersection(MEASURED)
    return {key: each["value"] for key, each in found.measures.items()}


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Path -> number or text of a nested report."""
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)  # type: ignore[assignment]
    else:
        return {path: value}
    return dict(itertools.chain.from_iterable(leaves(each, f"{path}/{key}").items() for key, each in inner))


def same_figures(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All figures are equal but for the last digits of sums."""
    one, other = leaves(found), leaves(expected)
    assert one.keys() == other.keys()
    for path, value in one.items():
        close = pytest.approx(other[path], rel=1e-9, abs=1e-9) if isinstance(value, float) else other[path]
        assert value == close, path


def test_no_figure_depends_on_the_order_or_the_types_of_the_rows() -> None:
    """Rows of both tables in another order; released rows in another order than the source; other types."""
    random, rows = np.random.default_rng(1), 120
    a = random.integers(0, 50, rows)
    table = pa.table(
        {
            "a": pa.array(a, mask=random.random(rows) < 0.05),
            "b": a * 2 + random.integers(0, 30, rows),
            "x": random.normal(100, 20, rows).round(2),
            "s": random.choice(list("pqrs"), rows),
            "u": [f"u{code}" for code in random.integers(0, 5, rows)],
            "flag": random.random(rows) < 0.5,
            "w": random.uniform(1, 9, rows).round(1),
        }
    )
    release = swap("DSWAP", table, {"swap_fields": ["a", "x", "s"], "rate": 0.6}).table
    expected = measured(table, release)
    order = random.permutation(rows)
    same_figures(measured(table.take(order), release.take(order)), expected)
    same_figures(measured(table, release.take(order), order), expected)
    decimals = pa.array([Decimal(str(value)) for value in table["x"].to_pylist()], pa.decimal128(12, 4))
    retyped = table.set_column(0, "a", table["a"].cast(pa.float64())).set_column(2, "x", decimals)
    retyped = retyped.set_column(3, "s", retyped["s"].dictionary_encode())
    same_figures(measured(retyped, release), expected)
