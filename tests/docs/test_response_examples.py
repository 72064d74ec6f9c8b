"""Response examples: none is missing, each fits its schema, and the service gives them again."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from app.api.pages.response_examples import FILE
from tests.own_key import created_key, own_key
from tests.preloaded.processes import running_service
from website.response_examples import recorded

CONTRACT = json.loads((Path(__file__).parents[2] / "openapi" / "openapi.json").read_text(encoding="utf-8"))

RECORDED_REFUSALS = {"400", "401", "403", "404", "406", "415", "422", "429"}

NOT_RECORDED = {
    ("getMetrics", "422"),
    ("createBufferFromForm", "400"),
    ("getLiveness", "400"),
    ("getReadiness", "400"),
}
"""Refusals that these operations share with others, and that need a request of their own."""


def answers() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return operation id, status, media type and content of every response in JSON."""
    return [
        (operation["operationId"], status, media_type, content)
        for methods in CONTRACT["paths"].values()
        for operation in methods.values()
        for status, response in operation["responses"].items()
        for media_type, content in response.get("content", {}).items()
        if media_type.endswith("json")
    ]


def test_every_success_and_most_refusals_have_an_example() -> None:
    """Conflicts have one where they can be recorded; limits of the machine (410, 413, 5xx) have none."""
    missing = {
        (name, status)
        for name, status, _, content in answers()
        if (status.startswith("2") or status in RECORDED_REFUSALS) and "example" not in content
    }
    assert missing <= NOT_RECORDED
    conflicts = [name for name, status, _, content in answers() if status == "409" and "example" in content]
    assert len(conflicts) >= 15


def test_each_example_fits_its_schema() -> None:
    components = {"components": CONTRACT["components"]}
    checked = 0
    for name, status, _, content in answers():
        if "example" in content:
            validator = jsonschema_rs.Draft202012Validator(components | content["schema"])
            errors = [error.message for error in validator.iter_errors(content["example"])]
            assert not errors, f"{name} {status}: {errors[:3]}"
            checked += 1
    assert checked > 200


def test_an_example_has_the_status_of_its_response() -> None:
    for name, status, media_type, content in answers():
        if media_type == "application/problem+json" and "example" in content:
            assert str(content["example"]["status"]) == status, name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_service_gives_the_examples_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m website.response_examples` writes the file again after a change of the service.

    Figures are equal but for their last digits, which differ between processors.
    """
    monkeypatch.setattr("website.response_examples.running_service", running_service)
    monkeypatch.setattr("website.response_examples.own_key", own_key)
    monkeypatch.setattr("website.response_examples._key", created_key)
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    again = recorded()
    assert stored.keys() == again.keys()
    for name, statuses in again.items():
        assert_close(statuses, stored[name], name)


def assert_close(found: Any, expected: Any, place: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, value in expected.items():
            assert_close(found[key], value, f"{place}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            assert_close(found[number], value, f"{place}/{number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12), place
    else:
        assert found == expected, place
