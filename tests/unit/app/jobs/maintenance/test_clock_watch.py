"""A clock that jumps ahead deletes nothing at once."""

from datetime import UTC, datetime, timedelta

import pytest

from app.jobs.maintenance.clock_watch import ClockWatch

DAY = 24 * 3600.0
NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def trusts(watch: ClockWatch, up: float, ahead: float = 0.0) -> bool:
    """Look at a clock that is ``ahead`` seconds before the right time after ``up`` seconds."""
    return watch.trusts(NOW + timedelta(seconds=up + ahead), up)


def test_a_clock_that_goes_on_is_trusted_however_long_nobody_looked() -> None:
    watch = ClockWatch()
    assert all(trusts(watch, up) for up in (0.0, 60.0, 400 * DAY))


def test_a_slow_drift_and_small_corrections_are_followed() -> None:
    watch = ClockWatch()
    assert all(trusts(watch, number * 60.0, number * 3000.0) for number in range(100))


def test_a_jump_ahead_is_not_trusted_until_it_is_corrected(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line about it."""
    watch = ClockWatch()
    assert trusts(watch, 0.0)
    assert not any(trusts(watch, up, 400 * DAY) for up in (60.0, 120.0, 0.9 * DAY))
    (line,) = caplog.messages
    assert "jumped ahead by 34560000 s" in line
    assert trusts(watch, DAY, 0.0)


def test_a_jump_ahead_is_trusted_after_a_day() -> None:
    """A clock that was wrong before, and is right now, needs no restart."""
    watch = ClockWatch()
    assert trusts(watch, 0.0)
    assert not trusts(watch, 60.0, 2 * 3600.0)
    assert trusts(watch, 60.0 + DAY, 2 * 3600.0)
    assert trusts(watch, 120.0 + DAY, 2 * 3600.0)


def test_a_jump_back_is_trusted() -> None:
    """It deletes too little for a while, which harms nobody."""
    watch = ClockWatch()
    assert trusts(watch, 0.0)
    assert trusts(watch, 60.0, -3 * DAY)
