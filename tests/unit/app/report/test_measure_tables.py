"""Values of a report next to their values by chance."""

from typing import Any

from app.report.formatting import named
from app.report.measure_tables import measure
from app.report.small_counts import Discretion

FIELDS = [f"f{at}" for at in range(9)]


def report(**entries: Any) -> dict[str, Any]:
    return {"fields": FIELDS, **entries}


def test_a_value_by_chance_is_in_the_line_of_its_value() -> None:
    given = report(
        value={"mean": 0.5, "at_zero": 0.25},
        chance={"mean": 0.75},
        interval={"mean": {"low": 0.4, "high": 0.6}, "chance": {"mean": {"low": 0.7, "high": 0.8}}},
    )
    assert measure("dcr", given, FIELDS, Discretion(1000)).pairs == [
        ("mean", "0.5; by chance alone 0.75 (95 % interval 0.7 to 0.8)"),
        ("share at distance 0", "0.25"),
        ("mean, 95 % interval", "0.4 to 0.6"),
    ]


def test_values_by_chance_of_fields_are_a_column() -> None:
    """Also if few fields have one, which alone would be a list and no table."""
    for known in (FIELDS, FIELDS[:2]):
        given = report(value=dict.fromkeys(FIELDS, 0.5), chance=dict.fromkeys(known, 0.75))
        (table,) = measure("changed_share", given, FIELDS, Discretion(1000)).tables
        assert table.head == ("field", "value", "by chance alone")
        expected = [(named(name), "0.5", "0.75" if name in known else "") for name in FIELDS]
        assert list(table.rows) == expected


def test_a_measure_without_values_by_chance_has_no_column_for_them() -> None:
    (table,) = measure(
        "changed_share", report(value=dict.fromkeys(FIELDS, 0.5)), FIELDS, Discretion(1000)
    ).tables
    assert table.head == ("field", "value")
