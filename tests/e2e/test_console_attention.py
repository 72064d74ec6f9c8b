"""Focus and announcements: a keyboard user stays at the control, and a screen reader is not flooded."""

import pytest
from playwright.sync_api import Route, expect

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
    assert set(heard[2:]) <= {"Waiting for a free worker", "0 %", "25 %", "50 %", "75 %", "100 %"}


def test_the_focus_stays_at_a_control_that_was_disabled(opened: Console) -> None:
    page = opened.page
    table = opened.upload("people.csv", "age,income\n" + "".join(f"{row},{row}\n" for row in range(90)))
    page.get_by_text("Name, label and notes").click()
    page.get_by_role("button", name="Save").press("Enter")
    page.get_by_text("Saved.").wait_for()
    expect(page.get_by_role("button", name="Save")).to_be_focused()
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run", exact=True).press("Enter")
    opened.ended()
    held: list[Route] = []
    page.route("**/events", lambda route: held.append(route))
    page.route("**/v1/jobs/*", lambda route: route.fulfill(json={**route.fetch().json(), "state": "running"}))
    page.route("**/cancel", lambda route: route.fulfill(json={}))
    page.reload()
    page.get_by_role("button", name="Cancel").press("Enter")
    page.unroute("**/v1/jobs/*")
    held[0].continue_()
    opened.ended()
    expect(page.locator(".outcome")).to_be_focused()
