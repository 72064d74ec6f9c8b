"""Linkability against its plain twin, and on releases whose answer is known."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.linkability import other_rows, shared
from providers.attacks.nearest import Ties, nearest_rows
from providers.attacks.options import AttackOptions
from providers.attacks.suite import attacks_stream
from providers.attacks.tables import AttackTables, MethodUsed
from providers.attacks.thresholds import Thresholds
from providers.attacks.verdict import judge
from tests.naive import attacks as naive
from tests.naive import ranks
from tests.unit.providers.attacks.tables import SEED, attacked, people, result_of

KNOWN = ("age", "school", "town", "height")


def ranges(table: pa.Table, fields: tuple[str, ...]) -> list[float | None]:
    """Range of each field of numbers of the table, None for a category."""
    found: list[float | None] = []
    for name in fields:
        values = [value for value in table.column(name).to_pylist() if value is not None]
        found.append(None if isinstance(values[0], str) else max(values) - min(values))
    return found


@pytest.mark.parametrize("k", [1, 3, 200])
@pytest.mark.parametrize("fields", [("age",), ("school", "town"), ("height", "age", "moves"), KNOWN])
def test_nearest_rows_are_those_of_the_twin(fields: tuple[str, ...], k: int) -> None:
    """All rows nearer than the last one are found; the others are at its distance."""
    source, release = people(60, 1), people(200, 2)
    both = pa.concat_tables([source, release], promote_options="none")
    tables = AttackTables(
        source, release, None, AttackOptions(), method=None, aligned=False, stream=attacks_stream(SEED)
    )
    ties = Ties(200, 60, tables.stream, "test")
    found = nearest_rows(tables.encode(fields, "source"), tables.encode(fields, "release"), k, ties)
    rows = [list(zip(*(table.column(name).to_pylist() for name in fields), strict=True))
            for table in (source, release)]  # fmt: skip
    for query, chosen in zip(rows[0], found.tolist(), strict=True):
        assert len(set(chosen)) == k
        rest = set(chosen)
        for equal in naive.nearest(query, rows[1], ranges(both, fields)):
            if len(equal) >= len(rest):
                assert rest <= equal
                break
            assert equal <= rest
            rest -= equal


def test_an_extreme_value_does_not_hide_the_numbers_of_others() -> None:
    """It stretches the range, by which differences are divided: ranks are compared instead."""
    source, release = people(60, 1), people(200, 2)
    heights = [1e9, *source.column("height").to_pylist()[1:]]
    place = source.schema.get_field_index("height")
    source = source.set_column(place, "height", pa.array(heights, source.schema.field("height").type))
    tables = AttackTables(
        source, release, None, AttackOptions(), method=None, aligned=False, stream=attacks_stream(SEED)
    )
    fields = ("height", "school")
    queries, candidates = (tables.encode(fields, rows) for rows in ("source", "release"))
    found = nearest_rows(queries, candidates, 1, Ties(200, 60, tables.stream, "test"))[:, 0]
    everyone = [height for height in heights + release.column("height").to_pylist() if height is not None]
    ranked = [
        [
            (None if height is None else ranks.rank(everyone, height), school)
            for height, school in zip(table["height"].to_pylist(), table["school"].to_pylist(), strict=True)
        ]
        for table in (source, release)
    ]
    for query, chosen in zip(ranked[0], found.tolist(), strict=True):
        assert chosen in naive.nearest(query, ranked[1], [len(everyone), None])[0]


def test_attacks_succeed_where_the_twin_says() -> None:
    """Ties may decide some attacks; the others give the bounds of the count."""
    source, release = people(150, 1), people(300, 2)
    both = pa.concat_tables([source, release], promote_options="none")
    found = result_of(attacked(source, release, known=KNOWN, attacks=150, neighbours=4), "linkability")
    outcomes = []
    sets = (KNOWN[::2], KNOWN[1::2])
    assert found.details["linked"] == [list(fields) for fields in sets]
    searched = []
    for fields in sets:
        rows = [list(zip(*(table.column(name).to_pylist() for name in fields), strict=True))
                for table in (source, release)]  # fmt: skip
        searched.append([naive.nearest(query, rows[1], ranges(both, fields)) for query in rows[0]])
    outcomes = [naive.links(one, two, 4) for one, two in zip(*searched, strict=True)]
    certain, undecided = outcomes.count(True), outcomes.count(None)
    assert certain <= found.attack.successes <= certain + undecided
    assert found.attack.tries == 150


def test_a_copy_is_linked_and_a_swap_of_every_field_is_not() -> None:
    source, control = people(800, 1), people(400, 2)
    linked = (("age", "height"), ("town", "school", "income"))
    known = ("age", "height", "town", "school", "income")
    options: dict[str, Any] = {"known": known, "linked": linked, "attacks": 300}
    copy = result_of(attacked(source, source, control, **options), "linkability")
    assert copy.control is not None
    assert copy.risk is not None
    assert copy.attack.rate > 0.9
    assert copy.control.rate < 0.02
    assert copy.baseline is not None
    assert copy.baseline.rate < 0.03
    swapped = MethodUsed("DSWAP", {"swap_fields": list(known)})
    figures = attacked(source, source, method=swapped, **options)
    assert figures.control == "sister"
    sister = result_of(figures, "linkability")
    assert sister.control is not None
    assert sister.attack.rate < 0.03
    assert sister.control.tries == 80  # a tenth of the rows


def test_the_baseline_is_the_success_for_two_different_persons() -> None:
    """Two searches by a few categories choose one of many equal rows, of whichever persons the facts are."""
    random = np.random.default_rng(6)
    sexes, hands = (random.choice(values, 1000, p=[0.5, 0.5]) for values in (["f", "m"], ["left", "right"]))
    release = pa.table({"sex": random.permutation(sexes), "hand": random.permutation(hands)})
    source = pa.table({"sex": sexes, "hand": hands})
    found = result_of(attacked(source, release, known=("sex", "hand"), attacks=1000), "linkability")
    assert found.baseline is not None
    assert found.attack.rate > 0.3
    assert found.baseline.low < found.attack.rate < found.baseline.high
    verdict = judge(attacked(source, release, known=("sex", "hand"), attacks=1000), Thresholds())
    [judged] = [each for each in verdict.attacks if each.attack == "linkability"]
    assert judged.state == "low"


def test_each_attack_has_another_person_for_its_baseline() -> None:
    stream = attacks_stream(SEED)
    for rows in (2, 3, 50):
        table = people(rows)
        tables = AttackTables(table, table, None, AttackOptions(), method=None, aligned=False, stream=stream)
        others = other_rows(tables)
        assert others.shape == tables.targets.shape
        assert not (others == tables.targets).any()
        assert ((others >= 0) & (others < rows)).all()
    assert len(set(others.tolist())) > 25


def test_ties_are_chosen_alike_in_one_attack_and_differently_in_others() -> None:
    """All released rows are equal, so both searches of an attack choose the same row, not one for all
    attacks."""
    stream = attacks_stream(SEED)
    tables = AttackTables(
        people(50, 1), people(80, 2), None, AttackOptions(), method=None, aligned=False, stream=stream
    )
    constant = tables.encode((), "source"), tables.encode((), "release")
    ties = Ties(80, 50, stream, "test")
    one, two = (nearest_rows(*constant, 1, ties) for _ in range(2))
    assert shared(one, two) == 50
    assert len(set(one[:, 0].tolist())) > 25
