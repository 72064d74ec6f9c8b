"""Fixtures of the contract tests: the service on each database, and rows."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.api.calls import Api
from tests.conftest import SHARED, Service


@pytest.fixture(scope="module", params=["sqlite", SHARED])
def served(request: pytest.FixtureRequest, service_on: Callable[[str], Service]) -> Service:
    """Service on each database, with its tables in a folder and in a bucket; every test runs on each kind."""
    return service_on(request.param)


@pytest.fixture(scope="module")
def database(served: Service) -> dict[str, str]:
    """Database settings of the service; empty for the SQLite file below its home."""
    return served.database


@pytest.fixture(scope="module")
def api(client: httpx.Client) -> Api:
    return Api(client)


@pytest.fixture
def people() -> list[dict[str, Any]]:
    """Six people in three towns, one of them a singleton."""
    return [
        {"age": 31, "income": 42000.5, "city": "Dublin"},
        {"age": 47, "income": 51000.0, "city": "Zurich"},
        {"age": 24, "income": 38000.0, "city": "Dublin"},
        {"age": 63, "income": 77000.0, "city": "Zurich"},
        {"age": 58, "income": None, "city": "Dublin"},
        {"age": 39, "income": 29000.0, "city": "Athens"},
    ]
