"""JSON values as values of a field's type: accepted values, and the messages for others."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import ParameterError
from providers.localities.domains import domain_of
from providers.tables.literals import literal
from tests.unit.providers.test_params import SCHEMA, refused

REPLACEMENTS: list[tuple[str, Any, str]] = [
    ("age", "12", "replacement for 'age' (int64) must be an integer"),
    ("age", 1.5, "replacement for 'age' (int64) must be an integer"),
    ("age", True, "replacement for 'age' (int64) must be an integer"),
    ("age", 2**63, "must be an integer from -9223372036854775808 to 9223372036854775807"),
    ("age", None, "replacement for 'age' (int64) must be an integer"),
    ("income", "much", "replacement for 'income' (double) must be a number"),
    ("city", 5, "replacement for 'city' (string) must be a text"),
    ("grade", 5, "replacement for 'grade' (string) must be a text"),
    ("born", "29.2.2024", "must be an ISO date such as '2024-02-29'"),
    ("seen", "soon", "must be an ISO date, or date and time to the microsecond"),
    ("paid", 1.234, "must be a number of at most 6 digits, 2 after the point"),
    ("paid", "12345.00", "must be a number of at most 6 digits, 2 after the point"),
    ("paid", "1e5000", "must be a number of at most 6 digits, 2 after the point"),
    ("paid", "NaN", 'must be a number, or one in quotes such as "12.50"'),
    ("active", 0, "must be true or false"),
    ("raw", "not base64!", "must be bytes as base64 text"),
    ("wake", "8 o'clock", "must be an ISO time in whole units of s, such as '08:30:00'"),
    ("wake", "08:30:00.5", "must be an ISO time in whole units of s"),
    ("lasted", 0.0001, "must be a number of seconds, in whole units of ms"),
    ("tags", ["a"], "'tags' has type list<item: string>, for which no replacement can be given"),
]


@pytest.mark.parametrize(("name", "value", "message"), REPLACEMENTS)
def test_a_replacement_fits_its_field(name: str, value: Any, message: str) -> None:
    """A replacement that is no value of the field's type is refused before the data are read."""
    pointer, found = refused(
        "DSWAP", {"swap_fields": [name], "suppression": {"policy": "replace", "replacement": {name: value}}}
    )
    assert pointer == f"/parameters/suppression/replacement/{name}"
    assert message in found


def test_moments_without_an_offset_are_in_the_fields_zone() -> None:
    """Midnight in Dublin in summer is 23:00 of the day before in UTC."""
    field = SCHEMA.field("seen")
    summer = literal("2024-07-01", field, "a break", "")
    assert summer.as_py().astimezone(datetime.UTC).isoformat() == "2024-06-30T23:00:00+00:00"
    assert literal("2024-06-30T23:00Z", field, "a break", "").value == summer.value
    offset = pa.field("f", pa.timestamp("s", "+02:00"))
    assert literal("1970-01-01T02:00", offset, "a break", "").value == 0


def test_a_folder_of_time_zones_is_no_zone() -> None:
    with pytest.raises(ParameterError, match="as the field's time zone is not known"):
        literal("2024-07-01", pa.field("f", pa.timestamp("us", "America")), "a break", "")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(38, 2), "9" * 36 + ".99"),
        (pa.decimal128(38, 2), "-" + "1" * 36 + ".01"),
        (pa.decimal256(76, 0), "1" * 76),
        (pa.decimal256(76, 76), "0." + "7" * 76),
        (pa.decimal128(38, -2), "9" * 36 + "00"),
    ],
)
def test_decimals_keep_all_of_their_digits(kind: pa.DataType, value: str) -> None:
    field = pa.field("f", kind)
    assert literal(value, field, "replacement", "").as_py() == Decimal(value)
    for refused_value in (value + "1" if "." in value else value + ".1", value.replace("-", "") + "e999999"):
        with pytest.raises(ParameterError, match="must be a number of at most"):
            literal(refused_value, field, "replacement", "")


def test_a_domain_of_decimals_keeps_all_of_its_digits() -> None:
    field = pa.field("f", pa.decimal128(38, 2))
    ends = domain_of({"f": ["-" + "9" * 36 + ".99", "9" * 36 + ".98"]}, field)
    assert ends == (1 - 10**38, 10**38 - 2)
