"""Response examples of the OpenAPI document, recorded by ``python -m website.response_examples``."""

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("response_examples.json")
"""File with operation id -> status -> body. It is read when the document is made, not at the start."""


def add_response_examples(operation: dict[str, Any]) -> None:
    """Add the recorded responses to an operation of the document."""
    for status, body in _recorded().get(operation["operationId"], {}).items():
        for media_type, content in operation["responses"].get(status, {}).get("content", {}).items():
            if media_type.endswith("json"):
                content["example"] = body


@cache
def _recorded() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found
