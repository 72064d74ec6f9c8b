"""gzip decoding in bounded steps; truncated data and decompression bombs are rejected."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anyio import to_thread

from app.api import content_encoding as codings
from app.errors import BadRequest, TooLarge, UnsupportedCoding

TEXT = b"a,b\n" + b"1,2\n" * 5000


async def _chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def undone(data: bytes, coding: str | None, size: int = 1000) -> list[bytes]:
    async def gathered() -> list[bytes]:
        return [piece async for piece in codings.decoded(coding, _chunks(data, size))]

    return asyncio.run(gathered())


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("coding", ["gzip", "X-GZIP", "gzip, identity"])
def test_gzip_of_one_member_or_more_is_undone(coding: str, size: int) -> None:
    members = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(TEXT)
    assert b"".join(undone(members, coding, size)) == TEXT + TEXT


@pytest.mark.parametrize("coding", [None, "", "identity", "Identity , "])
def test_no_coding_changes_nothing(coding: str | None) -> None:
    assert b"".join(undone(TEXT, coding)) == TEXT


def test_pieces_are_bounded() -> None:
    assert max(map(len, undone(gzip.compress(bytes(5 * 2**20)), "gzip", 10**6))) <= 2**20


def test_many_small_members_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each member of 20 bytes took a core for seconds, of 100 KB."""
    calls = 0
    run_sync = to_thread.run_sync

    async def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return await run_sync(*arguments, **named)

    monkeypatch.setattr(to_thread, "run_sync", counted)
    assert undone(gzip.compress(b"") * 1000 + gzip.compress(b"1") * 1000, "gzip", 10**6) == [b"1" * 1000]
    assert calls == 1


def test_what_is_not_whole_gzip_is_refused() -> None:
    zipped = gzip.compress(TEXT)
    for broken, words in (
        (TEXT, "not complete gzip data"),
        (zipped[:-5], "truncated"),
        (zipped + b"tail", "not complete"),
    ):
        with pytest.raises(BadRequest, match=words):
            undone(broken, "gzip")


def test_what_swells_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codings, "_ALWAYS_ALLOWED", 10_000)
    with pytest.raises(TooLarge, match="200 times"):
        undone(gzip.compress(bytes(10**6)), "gzip")


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "compress"])
def test_other_codings_are_refused_with_those_that_are_taken(coding: str) -> None:
    with pytest.raises(UnsupportedCoding) as caught:
        undone(TEXT, coding)
    assert caught.value.headers() == {"Accept-Encoding": "gzip, identity"}
