"""The fields of a copy are checked in a time that grows with their number."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from app.worker.run_copy import check_copied_fields
from providers.errors import ParameterError


class Names(Sequence[str]):
    """Names that can be read, and not searched one after the other."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        return self._names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        raise AssertionError("a search of all names for each name")


def test_no_name_is_searched_among_all_others() -> None:
    """A request with 100,000 names for a buffer of as many fields stopped the service for minutes."""
    names = [f"f{number}" for number in range(1000)]
    check_copied_fields(Names(names), names[500:], dict.fromkeys(names[:500], "string"))


@pytest.mark.parametrize(
    ("drop", "types", "message", "pointer"),
    [
        (["c"], {}, "there is no field 'c'", "/drop"),
        ([], {"c": "string"}, "there is no field 'c'", "/types"),
        (["a"], {"a": "string"}, "field 'a' is dropped", "/types"),
        (["a", "b"], {}, "at least one field", "/drop"),
    ],
)
def test_what_does_not_fit_is_named(
    drop: list[str], types: dict[str, str], message: str, pointer: str
) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        check_copied_fields(["a", "b"], drop, types)
    assert caught.value.pointer == pointer
