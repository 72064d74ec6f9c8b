"""The call in `docs/choosing-a-method.md` gives the frontier that the page shows."""

import json
from typing import Any

import httpx

from demo.people import TYPES, people
from tests.data.test_choosing_page import lines, with_interval
from tests.docs.blocks import PAGES, blocks

PAGE = PAGES / "choosing-a-method.md"


def frontier_table(client: httpx.Client) -> str:
    """Return the result of the page's call on the sample table, formatted as on the page."""
    (call,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    body = {"source": {"rows": people(), "fields": TYPES}, **call}
    job = (
        client.post("/v1/frontier", json=body, headers={"prefer": "respond-async"}).raise_for_status().json()
    )
    path = f"/v1/jobs/{job['id']}"
    client.get(f"{path}/events", timeout=240).raise_for_status()  # lasts until the job has ended
    found = client.get(f"{path}/report").raise_for_status().json()["frontier"]
    varied = {name for service in call["services"] for name in service["vary"]}
    return lines(
        ["service", "varied", f"risk: `{found['risk']}`", f"utility: `{found['utility']}`", "frontier"],
        [line(point, varied) for point in found["points"]],
    )


def line(point: dict[str, Any], varied: set[str]) -> list[str]:
    given = [f"`{name}` {json.dumps(value)}" for name, value in point["parameters"].items() if name in varied]
    kept = "" if point["dominated"] else "yes"
    figures = with_interval(point, "risk", 3), with_interval(point, "utility", 4)
    return [point["service"], *given[-1:], *figures, kept]


def test_the_frontier_of_the_sample_table_is_as_documented(client: httpx.Client) -> None:
    """Every point of all eight services, and which of them are not dominated."""
    assert frontier_table(client) in PAGE.read_text(encoding="utf-8")
