"""Breaking changes of the released API are found, and other changes are not reported."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from website.openapi_diff import allows_breaking, breaking_changes

CONTRACT = json.loads((Path(__file__).parents[3] / "openapi" / "openapi.json").read_text())
RUN = "/v1/services/CDSWAP"


def schemas(document: Any) -> Any:
    return document["components"]["schemas"]


BREAKING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an operation": (
        lambda new: new["paths"].pop("/v1/frontier"),
        "POST /v1/frontier: the operation is gone",
    ),
    "its id": (lambda new: new["paths"][RUN]["post"].update(operationId="swap"), "its id was runCdswap"),
    "a parameter": (
        lambda new: schemas(new)["CdswapParams"]["properties"].pop("locked"),
        "CdswapParams (request): 'locked' is gone",
    ),
    "a requirement": (
        lambda new: schemas(new)["CdswapParams"]["required"].append("rate"),
        "CdswapParams (request): 'rate' is required now",
    ),
    "a type": (
        lambda new: schemas(new)["CdswapParams"]["properties"]["rate"].update(type="string"),
        "its type was integer or number and is string",
    ),
    "a bound": (
        lambda new: schemas(new)["CdswapParams"]["properties"]["min_group_size"].update(minimum=3),
        "minimum was 2.0 and is 3",
    ),
    "a value less": (
        lambda new: schemas(new)["CdswapParams"]["properties"]["nulls"]["enum"].remove("keep"),
        "values gone: keep",
    ),
    "a form less": (
        lambda new: schemas(new)["CdswapParams"]["properties"]["control_field"]["anyOf"].pop(0),
        "one of its forms is gone",
    ),
    "an answer's field": (lambda new: schemas(new)["Job"]["properties"].pop("outcome"), "'outcome' is gone"),
    "an answer's field that may be missing": (
        lambda new: schemas(new)["Job"]["required"].remove("state"),
        "Job (answer): 'state' may be missing now",
    ),
    "an answer's value more": (
        lambda new: schemas(new)["Job"]["properties"]["state"]["enum"].append("paused"),
        "values new: paused",
    ),
    "a status": (lambda new: new["paths"][RUN]["post"]["responses"].pop("202"), "does not answer 202"),
    "a header": (
        lambda new: new["paths"][RUN]["post"]["parameters"].pop(),
        "header parameter",
    ),
    "credentials": (
        lambda new: new["paths"]["/livez"]["get"].update(security=[{"bearer": []}]),
        "credentials",
    ),
}
HARMLESS: dict[str, Callable[[Any], Any]] = {
    "another operation": lambda new: new["paths"].update({"/v2": new["paths"]["/livez"]}),
    "a parameter more": lambda new: schemas(new)["CdswapParams"]["properties"].update(x={"type": "string"}),
    "a wider bound": lambda new: schemas(new)["CdswapParams"]["properties"]["min_group_size"].pop("minimum"),
    "a value more": lambda new: schemas(new)["CdswapParams"]["properties"]["nulls"]["enum"].append("drop"),
    "a form more": lambda new: schemas(new)["CdswapParams"]["properties"]["control_field"]["anyOf"].append(
        {"type": "integer"}
    ),
    "an answer's field more": lambda new: schemas(new)["Job"]["properties"].update(x={"type": "string"}),
    "other words": lambda new: schemas(new)["Job"].update(description="Another."),
    "an error less": lambda new: new["paths"][RUN]["post"]["responses"].pop("415"),
}


def changed(change: Callable[[Any], Any]) -> list[str]:
    current = copy.deepcopy(CONTRACT)
    change(current)
    return breaking_changes(CONTRACT, current)


@pytest.mark.parametrize("name", BREAKING)
def test_a_break_is_reported(name: str) -> None:
    change, words = BREAKING[name]
    found = changed(change)
    assert any(words in line for line in found), found


@pytest.mark.parametrize("name", HARMLESS)
def test_what_breaks_nobody_is_let_through(name: str) -> None:
    assert changed(HARMLESS[name]) == []


@pytest.mark.parametrize(
    ("released", "current", "allowed"),
    [
        ("0.1.0", "0.1.1", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.4.0", "1.5.0", False),
        ("1.4.0", "2.0.0", True),
        ("0.2.0", "0.1.0", False),
    ],
)
def test_which_versions_may_break(released: str, current: str, allowed: bool) -> None:
    assert allows_breaking(released, current) is allowed
