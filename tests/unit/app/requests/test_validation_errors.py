"""Validation errors have the project's own messages and the location in the request."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.requests.validation_errors import error_items
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


@pytest.mark.parametrize("case", WRONG)
def test_it_is_reported_at_its_place_and_without_the_words_of_a_library(case: str) -> None:
    given, pointer, message = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        PROVIDERS["DSWAP"].params.model_validate(given)
    errors = [{**each, "loc": ("body", *each["loc"])} for each in caught.value.errors()]
    assert error_items(errors, given) == [{"pointer": pointer, "message": message}]
