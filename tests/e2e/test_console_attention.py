"""Focus and announcements: a keyboard user stays at the control, and a screen reader is not flooded."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.console import Console

pytestmark = pytest.mark.browser

HEAR = """() => {
  window.heard = [];
  const hear = ({ target, addedNodes }) => {
    const said = [...addedNodes].map((node) => node.textContent).join("");
    if (said && target.closest("[aria-live=polite], [role=status]")) heard.push(said);
  };
  new MutationObserver((changes) => changes.forEach(hear))
    .observe(document.querySelector("main"), { subtree: true, childList: true });
}"""


def test_announcements_are_few_and_short(opened: Console) -> None:
    """Neither the rows of a preview or a result, nor each per cent of the progress."""
    page = opened.page
    rows = "".join(f"{row * 7919 % 10007},{row * 104729 % 9973}\n" for row in range(30_000))
    table = opened.upload("many.csv", f"income,savings\n{rows}")
    opened.open(f"tables/{table}/LOCALITY")
    opened.evaluate(HEAR)
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("region", name="Preview").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    page.get_by_label("Only rows with a change").wait_for()
    heard = opened.evaluate("heard")
    assert heard[:2] == ["Checking …", "Submitting …"]
    progress = {"Waiting for a free worker", "0 %", "25 %", "50 %", "75 %", "100 %"}
    assert {words for words in heard[2:] if not words.startswith("succeeded ")} <= progress


@contextmanager
def running(page: Page) -> Iterator[None]:
    """Show the ended job of the page as if it ran until the end of the block."""
    held: list[Route] = []
    page.route("**/events", lambda route: held.append(route))
    page.route("**/v1/jobs/*", lambda route: route.fulfill(json={**route.fetch().json(), "state": "running"}))
    page.reload()
    page.get_by_role("button", name="Cancel").wait_for()
    yield
    while not held:
        page.wait_for_timeout(20)  # the route is heard meanwhile
    page.unroute("**/v1/jobs/*")
    page.unroute("**/events")
    held[0].continue_()


def test_the_focus_stays_or_the_end_of_a_job_is_announced(opened: Console) -> None:
    """Screen readers announce the changes of a live region that was there before, and not a new one."""
    page = opened.page
    table = opened.upload("people.csv", "age,income\n" + "".join(f"{row},{row}\n" for row in range(90)))
    page.get_by_text("Name, label and notes").click()
    page.get_by_role("button", name="Save").press("Enter")
    page.get_by_text("Saved.").wait_for()
    expect(page.get_by_role("button", name="Save")).to_be_focused()
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run", exact=True).press("Enter")
    opened.ended()
    page.route("**/cancel", lambda route: route.fulfill(json={}))
    with running(page):
        page.get_by_role("button", name="Cancel").press("Enter")
    opened.ended()
    expect(page.locator(".outcome")).to_be_focused()
    with running(page):
        region = page.get_by_role("status").filter(has_text="100 %").element_handle()
    opened.ended()
    assert page.evaluate("one => one.isConnected && one.textContent", region).startswith("succeeded")
