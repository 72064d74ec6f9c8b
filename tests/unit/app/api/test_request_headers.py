"""Header If-None-Match (RFC 9110)."""

import pytest

from app.api.request_headers import none_match


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
