"""The disclosure ledger in the console: what was released of a table, and the sum of the epsilons."""

import re

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, Console, console

pytestmark = pytest.mark.browser

PERMUTED = {"swap_fields": ["income"], "rate": 0.9, "mechanism": "permutation"}


def released(client: httpx.Client, table: str, **parameters: object) -> str:
    """Run DSWAP on a table; return the id of the job."""
    call = {"source": {"buffer": table}, "parameters": {"swap_fields": ["income"], **parameters}}
    job = client.post("/v1/services/DSWAP", json=call, headers={"prefer": "wait=100"})
    assert job.raise_for_status().json()["state"] == "succeeded"
    return str(job.json()["id"])


def uploaded(tab: Console, salt: int) -> str:
    """Upload a table of its own; return its id."""
    rows = "".join(f"{20 + row % 60},{salt + row * 37 % 811}\n" for row in range(90))
    return tab.upload(f"people-{salt}.csv", f"age,income\n{rows}")


def fact(page: Page, name: str) -> str:
    """Return the text of a fact by its name."""
    return (
        page.locator(".facts > div", has=page.locator("dt", has_text=re.compile(f"^{name}$")))
        .locator("dd")
        .inner_text()
    )


def test_a_table_leads_to_its_releases_and_the_sum_of_their_epsilons(
    opened: Console, client: httpx.Client
) -> None:
    page = opened.page
    table = uploaded(opened, 5_000_000)
    assert fact(page, "Released") == "not yet"
    jobs = [released(client, table, **PERMUTED) for _ in range(2)]
    opened.open("jobs")
    opened.open(f"tables/{table}")
    page.get_by_role("link", name="2 times").click()
    page.get_by_role("heading", name="Releases of people-5000000.csv").wait_for()
    entries = client.get(
        "/v1/ledger", params={"source": client.get(f"/v1/buffers/{table}").json()["digest"]}
    ).json()["releases"]
    total = f"{entries[1]['epsilon']['all_releases']:.4g}"
    assert fact(page, "Epsilon of all") == f"{total} for 2 releases, for an exchange of income"
    links = page.locator("tbody th a")
    assert [(links.nth(at).get_attribute("href") or "").rpartition("/")[2] for at in range(2)] == jobs
    expect(page.locator("tbody tr").nth(1)).to_contain_text("released before")
    links.nth(1).click()
    opened.ended()
    page.get_by_role("link", name="In the ledger").click()
    page.get_by_role("heading", name="Releases of").wait_for()


def test_a_release_without_epsilon_leaves_no_sum(opened: Console, client: httpx.Client) -> None:
    """A run by random pairs after one by the permutation mechanism: the older sum does not hold."""
    page = opened.page
    table = uploaded(opened, 6_000_000)
    released(client, table, **PERMUTED)
    released(client, table)
    opened.open("jobs")
    opened.open(f"tables/{table}")
    page.get_by_role("link", name="2 times").click()
    page.get_by_role("heading", name="Releases of").wait_for()
    assert fact(page, "Epsilon of all") == "none: the last release has no finite epsilon"


def test_all_releases_come_page_by_page(opened: Console) -> None:
    """A name is text, also that of an owner; a page that is refused leaves those before."""
    page = opened.page
    one = {
        "job": "j", "released_at": "2026-11-30T10:00:00Z", "owner": "<b>Ada</b>",
        "service": "DSWAP", "revision": 3,
        "source_digest": "sha256t:" + "0" * 64, "destination_digest": "sha256t:" + "1" * 64, "row_count": 7,
        "match": "fields", "reason": "<img src=x>",
        "risk": {"field": "in<i>come", "by": "majority", "one_release": 0.5,
                 "all_releases": 0.999, "releases": 2, "rows": 7},
    }  # fmt: skip
    bare = {name: value for name, value in one.items() if name not in ("risk", "match", "reason")}
    pages = iter([{"releases": [one], "next_page_token": "t"}, {"releases": [bare]}])
    page.route("**/v1/ledger?*", lambda route: route.fulfill(json=next(pages)))
    page.get_by_role("link", name="Releases").click()
    row = page.locator("tbody tr")
    expect(row).to_contain_text("recognised by its rows or fields")
    expect(row).to_contain_text("in<i>come: above 99 % of 7 rows restored by 2 releases, 50 % by one")
    expect(row).to_contain_text("<b>Ada</b>")
    page.get_by_role("button", name="Later releases").click()
    expect(row).to_have_count(2)
    expect(page.get_by_role("button", name="Later releases")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ledger_is_legible_on_a_phone(browser: Browser, client: httpx.Client, scheme: str) -> None:
    with console(browser, client, scheme=scheme, width=360) as tab:  # type: ignore[arg-type]
        released(client, uploaded(tab, 7_000_000), **PERMUTED)
        for place in ("ledger", "ledger/sha256t%3A" + "0" * 64):
            tab.open(place)
            assert tab.evaluate(NOT_NEXT_TO_THE_PAGE)
            assert Axe().run(tab.page).response["violations"] == []
