"""What the tests of the contract call the service with."""

from typing import Any

import httpx
import pytest

from tests.api.calls import Api


@pytest.fixture(scope="session")
def api(client: httpx.Client) -> Api:
    return Api(client)


@pytest.fixture
def people() -> list[dict[str, Any]]:
    """Six people in three towns, one of them alone in hers."""
    return [
        {"age": 31, "income": 42000.5, "city": "Dublin"},
        {"age": 47, "income": 51000.0, "city": "Zurich"},
        {"age": 24, "income": 38000.0, "city": "Dublin"},
        {"age": 63, "income": 77000.0, "city": "Zurich"},
        {"age": 58, "income": None, "city": "Dublin"},
        {"age": 39, "income": 29000.0, "city": "Athens"},
    ]
