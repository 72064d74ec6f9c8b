"""Log lines contain an error's type and locations, never its message."""

import asyncio
import gc
import logging
from collections.abc import Iterator

import orjson
import pytest

from app.telemetry.logs import JsonFormatter, TextFormatter

VALUE = "the income 98765 of Ada"


class Kept(logging.Handler):
    """Log lines as formatted by both formatters."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [JsonFormatter().format(record), TextFormatter().format(record)]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


async def fail(_: str = "") -> None:
    raise ValueError(VALUE)


def fail_at_once(_: str) -> None:
    raise ValueError(VALUE)


async def leave_a_failed_task() -> None:
    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    gc.collect()


async def call_what_fails() -> None:
    asyncio.get_running_loop().call_soon(fail_at_once, VALUE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


CASES = {"a task that nobody waits for": leave_a_failed_task, "a callback": call_what_fails}


@pytest.mark.parametrize("case", CASES)
def test_what_asyncio_logs_of_an_error_quotes_nothing_of_it(kept: Kept, case: str) -> None:
    asyncio.run(CASES[case]())
    as_json, as_text = kept.lines
    assert orjson.loads(as_json)["message"].startswith(("Task exception", "Exception in callback"))
    for line in (as_json, as_text):
        assert "builtins.ValueError at fail" in line
        assert "98765" not in line
        assert "\n" not in line


def test_an_error_is_logged_without_its_message(kept: Kept) -> None:
    try:
        fail_at_once("")
    except ValueError:
        logging.getLogger("rowveil.jobs").exception("it failed")
    as_json, as_text = kept.lines
    for line in (as_json, as_text):
        assert "it failed" in line
        assert "builtins.ValueError at fail_at_once" in line
        assert "98765" not in line


def test_a_record_is_one_line(kept: Kept) -> None:
    """A client chooses the decoded path of a failed request, and must not write a line of its own."""
    logging.getLogger("rowveil.http").error(
        "%s %s failed", "GET", "/v1/a\n2026-11-29 ERROR \x1b[2J\u2028b\u0085"
    )
    assert not any(character in line for line in kept.lines for character in "\n\x1b")
    assert kept.lines[1].endswith("GET /v1/a\\n2026-11-29 ERROR \\x1b[2J\\u2028b\\x85 failed")
