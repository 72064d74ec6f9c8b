"""One real service for all tests of the contract: its own process, a real port, real workers."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from demo.service import running_service
from tests.api.calls import Api


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("service")
    with running_service(home, max_body_bytes=str(4 * 2**20), workers="2") as started:
        yield started


@pytest.fixture(scope="session")
def client(address: str) -> Iterator[httpx.Client]:
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
