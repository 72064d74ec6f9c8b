"""Validation errors have the project's own messages and the location in the request."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.requests.run import run_request_model
from app.requests.validation_errors import MOST_ERRORS, error_items
from providers import PROVIDERS

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "text for a list": (
        {"swap_field_indices": "2"},
        "/swap_field_indices",
        "must be a list; a text was sent",
    ),
    "the same by Optim's name": (
        {"SWAP_FIELD_INDICES": "2"},
        "/SWAP_FIELD_INDICES",
        "must be a list; a text was sent",
    ),
    "within it": (
        {"SWAP_FIELD_INDICES": [0]},
        "/SWAP_FIELD_INDICES/0",
        "input should be greater than or equal to 1",
    ),
    "a number for a list": ({"swap_fields": 5}, "/swap_fields", "must be a list; a number was sent"),
    "a rate by Optim's name": (
        {"SWAP_FIELD_NAMES": ["age"], "SWAP_RATE": 2},
        "/SWAP_RATE",
        "input should be less than or equal to 1",
    ),
}


@pytest.mark.parametrize(
    ("classifier", "pointer"),
    [
        ({"prefix": 2, "foo": 1}, "/classifier/foo"),
        ({"breaks": [1], "foo": 1}, "/classifier/foo"),
        ({"quantiles": 3, "foo": 1}, "/classifier/foo"),
        ({"groups": {"a": [1]}, "foo": 1}, "/classifier/foo"),
        ({"prefix": {"prefix": 1}}, "/classifier/prefix"),
        ({"groups": {"groups": 1}}, "/classifier/groups/groups"),
    ],
)
def test_a_form_of_a_classifier_is_no_part_of_a_pointer(classifier: dict[str, Any], pointer: str) -> None:
    given = {"swap_fields": ["a"], "control_field": "b", "classifier": classifier}
    with pytest.raises(ValidationError) as caught:
        PROVIDERS["CDSWAP"].params.model_validate(given)
    errors = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    assert [item["pointer"] for item in error_items(errors, given)] == [pointer]


@pytest.mark.parametrize("seed", ["not hex", -1, 0.5])
def test_a_seed_by_its_optim_name_is_reported_where_it_was_sent(seed: Any) -> None:
    parameters = {"swap_fields": ["a"], "SWAP_SEED": seed}
    given = {"source": {"rows": [{"a": 1}]}, "parameters": parameters}
    with pytest.raises(ValidationError) as caught:
        run_request_model(PROVIDERS["DSWAP"]).model_validate(given)
    errors = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    assert [item["pointer"] for item in error_items(errors, given)] == ["/parameters/SWAP_SEED"]


@pytest.mark.parametrize("case", WRONG)
def test_it_is_reported_at_its_place_and_without_the_words_of_a_library(case: str) -> None:
    given, pointer, message = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        PROVIDERS["DSWAP"].params.model_validate(given)
    errors = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    assert error_items(errors, given) == [{"pointer": pointer, "message": message}]


def test_only_the_first_errors_are_read_and_listed() -> None:
    faults = iter([{"type": "x", "loc": ("body", "names", index), "msg": "wrong"} for index in range(8000)])
    items = error_items(faults, {"names": [[1]] * 8000})
    assert [item["pointer"] for item in items] == [f"/names/{index}" for index in range(MOST_ERRORS)]
    assert items[-2]["message"] == "wrong"
    assert items[-1]["message"] == f"wrong (only the first {MOST_ERRORS} errors are listed)"
    assert len(list(faults)) == 8000 - MOST_ERRORS - 1


def test_an_error_around_another_is_not_listed() -> None:
    body = {"a": {"b": [1]}, "a/b": 1, "ab": 1}
    paths: list[tuple[Any, ...]] = [("a",), ("a", "b"), ("a", "b", 0), ("a/b",), ("ab",), ()]
    faults = [{"type": "x", "loc": ("body", *path), "msg": "wrong"} for path in paths]
    items = error_items(faults, body)
    assert [item["pointer"] for item in items] == ["/a/b/0", "/a~1b", "/ab"]
