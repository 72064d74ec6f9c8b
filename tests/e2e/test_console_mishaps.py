"""Mishaps of a curator: odd names, typing errors, a service that rejects requests."""

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.e2e.console import Console, console

pytestmark = pytest.mark.browser

OF_EVERY_OBJECT = ["constructor", "__proto__", "toString", "income"]


def refused(route: Route) -> None:
    """Respond as an overloaded service."""
    route.fulfill(
        status=503,
        content_type="application/problem+json",
        json={"title": "Unavailable", "detail": "ask again", "status": 503},
    )


def numbers(names: list[str]) -> str:
    rows = [",".join(str(row % 75 + at) for at, _ in enumerate(names)) for row in range(90)]
    return "\n".join([",".join(names), *rows, ""])


def test_a_field_may_have_the_name_of_what_every_object_has(opened: Console) -> None:
    """Its role is guessed, stored and used, and an error can refer to it."""
    page = opened.page
    table = opened.upload("odd.csv", numbers(OF_EVERY_OBJECT))
    for name in OF_EVERY_OBJECT:
        expect(page.get_by_label(name, exact=True)).to_have_value("sensitive")
        page.get_by_label(name, exact=True).select_option("known")
    page.get_by_label("toString", exact=True).select_option("sensitive")
    opened.open("jobs")
    opened.open(f"tables/{table}")
    for name in OF_EVERY_OBJECT:
        role = "sensitive" if name == "toString" else "known"
        expect(page.get_by_label(name, exact=True)).to_have_value(role)
    opened.open(f"tables/{table}/DSWAP")
    swap = page.get_by_role("group", name="Swap fields", exact=True)
    expect(swap.get_by_role("checkbox", checked=True)).to_have_count(1)
    point = """async (pointer) => {
      const { point } = await import("/console/form.js");
      return point({ a: { parts: {}, fault() {}, node: document.body, focus: document.body } },
        [{ pointer, message: "no" }]).length;
    }"""
    assert opened.evaluate(point, "/constructor/name") == 1
    assert opened.evaluate(point, "/a/constructor/name/x") == 0


def test_an_address_that_cannot_be_read_leads_nowhere(opened: Console) -> None:
    opened.open("tables/%")
    opened.page.get_by_role("heading", name="There is nothing here").wait_for()


def test_what_is_no_number_is_not_taken_for_the_default(opened: Console) -> None:
    """The browser hides such input from the page; no request is sent until it is corrected."""
    page = opened.page
    table = opened.upload("numbers.csv", numbers(["age", "income"]))
    opened.open(f"tables/{table}/DSWAP")
    rate = page.get_by_label("Rate")
    rate.press_sequentially("0.5e")
    for button in ("Preview", "Run"):
        page.get_by_role("button", name=button, exact=True).click()
        expect(rate).to_be_focused()
        expect(rate).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_role("alert")).to_contain_text("not a number")
    assert not [url for url in opened.asked if url.endswith("/v1/services/DSWAP") and "#" not in url][1:]
    rate.press_sequentially("0")
    expect(rate).not_to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("region", name="Preview").wait_for()


def test_a_key_that_cannot_be_sent_is_asked_for_again(browser: Browser, client: httpx.Client) -> None:
    """The browser itself rejects it, which looks like an unavailable service."""
    key = client.headers["authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=client.base_url) as nobody, console(browser, nobody) as tab:
        tab.page.goto(f"{tab.address}/#/jobs")
        dialog = tab.page.get_by_role("dialog", name="Access key")
        for given in (f"{key}…", "rv_ two words"):
            tab.page.get_by_label("Key", exact=True).fill(given)
            tab.page.keyboard.press("Enter")
            expect(dialog).to_contain_text("characters that no key has")
        tab.page.get_by_label("Key", exact=True).fill(key)
        tab.page.keyboard.press("Enter")
        tab.page.get_by_role("heading", name="Jobs").wait_for()


def test_a_cancel_that_is_refused_can_be_asked_for_again(opened: Console) -> None:
    page = opened.page
    rows = "\n".join(f"{row * 7919 % 10007},{row * 104729 % 9973}" for row in range(60_000))
    table = opened.upload("many.csv", f"income,savings\n{rows}\n")
    opened.open(f"tables/{table}/LOCALITY")
    page.route("**/cancel", refused, times=1)
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("ask again")
    page.get_by_role("button", name="Cancel").click()
    opened.ended("cancelled")


def test_older_jobs_come_once_each_and_a_refusal_is_reported(opened: Console) -> None:
    page = opened.page
    job = {"kind": "swap", "service": "DSWAP", "state": "succeeded", "row_count": 1}
    job |= {"created_at": "2026-01-01T00:00:00Z", "rerun_of": None}

    def listed(route: Route) -> None:
        older = "page_token" in route.request.url
        page_of = {"jobs": [{**job, "id": "older" if older else "newer"}]}
        route.fulfill(json={**page_of, "next_page_token": None if older else "next"})

    page.route("**/v1/jobs?*", listed)
    opened.open("jobs")
    page.route("**/v1/jobs?*", refused, times=1)
    more = page.get_by_role("button", name="Older jobs")
    more.click()
    expect(page.get_by_role("alert")).to_contain_text("ask again")
    more.evaluate("button => { button.click(); button.click(); }")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(more).to_be_hidden()
    expect(page.get_by_role("alert")).to_have_count(0)
