"""A job's life under drawn schedules: real components, and a database, files, clock and faults from a seed.

`make test` runs the first 4,000 schedules, `make simulate` 100,000. A schedule that fails names its seed.
`python -m tests.simulation SEED` runs one, and prints what was committed.
"""

import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.modules import simulated
from tests.simulation.scheduler import Thread
from tests.simulation.world import Violation, World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The collector closes coroutines of ended schedules; their ``finally`` blocks find nothing to work on."""

SCHEDULES = int(os.environ.get("SIMULATED_SCHEDULES", "4000"))

CHUNKS = 40

_MOST_SEARCHED = 20_000
"""Schedules in which a defect must show. The rarest, an end of an old claim, shows in one of 3,000."""

_FOCUS: dict[str, dict[str, Any]] = {
    "a purge takes everything that is due in one transaction": {"due": 1.0, "faults": ("_kill",)},
    "a purge leaves more blobs behind than a sweep takes": {"due": 1.0, "faults": ("_kill",)},
    "a sweep reads the named blobs before it lists the folder": {"faults": ("_pause",)},
    "a takeover requeues jobs that are being started": {"faults": ("_slow_folder",)},
    "an end is recorded for a claim that another one has followed": {"faults": ("_pause",)},
}
"""Defects that need rare circumstances: these are drawn more often."""


class _Schedules:
    """A part of the schedules: pytest-xdist gives each class to a process of its own."""

    def test_no_schedule_breaks_what_must_hold(self, chunk: int) -> None:
        with simulated():
            for seed in range(chunk, SCHEDULES, CHUNKS):
                try:
                    World(seed).run()
                except Violation as error:
                    pytest.fail(f"schedule {seed}: {error}")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("chunk", range(0, CHUNKS, 4))
class TestFirstQuarter(_Schedules):
    """Schedules 0, 4, 8 and so on."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("chunk", range(1, CHUNKS, 4))
class TestSecondQuarter(_Schedules):
    """Schedules 1, 5, 9 and so on."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("chunk", range(2, CHUNKS, 4))
class TestThirdQuarter(_Schedules):
    """Schedules 2, 6, 10 and so on."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("chunk", range(3, CHUNKS, 4))
class TestLastQuarter(_Schedules):
    """Schedules 3, 7, 11 and so on."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", DEFECTS)
class TestDefects:
    """Mistakes that the service once made, or could make."""

    def test_a_defect_that_is_put_back_is_found(self, name: str) -> None:
        with simulated(*DEFECTS[name]):
            for seed in range(_MOST_SEARCHED):
                try:
                    World(seed, **_FOCUS.get(name, {})).run()
                except Violation:
                    return
        pytest.fail("no schedule has found the defect")


def test_schedules_leave_nothing_in_memory() -> None:
    """A thread that waits is ended with its schedule: the collector cannot look into its stack."""
    with simulated():
        for seed in range(200):
            World(seed).run()
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Thread) and not each.dead]


def test_a_seed_gives_the_same_schedule_in_every_process() -> None:
    """Whatever the order of its sets is."""
    traces = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.simulation", "--digest", *(str(seed) for seed in range(60))]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        traces.add(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert len(traces) == 1
    (trace,) = traces
    assert len(set(trace.split())) == 60


def test_the_schedules_reach_what_they_are_about() -> None:
    """Ends of each kind, takeovers, lost leases, reruns after a crash, deletions and full purges."""
    states, seen = set(), set()
    with simulated():
        for seed in range(600):
            world = World(seed)
            world.run()
            rows = world.server.tables["jobs"].values()
            states |= {str(row["state"]) for row in rows}
            seen |= {("crashes", row["crashes"] > 0) for row in rows}
            seen |= {("attempts", row["attempt"] > 1) for row in rows}
            seen |= {("deleted", bool(world.deleted)), ("killed", world.kills > 0)}
            seen |= {("small", row["sealed_destination"] is not None) for row in rows}
            seen |= {("error", (row["error"] or {}).get("code")) for row in rows}
    assert states == {"succeeded", "failed", "cancelled"}
    flags = ("crashes", "attempts", "deleted", "killed", "small")
    assert {(name, flag) for name in flags for flag in (False, True)} <= seen
    codes = {"worker_died", "deadline_exceeded"}
    assert {("error", code) for code in codes} <= seen
