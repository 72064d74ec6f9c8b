"""Headers If-None-Match (RFC 9110) and Prefer (RFC 7240)."""

import pytest

from app.api.request_headers import none_match, parse_prefer


@pytest.mark.parametrize(
    ("header", "matches"),
    [
        (None, False),
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ('"b","a"', True),
        ("*", True),
        (" * ", True),
        ('"b"', False),
        ('"a,b"', False),
        ('"b, a"', False),
        ("a", False),
        ("", False),
        ('"', False),
    ],
)
def test_a_tag_is_found_in_the_list(header: str | None, matches: bool) -> None:
    assert none_match(header, '"a"') is not matches


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=3", 3),
        ('wait="3"; x=1, respond-async', 3),
        ('wait=3;x="a,b;c"', 3),
        ('x="y,wait=0", wait=3', 3),
        ('x="y,wait=0"', 10),
        (r'x="\",wait=0", wait=3', 3),
        ('x="y, wait=0', 10),
        ('wait="5;6"', 10),
        (";,;wait=0", 10),
        (",,wait=3,,", 3),
    ],
)
def test_a_preference_ends_at_a_comma_outside_of_quotes(header: str, seconds: float) -> None:
    assert parse_prefer([header], 10, 60).wait_seconds == seconds


def test_many_quotes_take_no_long_time() -> None:
    header = r"\"" * 32_000
    assert parse_prefer([header, '"' + header], 10, 60).wait_seconds == 10
