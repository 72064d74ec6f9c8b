"""JSON schema of a report without room for undeclared figures: all tests' reports are checked."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator

CONTRACT = Path(__file__).parents[2] / "openapi" / "openapi.json"


def check_reports(answer: httpx.Response) -> None:
    """Check the report in a response, if it is one or a job with one: for the event hooks of a client."""
    if not answer.is_success or not answer.headers.get("content-type", "").startswith("application/json"):
        return
    if answer.request.method == "HEAD":
        return
    if answer.request.url.path.endswith("/report"):
        answer.read()
        _check(answer.json())
    elif answer.request.method == "POST" and int(answer.headers.get("content-length", 0)) < 2**20:
        answer.read()
        document = answer.json()
        if isinstance(document, dict) and "report" in document:
            _check(document["report"])


def _check(report: Any) -> None:
    errors = report_errors(report)
    assert not errors, "\n".join(errors)


def report_errors(report: Any) -> list[str]:
    """Return one line for each figure that the contract does not declare, or declares otherwise."""
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in _validator().iter_errors(report)
    ]


@cache
def _validator() -> Draft202012Validator:
    schemas = copy.deepcopy(json.loads(CONTRACT.read_text(encoding="utf-8"))["components"]["schemas"])
    _close(schemas)
    schema = {"$ref": "#/components/schemas/Report", "components": {"schemas": schemas}}
    return Draft202012Validator(schema)


def _close(value: Any) -> None:
    """Allow no members but the declared ones in any object with declared members."""
    if isinstance(value, dict):
        if isinstance(value.get("properties"), dict):
            value.setdefault("additionalProperties", False)
        for inner in value.values():
            _close(inner)
    elif isinstance(value, list):
        for inner in value:
            _close(inner)
