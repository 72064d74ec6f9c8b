"""Weak seeds are accepted and reported."""

from typing import Any

import pytest

from app.jobs.weak_seeds import SEEDS_A_SECOND
from tests.api.calls import Api

Rows = list[dict[str, Any]]


@pytest.mark.parametrize(
    ("seed", "bits", "effort"),
    [
        ("07", 8, "less than a second"),
        ("0123456789", 40, "13 days"),
        (2**50 + 1, 51, "71 years"),
        ("0" * 30 + "2a", 6, "less than a second"),
    ],
)
def test_a_weak_seed_is_an_event_and_in_the_report(
    api: Api, people: Rows, seed: str | int, bits: int, effort: str
) -> None:
    """The event has the time of a brute-force search; the outcome is otherwise unchanged."""
    job = api.run("DSWAP", people, {"swap_fields": ["age"]}, seed=seed)
    assert job["outcome"] == "SUCCESS"
    assert job["event_counts"] == {"weak_seed": 1}
    (event,) = job["events"]
    assert event["code"] == "weak_seed"
    assert f"{bits} bits" in event["message"]
    assert effort in event["message"]
    report = api.client.get(f"/v1/jobs/{job['id']}/report").json()
    assert report["weak_seed"]["bits"] == bits
    assert report["weak_seed"]["core_seconds"] == pytest.approx(2**bits / SEEDS_A_SECOND)
    assert effort in report["limits"][-1]
    assert str(seed) not in {report["limits"][-1], event["message"]}
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"})
    assert "weak_seed" in page.text


@pytest.mark.parametrize("seed", ["0123456789abcdef", None])
def test_a_strong_seed_is_not_spoken_of(api: Api, people: Rows, seed: str | None) -> None:
    """Seeds of 64 bits and more, or none."""
    job = api.run("DSWAP", people, {"swap_fields": ["age"]}, **({"seed": seed} if seed else {}))
    assert "weak_seed" not in job["event_counts"]
    assert "weak_seed" not in api.client.get(f"/v1/jobs/{job['id']}/report").json()


def test_a_rerun_says_it_again(api: Api, people: Rows) -> None:
    """The seed is as weak as before, and the report is the same."""
    job = api.run("DSWAP", people, {"swap_fields": ["age"]}, seed="07", retain_source=True)
    again = api.client.post(f"/v1/jobs/{job['id']}/rerun", json={}).json()
    assert (again["reproduced"], again["event_counts"]) == (True, {"weak_seed": 1})
