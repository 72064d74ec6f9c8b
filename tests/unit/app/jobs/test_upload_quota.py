"""Declared lengths of uploads that arrive at the same time have a quota of each caller."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from app.errors import LimitReached
from app.jobs.fairness.limits import Limits
from app.settings import Settings
from app.telemetry.metrics import Metrics


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    return Limits(Settings(home=tmp_path, caller_buffer_bytes=100), Metrics())


def test_declared_lengths_together_are_at_most_the_quota(limits: Limits) -> None:
    """A caller who declares much and sends little does not reserve the disk."""
    with limits.upload_of("ada", 60), limits.upload_of("ada", 40), limits.upload_of("bob", 100):
        with pytest.raises(LimitReached, match=r"BUFFER_BYTES.*there are 100.* adds 1") as error:
            ExitStack().enter_context(limits.upload_of("ada", 1))
        assert error.value.headers()["RateLimit-Policy"] == '"buffer-bytes";q=100'
        with limits.upload_of("ada", 0):  # of unknown length
            pass
    with limits.upload_of("ada", 100):
        pass


def test_one_upload_may_declare_more(limits: Limits) -> None:
    """Its table may be smaller; it counts when it has been read."""
    with limits.upload_of("ada", 0), limits.upload_of("ada", 1000), limits.upload_of("ada", 0):
        with pytest.raises(LimitReached):
            ExitStack().enter_context(limits.upload_of("ada", 1))
        with pytest.raises(LimitReached):
            ExitStack().enter_context(limits.upload_of("ada", 1000))


def test_an_upload_that_fails_counts_no_more(limits: Limits) -> None:
    with pytest.raises(OSError, match="full"), limits.upload_of("ada", 100):
        raise OSError("full")
    with limits.upload_of("ada", 100):
        pass
