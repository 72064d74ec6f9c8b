"""Databases of the services that are measured."""

import contextlib
from collections.abc import Callable, Iterator

from tests.postgres import running_postgres

DATABASES = ("SQLite", "PostgreSQL")


@contextlib.contextmanager
def settings_of(database: str) -> Iterator[Callable[[], dict[str, str]]]:
    """Run the database; yield a function that returns the settings of a service on an empty one.

    Each flushes every commit to the disk.
    """
    if database == "SQLite":
        yield dict
        return
    with running_postgres(durable=True) as server:
        yield lambda: {"database_url": server.new_database()}
