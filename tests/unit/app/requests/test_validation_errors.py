"""Validation errors have the project's own messages and the location in the request."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.requests.run import run_request_model
from app.requests.validation_errors import MOST_ERRORS, error_items, pointer_as_sent
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


def errors_of(parameters: dict[str, Any]) -> list[Any]:
    """Return the errors of a call of CDSWAP with these parameters."""
    given = {"swap_fields": ["a"], "control_field": "b", **parameters}
    model = run_request_model(PROVIDERS["CDSWAP"])
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"source": {"buffer": "x"}, "parameters": given})
    return caught.value.errors()


MANY = 20_000


@pytest.mark.parametrize(
    ("parameters", "first"),
    [
        ({"swap_fields": [1] * MANY}, ("swap_fields", 0)),
        ({"swap_fields": ["a"] * MANY + [1] * MANY}, ("swap_fields", MANY)),
        ({"swap_fields": ["a"] * MANY + [1]}, ("swap_fields", MANY)),
        ({"swap_field_indices": [0] * MANY}, ("swap_field_indices", 0)),
        ({"suppression": {"fields": [None] * MANY}}, ("suppression", "fields", 0)),
        ({"classifier": {"groups": {str(n): [[]] for n in range(MANY)}}}, "0"),
        ({"classifier": {"groups": {str(n): ["x"] for n in range(MANY)} | {"last": [[]] * MANY}}}, "last"),
    ],
)
def test_many_invalid_values_have_few_errors(parameters: dict[str, Any], first: Any) -> None:
    """A megabyte of them took half a gigabyte, and five seconds in which nobody got an answer."""
    errors = errors_of(parameters)
    assert len(errors) < 500
    places = [each["loc"][1:] for each in errors]
    assert places[0] == first if isinstance(first, tuple) else first in places[0]


def test_the_errors_of_a_part_of_a_long_list_are_all_listed() -> None:
    fields: list[Any] = ["a"] * 1050
    wrong = [7, 999, 1001, 1049]
    for index in wrong:
        fields[index] = index
    assert [each["loc"][-1] for each in errors_of({"swap_fields": fields})] == [7]
    fields[7] = fields[999] = "a"
    assert [each["loc"][-1] for each in errors_of({"swap_fields": fields})] == [1001, 1049]


@pytest.mark.parametrize("number", [21, 500])
def test_the_length_of_a_list_that_is_too_long_is_that_of_the_whole(number: int) -> None:
    (error,) = errors_of({"checks": ["a < 1"] * number})
    assert (error["type"], error["loc"]) == ("too_long", ("parameters", "checks"))
    assert error["msg"] == f"Tuple should have at most 20 items after validation, not {number}"


def test_long_lists_and_objects_are_taken_in_their_order() -> None:
    fields, groups = [f"f{n}" for n in range(1234)], {f"g{n}": [f"v{n}", n] for n in range(1234)}
    given = {"swap_fields": fields, "control_field": "b", "classifier": {"groups": groups}}
    params: Any = PROVIDERS["CDSWAP"].params.model_validate(given)
    assert list(params.swap_fields) == fields
    written = params.model_dump(mode="json", by_alias=True)
    assert (written["swap_fields"], list(written["classifier"][0]["groups"])) == (fields, list(groups))


@pytest.mark.parametrize(
    ("parameters", "pointer", "sent"),
    [
        ({"SWAP_FIELD_NAMES": ["a"]}, "/swap_fields/0", "/SWAP_FIELD_NAMES/0"),
        ({"SWAP_FIELD_NAMES": "a, b"}, "/swap_fields/1", "/SWAP_FIELD_NAMES"),
        ({"SWAP_FIELD_INDICES": [1, 9]}, "/swap_field_indices/1", "/SWAP_FIELD_INDICES/1"),
        ({"SWAP_CONTROL_ATTR": "a"}, "/control_field", "/SWAP_CONTROL_ATTR"),
        ({"SWAP_CLASSIFIER": [{"a/b": 1}]}, "/classifier/0/a~1b", "/SWAP_CLASSIFIER/0/a~1b"),
        ({"SWAP_CLASSIFIER": [{"breaks": [1]}]}, "/classifier/breaks/0", "/SWAP_CLASSIFIER/0/breaks/0"),
        ({"classifier": [{"breaks": [1]}]}, "/classifier/breaks", "/classifier/0/breaks"),
        ({"classifier": {"breaks": [1]}}, "/classifier/breaks", "/classifier/breaks"),
        ({"swap_fields": ["a"], "SWAP_RATE": 1}, "/swap_fields/0", "/swap_fields/0"),
        ({"swap_fields": ["a"]}, "/risk/absent", "/risk/absent"),
    ],
)
def test_a_fault_found_in_the_source_points_to_the_name_that_was_sent(
    parameters: dict[str, Any], pointer: str, sent: str
) -> None:
    body = {"source": {"rows": [{"a": 1}]}, "parameters": parameters}
    assert pointer_as_sent(f"/parameters{pointer}", body) == f"/parameters{sent}"
    assert pointer_as_sent("/source/rows/0/a", body) == "/source/rows/0/a"
    assert pointer_as_sent("", None) == ""
