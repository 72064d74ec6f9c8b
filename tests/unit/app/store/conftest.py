"""Databases that the migrations made, one of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.sql.db import Database
from app.store.sql.migration import migrate
from tests.conftest import DATABASES, settings_on


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    settings = settings_on(request.param, request, tmp_path)
    migrate(settings)
    database = Database(settings)
    yield database
    database.close()
