"""Suggestions for misspelt names take bounded time."""

import difflib
from typing import Any

import pytest

from providers.errors import did_you_mean


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Return the list to which each comparison of difflib is added."""
    calls = []
    original = difflib.get_close_matches

    def get_close_matches(name: str, known: list[str], **named: Any) -> list[str]:
        calls.append((name, known))
        return original(name, known, **named)

    monkeypatch.setattr(difflib, "get_close_matches", get_close_matches)
    return calls


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a" * 20_000, ["a" * 19_999]),
        ("a" * 90, ["a" * 20_000, "b" * 90]),
        ("a" * 99, [f"{index:04}{'a' * 96}" for index in range(8000)]),
        ("ab", [f"b{index}" for index in range(100_000)]),
    ],
    ids=["long name", "long known name", "many long names", "many short names"],
)
def test_comparisons_are_bounded(name: str, known: list[str], compared: list[tuple[str, list[str]]]) -> None:
    assert did_you_mean(name, known)
    assert len(compared) == (len(name) <= 100)  # difflib indexes a name before it compares it with any
    for _, candidates in compared:
        assert sum(len(name) * len(candidate) for candidate in candidates) <= 1 << 18
        assert all(len(candidate) <= 100 for candidate in candidates)


def test_the_nearest_of_many_names_is_found() -> None:
    known = [f"field_{index}" for index in range(2000)]
    assert did_you_mean("feild_1999", known) == "; did you mean 'field_1999'?"
    assert did_you_mean("INCOME", [*known, "income"]) == "; did you mean 'income'?"
    assert did_you_mean("x" * 101, ["x" * 102]) == f"; known are '{'x' * 102}'"
