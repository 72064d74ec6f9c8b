"""Half a minute of 64 concurrent clients (``make load`` runs ten), and a check of the verdict itself."""

from collections.abc import Callable

import pytest

from benchmarks.http.load import Load, measure
from benchmarks.resident import Resident

SECONDS = 30.0
CLIENTS = 64
LARGE_ROWS = 500_000
MB = 10**6


def test_half_a_minute_of_64_clients(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """No error except documented rejections, and flat memory."""
    load = measure(SECONDS, CLIENTS, LARGE_ROWS)
    with capsys.disabled():
        print(f"\n{CLIENTS} clients, {load.elapsed:.0f} s\n\n{load.report()}")
    for kind, taken in load.seconds.items():
        record_property(f"calls of {kind}", len(taken))
    assert load.errors == []
    assert load.resident.flat, load.resident.report()
    assert load.well


def grown(service: Callable[[int], float], workers: Callable[[int], float]) -> Resident:
    return Resident([(float(at), int(service(at) * MB), int(workers(at) * MB)) for at in range(600)])


def test_memory_that_grows_is_not_flat() -> None:
    """Growth is distinguished from temporary use by a large table, and from the warm-up."""
    assert grown(lambda at: 250, lambda at: 800 + 300 * (at % 7 == 0)).flat
    assert grown(lambda at: 250 - 200 * (at < 100), lambda at: 800).flat
    assert not grown(lambda at: 250 + at / 4, lambda at: 800).flat
    assert not grown(lambda at: 250, lambda at: 800 + at / 2).flat
    assert not Resident().flat


def test_a_load_with_an_error_or_without_a_kind_is_not_well() -> None:
    kinds = ("run", "rerun", "cancel", "list", "read", "large")
    resident = grown(lambda at: 250, lambda at: 800)
    assert Load({kind: [1.0] for kind in kinds}, resident=resident).well
    assert not Load({kind: [1.0] for kind in kinds}, errors=["run: 500"], resident=resident).well
    assert not Load({kind: [1.0] for kind in kinds[1:]}, resident=resident).well
