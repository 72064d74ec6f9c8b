"""What the tests of the contract call the service with."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from demo.service import running_service
from tests.api.calls import Api
from tests.conftest import DATABASES, SERVICE, new_address


@pytest.fixture(scope="session", params=DATABASES)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real service on each database: its own process, a real port, real workers."""
    home = tmp_path_factory.mktemp("service")
    database = new_address(request.param, request)
    more = {} if database is None else {"database_url": database}
    with running_service(home, **SERVICE, **more) as started:
        yield started


@pytest.fixture(scope="session")
def client(address: str) -> Iterator[httpx.Client]:
    """A client of that service."""
    with httpx.Client(base_url=address, timeout=60) as opened:
        yield opened


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
