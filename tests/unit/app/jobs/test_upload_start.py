"""First bytes of an upload: content of another format is refused before the rest has arrived."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from app.formats.csv_dialect import CsvDialect
from app.formats.media_types import ARROW_STREAM, CSV
from app.jobs.tables.uploads import Upload, checked_start
from providers.errors import SourceError

STREAM = b"\xff\xff\xff\xff\x10\0\0\0"


def sent(content: bytes, describe: Callable[[], Upload | None], is_complete: bool = True) -> int:
    """The number of bytes taken from an upload that arrives byte by byte."""
    taken = 0

    async def arriving() -> AsyncIterator[bytes]:
        nonlocal taken
        for byte in content + b"rest" * 10:
            taken += 1
            yield bytes([byte])

    async def read() -> None:
        received = b"".join([chunk async for chunk in checked_start(arriving(), describe, is_complete)])
        assert received == content + b"rest" * 10

    with contextlib.suppress(SourceError):
        asyncio.run(read())
    return taken


def test_an_arrow_stream_sent_as_csv_is_refused_by_its_first_bytes() -> None:
    assert sent(STREAM, lambda: Upload(CSV)) == 8
    assert sent(STREAM, lambda: Upload(ARROW_STREAM)) == len(STREAM) + 40


@pytest.mark.parametrize(("is_complete", "taken"), [(True, 8), (False, 48)])
def test_the_encoding_may_follow_the_file_of_a_form(is_complete: bool, taken: int) -> None:
    content = "town".encode("utf-16")[:8]
    assert sent(content, lambda: Upload(CSV), is_complete) == taken
    assert sent(content, lambda: Upload(CSV, {"csv": CsvDialect(encoding="utf-16")}), is_complete) == 48


def test_an_upload_without_a_description_yet_is_not_refused() -> None:
    assert sent(STREAM, lambda: None, False) == 48
