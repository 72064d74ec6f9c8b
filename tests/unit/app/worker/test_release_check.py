"""Risk of repeated releases: measured once for the same rows, parameters and number of releases."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.worker import release_check
from app.worker.digest_sets import draw_of, packed_digest
from app.worker.release_check import composed_epsilon, known_risk
from app.worker.tasks import EarlierSource, EarlierSources, ReleaseQuestion

A, B = (f"sha256:{digit * 64}" for digit in "ab")

RELEASED = packed_digest(A) + packed_digest(B)

FIRST, SECOND = (draw_of(b"k", seed, b"source") for seed in (b"1", b"2"))

FAMILY = EarlierSource("family", RELEASED, 2, "2026-01-01T00:00:00+00:00", (1.0, None), bytes.fromhex(FIRST))


def test_the_same_risk_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(task: Any, key: bytes, first: Any, releases: int) -> dict[str, Any]:
        measured.append(releases)
        return {"releases": releases}

    monkeypatch.setattr(release_check, "measured_risk", measure)
    monkeypatch.setattr(release_check, "_first_rows", lambda source: None)
    monkeypatch.setattr(release_check, "_risks", type(release_check._risks)())
    monkeypatch.setattr(release_check, "_MOST_RISKS", 3)
    one, other = (
        ReleaseQuestion(
            key=b"k" * 32, source_digest=digest, policy="warn", reason=False, earlier=EarlierSources()
        )
        for digest in ("sha256:1", "sha256:2")
    )
    task, changed = (
        SimpleNamespace(service="DSWAP", revision=1, parameters={"rate": rate}) for rate in (0.5, 0.6)
    )

    def known(task: Any, question: ReleaseQuestion, *arguments: Any) -> int:
        measured.clear()
        assert known_risk(task, question, *arguments)["releases"] == min(20, arguments[-1])
        return len(measured)

    assert known(task, one, "family", None, 2) == 1
    assert known(task, one, "family", None, 2) == 0
    assert known(task, one, "family", None, 20) == 1
    assert known(task, one, "family", None, 21) == 0  # at most 20 releases are made
    assert known(changed, one, "family", None, 20) == 1
    assert known(task, one, "another", None, 20) == 1
    assert known(task, other, "family", None, 20) == 1
    assert known(task, one, "family", None, 2) == 1  # three are remembered


def test_the_draws_of_before_add_no_epsilon() -> None:
    guarantee = {"epsilon": 2.0}
    assert composed_epsilon(guarantee, FIRST, FAMILY)["releases"] == 2
    new = composed_epsilon(guarantee, SECOND, FAMILY)
    assert (new["releases"], new["without"], new["all_releases"]) == (3, 1, None)
    finite = composed_epsilon(guarantee, SECOND, FAMILY._replace(epsilons=(1.0, 4.0)))
    assert (finite["all_releases"], finite["draw"]) == (7.0, SECOND)
    without = composed_epsilon(guarantee, SECOND, FAMILY._replace(epsilons=(), draws=b""))
    assert (without["releases"], without["without"]) == (3, 2)
    assert composed_epsilon(guarantee, FIRST, None)["all_releases"] == 2.0
