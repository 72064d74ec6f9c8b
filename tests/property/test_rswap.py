"""RSWAP agrees exactly with its twin, and depends on nothing that must not matter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import UnswappableError
from tests.naive.agreement import SEED, assert_agree, swap

SEEDS = st.binary(min_size=32, max_size=32)

IDS: dict[str, Callable[[int], Any]] = {
    "int64": lambda number: number - 3,
    "uint64": lambda number: 2**64 - 1 - number,
    "string": lambda number: f"household {number}",
    "dictionary": lambda number: "æ" * number,
}


@st.composite
def surveys(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any]]:
    """Return a table of few persons in households, in any order, and parameters."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    households = draw(st.integers(0, 14))
    of_row = np.repeat(np.arange(households), random.integers(1, 4, households))
    random.shuffle(of_row)
    rows = len(of_row)

    def household_field(values: list[Any]) -> list[Any]:
        chosen = random.integers(0, len(values), households)[of_row]
        return [values[at] for at in chosen.tolist()]

    kind = draw(st.sampled_from(sorted(IDS)))
    ids = [IDS[kind](number) for number in of_row.tolist()]
    text = kind in ("string", "dictionary")
    id_column = pa.array(ids, pa.string() if text else pa.type_for_alias(kind))
    table = pa.table(
        {
            "id": id_column.dictionary_encode() if kind == "dictionary" else id_column,
            "region": pa.array(
                household_field(["north", "south", None][: draw(st.integers(1, 3))]), pa.string()
            ),
            "place": pa.array(household_field([1, 2, 3]), pa.int32()),
            "size": pa.array(household_field([1, 2, None]), pa.int64()),
            "tenure": pa.array(household_field([0.5, -0.0, 0.0]), pa.float64()),
            "grid": pa.array(household_field(["a", "b"]), pa.string()).dictionary_encode(),
            "age": pa.array(random.integers(0, 3, rows), pa.int8()),
            "sex": pa.array(
                [("f", "m", None)[at] for at in random.integers(0, 3, rows).tolist()], pa.string()
            ),
            "r1": random.choice([0.0, 0.25, 0.5, 1.0], rows),
            "r2": pa.array(random.integers(0, 2, rows), pa.int16()),
        }
    )
    profiles = [["size", "tenure"], ["size"], ["tenure"]]
    parameters: dict[str, Any] = {
        "hierarchy": ["region", "place"][: draw(st.integers(1, 2))],
        "similar": draw(st.lists(st.sampled_from(profiles), max_size=2, unique_by=tuple)),
        "swap_rate": draw(st.sampled_from([0, 0.1, 0.5, 1])),
        "carry_along": draw(st.sampled_from([[], ["grid"]])),
        "unmatched": draw(st.sampled_from(["keep", "suppress"])),
    }
    if draw(st.booleans()):
        parameters |= {"risk_fields": ["age", "sex"], "k_anonymity": draw(st.integers(0, 4))}
    elif draw(st.booleans()):
        several = len(parameters["hierarchy"]) == 2 and draw(st.booleans())
        parameters |= {"risk": ["r1", "r2"] if several else ["r1"]}
        parameters |= {"risk_threshold": draw(st.sampled_from([0, 0.3, 1]))}
    if draw(st.booleans()) or not rows:
        return table, parameters | {"household": "id"}
    first = table.take(pa.array(np.sort(np.unique(of_row, return_index=True)[1])))  # one row each
    return first, parameters


@given(surveys(), SEEDS)
def test_rswap(survey: tuple[pa.Table, dict[str, Any]], seed: bytes) -> None:
    """RSWAP is its twin, in values and figures, over types of ids, profiles, kinds of risk and policies."""
    fast, naive = assert_agree("RSWAP", *survey, seed)
    assert fast is not None
    for name, value in naive.provider.items():
        assert fast.provider[name] == value, name


@given(surveys(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(survey: tuple[pa.Table, dict[str, Any]], random: Any) -> None:
    """Rows in another order are swapped alike, if households have ids."""
    table, parameters = survey
    if "household" not in parameters:
        return
    order = list(range(table.num_rows))
    random.shuffle(order)
    direct = swap("RSWAP", table, parameters).table
    reordered = swap("RSWAP", table.take(pa.array(order, pa.int64())), parameters).table
    assert reordered.to_pylist() == direct.take(pa.array(order, pa.int64())).to_pylist()


@pytest.mark.parametrize("pieces", [2, 7])
def test_chunks_do_not_matter(pieces: int) -> None:
    """A table in several chunks, of several dictionaries, is swapped like one."""
    rows = 40
    columns = {
        "id": pa.array([f"h{row // 2}" for row in range(rows)]).dictionary_encode(),
        "region": pa.array(["n", "s", "e", "w"] * 10).take(pa.array([row // 2 for row in range(rows)])),
        "age": pa.array([row % 5 for row in range(rows)]),
    }
    table = pa.table(columns)
    cut = pa.concat_tables([table.slice(at, pieces) for at in range(0, rows, pieces)])
    parameters = {"household": "id", "hierarchy": ["region"], "risk_fields": ["age"], "swap_rate": 0.4}
    assert swap("RSWAP", cut, parameters).table.equals(swap("RSWAP", table, parameters).table)


def test_a_run_fails_where_a_household_has_no_donor() -> None:
    """Policy fail: the plan fails where nobody can match, the run also where donors have run out."""
    table = pa.table({"region": ["n", "s", "s"], "size": [1, 2, 2], "age": [1, 2, 2]})
    parameters = {"hierarchy": ["region"], "similar": [["size"]], "risk_fields": ["age"], "k_anonymity": 2}
    with pytest.raises(UnswappableError, match=r"^1 row of 1 household cannot be swapped"):
        swap("RSWAP", table, {**parameters, "unmatched": "fail"})
    crowded = pa.table({"region": ["n", "n", "s"], "age": [1, 2, 3]})
    parameters = {"hierarchy": ["region"], "risk_fields": ["age"], "k_anonymity": 2}
    with pytest.raises(UnswappableError, match=r"^1 row of 1 household cannot be swapped"):
        swap("RSWAP", crowded, {**parameters, "unmatched": "fail"})
    kept = swap("RSWAP", crowded, parameters)
    assert kept.events.counts == {"kept": 1}
    suppressed = swap("RSWAP", crowded, {**parameters, "unmatched": "suppress"}, SEED).table
    assert pc.sum(suppressed["region"].is_null()).as_py() == 1
