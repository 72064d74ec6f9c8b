"""Options of an upload in its Content-Type."""

import pytest

from app.errors import InvalidRequest
from app.requests.uploads import CsvOptions


@pytest.mark.parametrize(
    ("parameter", "has_header"),
    [("absent", False), ("ABSENT", False), ('"Absent"', False), ("present", True), ("PRESENT", True)],
)
def test_the_header_parameter_is_read_in_any_case(parameter: str, has_header: bool) -> None:
    upload = CsvOptions().described(f"text/csv; header={parameter}")
    assert upload.options["csv"].header is has_header


def test_a_header_that_is_stated_twice_differently_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="differ"):
        CsvOptions(header=False).described("text/csv; header=Present")
