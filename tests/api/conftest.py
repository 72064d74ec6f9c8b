"""Fixtures of the contract tests: running services, clients and rows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.service import own_key, running_service
from tests.api.calls import Api
from tests.conftest import DATABASES, SERVICE, calling, tokens_of
from tests.issuer import Issuer
from tests.postgres import Postgres


@dataclass(frozen=True, slots=True)
class Service:
    """Running service, and a client of it."""

    home: Path
    database: dict[str, str]
    """Database settings of the service; empty for the SQLite file below its home."""
    address: str
    key: str
    client: httpx.Client


@pytest.fixture(scope="session")
def service_on(
    tmp_path_factory: pytest.TempPathFactory, issuer: Issuer, postgres: Postgres
) -> Iterator[Callable[[str], Service]]:
    """One real service on each kind of database, its own process, a real port, real workers.

    Each is started once, when it is first asked for, and stays: a fixture with the kind as its parameter
    would start it again in every module.
    """
    started: dict[str, Service] = {}
    with ExitStack() as until_the_end:

        def of(kind: str) -> Service:
            if kind not in started:
                home = tmp_path_factory.mktemp("service")
                database = {} if kind == "sqlite" else {"database_url": postgres.new_database()}
                running = running_service(home, **SERVICE, **tokens_of(issuer), **database)
                address = until_the_end.enter_context(running)
                key = own_key(home, **database)
                client = until_the_end.enter_context(calling(address, key))
                started[kind] = Service(home, database, address, key, client)
            return started[kind]

        yield of


@pytest.fixture(scope="session", params=DATABASES)
def served(request: pytest.FixtureRequest, service_on: Callable[[str], Service]) -> Service:
    """Service on each database; every test runs on each kind."""
    return service_on(request.param)


@pytest.fixture(scope="session")
def database(served: Service) -> dict[str, str]:
    """Database settings of the service; empty for the SQLite file below its home."""
    return served.database


@pytest.fixture(scope="session")
def service_home(served: Service) -> Path:
    """Home folder of the service."""
    return served.home


@pytest.fixture(scope="session")
def address(served: Service) -> str:
    """Address of the service."""
    return served.address


@pytest.fixture(scope="session")
def key(served: Service) -> str:
    """API key with every scope."""
    return served.key


@pytest.fixture(scope="session")
def client(served: Service) -> httpx.Client:
    """Client with an API key."""
    return served.client


@pytest.fixture(scope="session")
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
