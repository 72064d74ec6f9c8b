"""Uploads that tests of several modules make."""

from collections.abc import AsyncIterator

from app.store.sql.models import Buffer
from tests.faults.conftest import Running

CSV = b"income,city\n" + b"".join(f"{row},{row % 3}\n".encode() for row in range(500))


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def upload(service: Running, data: bytes = CSV, media_type: str = "text/csv") -> Buffer:
    return service.loop.do(service.jobs.buffers.create(pieces(data), media_type))
