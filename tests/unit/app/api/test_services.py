"""Descriptions of services are made once."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from app.api.routes.services import get_service, list_services
from providers import PROVIDERS


def test_a_list_of_services_makes_no_schema_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schemas of all parameters took a tenth of a second, in which nobody else got an answer."""
    first = asyncio.run(list_services())

    def refuse(*_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("a schema is made again")

    monkeypatch.setattr(BaseModel, "model_json_schema", refuse)
    assert asyncio.run(list_services()) == first
    assert [each.identifier for each in first.services] == list(PROVIDERS)
    assert asyncio.run(get_service("RWN")).parameters_schema["title"] == "RwnParams"
