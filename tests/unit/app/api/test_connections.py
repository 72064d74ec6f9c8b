"""Head and first content of a response in one write."""

from typing import Any

import pytest

from app.api.middleware.connections import _Transport


class Inner:
    """Transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.fixture
def pair() -> tuple[_Transport, list[bytes]]:
    inner: Any = Inner()
    protocol: Any = None
    return _Transport(inner, protocol), inner.written


def test_a_head_that_is_held_is_sent_with_the_first_content(pair: tuple[_Transport, list[bytes]]) -> None:
    transport, written = pair
    transport.hold_head()
    transport.write(b"head")
    assert (written, transport.written) == ([], 0)
    transport.write(b"content")
    transport.send_head()
    transport.send_head()
    transport.write(b"more")
    assert (written, transport.written) == ([b"headcontent", b"more"], 15)


def test_nothing_is_written_for_an_empty_piece(pair: tuple[_Transport, list[bytes]]) -> None:
    """The end of a response with a length has no bytes."""
    transport, written = pair
    transport.write(b"")
    assert written == []
