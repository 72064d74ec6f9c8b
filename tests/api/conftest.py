"""What the tests of the contract call the service with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.service import own_key, running_service
from tests.api.calls import Api
from tests.conftest import DATABASES, SERVICE, calling, new_address, tokens_of
from tests.issuer import Issuer


@pytest.fixture(scope="session", params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str | None:
    """The database of the service; None is that below its home. Every test is run on each kind."""
    return new_address(request.param, request)


@pytest.fixture(scope="session")
def database(database_url: str | None) -> dict[str, str]:
    """The same as settings."""
    return {} if database_url is None else {"database_url": database_url}


@pytest.fixture(scope="session")
def service_home(tmp_path_factory: pytest.TempPathFactory, database_url: str | None) -> Path:
    """Where the service keeps its state."""
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="session")
def address(service_home: Path, database: dict[str, str], issuer: Issuer) -> Iterator[str]:
    """One real service on each database: its own process, a real port, real workers."""
    with running_service(service_home, **SERVICE, **tokens_of(issuer), **database) as started:
        yield started


@pytest.fixture(scope="session")
def key(address: str, service_home: Path, database: dict[str, str]) -> str:
    """A key with every scope."""
    return own_key(service_home, **database)


@pytest.fixture(scope="session")
def client(address: str, key: str) -> Iterator[httpx.Client]:
    """A client of that service. One of the whole session's would stay with the first service it met."""
    with calling(address, key) as opened:
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
