"""Attacks whose intruder knows some persons of several rows: all rows of each, and no row of another one."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.attack import Attack
from providers.attacks.composition.intruder_groups import groups_by_field, rate_of
from providers.attacks.figures import AttackResult
from providers.attacks.methods import ica, known_io, linear_programming, reidentification, rounding
from providers.attacks.methods.groups import SERIES_JOINED, checked_params, moved_fields
from providers.attacks.tables import MethodUsed
from providers.measures.shared.finding import NotApplicable
from tests.unit.providers.attacks.methods.tables import released


def persons(count: int, each: int) -> pa.Table:
    """Rows of persons of whom each has one value of every field, different from all others."""
    random = np.random.default_rng(3)
    person = np.repeat(np.arange(count), each)
    fields = {name: random.permutation(count * 1000)[:count].astype(float) for name in "abcd"}
    return pa.table({"person": person} | {name: values[person] for name, values in fields.items()})


def results(attack: Attack, *arguments: Any, **options: Any) -> dict[str, AttackResult]:
    found = attack.run(released(*arguments, unit_field="person", **options))
    return found if isinstance(found, dict) else {"": found}


def test_a_known_person_gives_no_row_of_the_same_person_away() -> None:
    """The values of a person are equal: with single rows known, those of the others were recovered."""
    table = persons(100, 5)
    table = table.set_column(1, "a", table["a"].cast(pa.int64()))
    found = results(linear_programming.ATTACK, "LOCALITY", table, {"fields": ["a"]}, known_share=0.2)["a"]
    assert (found.attack.tries, found.attack.successes) == (80, 0)
    assert found.details["known_rows"] == 100
    assert results(rounding.ATTACK, "LOCALITY", table, {"fields": ["a"]})["a"].attack.tries == 100


@pytest.mark.parametrize("attack", [known_io.ATTACK, ica.ATTACK])
def test_known_rows_of_a_rotation_are_those_of_persons(attack: Attack) -> None:
    parameters = {"fields": list("abcd"), "sigma": 0.3}
    for found in results(attack, "PABIDOT", persons(60, 10), parameters, known_share=0.05).values():
        assert found.details["rows"] + found.details["known_rows"] / 10 == 60
    named = results(attack, "PABIDOT", persons(60, 10), parameters, known_rows=(0, 15, 25, 35, 45))
    assert {found.details["known_rows"] for found in named.values()} == {50}
    with pytest.raises(NotApplicable, match="of one unit"):
        results(attack, "PABIDOT", persons(60, 10).set_column(0, "person", [[1] * 600]), parameters)


def test_a_group_of_few_units_of_many_rows_is_too_small() -> None:
    """Units of any size: `min_group_size` counts units, and so does the intruder who computes the groups."""
    table = persons(60, 5).append_column("pair", [np.arange(300) // 10])
    parameters = {
        "swap_fields": ["a"], "control_field": "pair", "unit_id": "person", "unit_sizes": "any",
        "min_group_size": 4, "suppression": {"policy": "keep"}, "mechanism": "permutation", "rate": 0.5,
    }  # fmt: skip
    tables = released("CDSWAP", table, parameters)
    assert moved_fields(tables)[0].group.tolist() == [-1] * 300
    found = reidentification.ATTACK.run(tables)
    assert isinstance(found, dict)
    assert found["a"].attack.rate == 1.0


def test_the_rate_of_units_of_any_size_follows_from_their_number() -> None:
    parameters = {
        "swap_fields": ["a"], "unit_id": "person", "unit_sizes": "any",
        "mechanism": "permutation", "target_epsilon": 6,
    }  # fmt: skip
    tables = released("DSWAP", persons(20, 7), parameters)
    params = checked_params(tables)
    of_rows = {"swap_fields": ["a"], "mechanism": "permutation", "target_epsilon": 6}
    expected = moved_fields(released("DSWAP", persons(20, 1), of_rows))[0].rate
    assert moved_fields(tables)[0].rate == expected
    assert rate_of(params, groups_by_field(tables.release, params), "a", tables.release) == expected


def test_an_attack_on_a_table_of_a_series_says_what_joined_waves_show() -> None:
    """Units of an earlier wave exchanged nothing with new ones, and the release does not show who is new."""
    alone = {"swap_fields": ["a"], "unit_id": "person"}
    tables = released("DSWAP", persons(30, 2), alone)
    assert moved_fields(tables)[0].assumptions == ()
    tables.method = MethodUsed("DSWAP", {**alone, "series": "panel"})
    assert moved_fields(tables)[0].assumptions == (SERIES_JOINED,)
    found = reidentification.ATTACK.run(tables)
    assert isinstance(found, dict)
    assert (found["a"].note or "").endswith(SERIES_JOINED)
