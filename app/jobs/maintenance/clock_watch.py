"""Watch over the clock by which rows expire: a jump ahead must not delete rows that have not expired."""

import logging
import time
from datetime import datetime

_TOLERANCE_SECONDS = 3600.0
"""Jump ahead that is believed: it deletes nothing that would not be due within the hour."""

_HELD_SECONDS = 24 * 3600.0

_log = logging.getLogger("rowveil.jobs")


def uptime() -> float:
    """Return the seconds since the machine started; Linux includes the time in which it was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ClockWatch:
    """Compares the database's clock with the machine's uptime, which does not jump."""

    def __init__(self) -> None:
        self._offset: float | None = None
        """Difference of both when the clock was last trusted."""
        self._held_since: float | None = None

    def trusts(self, now: datetime, up: float) -> bool:
        """Return whether rows that have expired at ``now`` may be deleted; ``up``: the uptime at that moment.

        A clock that has jumped ahead is trusted when it is back, after a day, and by another process.
        """
        offset = now.timestamp() - up
        ahead = 0.0 if self._offset is None else offset - self._offset
        if ahead > _TOLERANCE_SECONDS:
            if self._held_since is None:
                self._held_since = up
                _log.error(
                    "the clock of the database jumped ahead by %.0f s: nothing that expires by it is deleted "
                    "for 24 hours. Correct the clock; if it is right now, restart the service",
                    ahead,
                )
            if up - self._held_since < _HELD_SECONDS:
                return False
        self._offset, self._held_since = offset, None
        return True
