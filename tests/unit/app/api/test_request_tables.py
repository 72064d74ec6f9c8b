"""The table of a small request is read in the event loop, that of a larger one in a thread."""

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


@pytest.mark.parametrize(("size", "small"), [(0, True), (75_000, True), (2**17, True), (2**17 + 1, False)])
def test_the_thread_depends_on_the_size_of_the_body(size: int, small: bool) -> None:
    tables = Tables(cast(Request, Body(size)), cast(JobService, None))
    thread = asyncio.run(tables.in_thread_unless_small(threading.get_ident))
    assert (thread == threading.get_ident()) == small
