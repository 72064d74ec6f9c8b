"""Databases with a ledger alone, embedded and on a server."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.store.sql.db import Database
from tests.postgres import Postgres
from tests.unit.app.jobs.ledgers import opened_database


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    yield from opened_database(tmp_path_factory.mktemp("file"))


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    yield from opened_database(tmp_path_factory.mktemp("server"), database_url=postgres.empty_database())


@pytest.fixture(scope="module", params=["file", "server"])
def database(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)
