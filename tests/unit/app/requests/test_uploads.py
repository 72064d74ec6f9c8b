"""Options of an upload in its Content-Type."""

from typing import Any

import pytest

from app.errors import InvalidParameter, InvalidRequest
from app.requests.uploads import CsvOptions, UploadOptions


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


@pytest.mark.parametrize(
    ("options", "content_type", "name"),
    [
        ({"header": False}, "text/csv; header=present", "header"),
        ({"encoding": "utf-16"}, "text/csv; charset=utf-8", "encoding"),
        ({"delimiter": ";"}, "application/vnd.apache.parquet", "delimiter"),
        ({"fields": "{}"}, "application/vnd.apache.parquet", "fields"),
    ],
)
def test_a_refused_option_is_named_as_a_parameter_or_as_a_member(
    options: dict[str, Any], content_type: str, name: str
) -> None:
    """An upload has its options in the query; a source by reference has them next to the reference."""
    with pytest.raises(InvalidParameter) as of_upload:
        UploadOptions.model_validate(options).described(content_type)
    assert of_upload.value.problem()["errors"] == [{"parameter": name, "message": of_upload.value.message}]
    with pytest.raises(InvalidRequest) as of_reference:
        CsvOptions.model_validate(options).described(content_type)
    assert of_reference.value.pointer == f"/{name}"
