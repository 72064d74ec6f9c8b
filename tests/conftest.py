"""Fixtures that every tier of tests shares."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import settings

from demo.service import own_key, running_service
from tests.issuer import AUDIENCE, Issuer, running_issuer

settings.register_profile("house", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("house")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real tables; a test that needs it is skipped where it is missing, except in CI."""
    folder = Path(os.environ.get("ROWVEIL_DATA", "../shared/data"))
    if not folder.is_dir():
        missing = f"no real tables in {folder}: set ROWVEIL_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return folder


@pytest.fixture(scope="session")
def service_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service that all tests call keeps its state."""
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="session")
def issuer() -> Iterator[Issuer]:
    """The OIDC issuer whose tokens that service takes."""
    with running_issuer() as running:
        yield running


@pytest.fixture(scope="session")
def address(service_home: Path, issuer: Issuer) -> Iterator[str]:
    """One real service for all tests that call it: its own process, a real port, real workers."""
    tokens = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE}
    with running_service(
        service_home,
        auth="on",
        max_body_bytes=str(4 * 2**20),
        workers="2",
        cors_origins="https://desk.example",
        **tokens,
    ) as started:
        yield started


@pytest.fixture(scope="session")
def key(address: str, service_home: Path) -> str:
    """A key with every scope."""
    return own_key(service_home)


@pytest.fixture(scope="session")
def client(address: str, key: str) -> Iterator[httpx.Client]:
    """A client of that service that says who it is."""
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=address, timeout=60, headers=headers) as opened:
        yield opened
