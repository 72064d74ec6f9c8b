"""A small request about a narrow table is checked in the event loop, any other one in a thread."""

import asyncio
import threading
from typing import cast

import pytest
from fastapi import Request

from app.api.request_tables import Tables
from app.jobs.service import JobService


class Body:
    """A request with a body of this many bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    async def body(self) -> bytes:
        return bytes(self._size)


@pytest.mark.parametrize(
    ("size", "fields", "small"),
    [
        (0, 0, True),
        (75_000, 10, True),
        (2**17, 100, True),
        (2**17 + 1, 0, False),
        (97, 101, False),
        (97, 8000, False),
    ],
)
def test_the_thread_depends_on_the_size_of_body_and_schema(size: int, fields: int, small: bool) -> None:
    tables = Tables(cast(Request, Body(size)), cast(JobService, None))
    thread = asyncio.run(tables.in_thread_unless_small(fields, threading.get_ident))
    assert (thread == threading.get_ident()) == small
