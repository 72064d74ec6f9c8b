"""Requests that fail or end late, a full storage, two clicks: nothing is repeated or forgotten."""

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, FilePayload, Route, expect

from tests.e2e.console import Console, console

pytestmark = pytest.mark.browser

TABLE = "age,income\n" + "".join(f"{20 + row % 60},{1000 + row * 37 % 811}\n" for row in range(90))
FULL = """() => {
  const refuse = () => { throw new DOMException("full", "QuotaExceededError"); };
  Storage.prototype.setItem = refuse;
}"""


@pytest.fixture
def table(opened: Console) -> str:
    """Id of an uploaded table, whose page is open."""
    return opened.upload("people.csv", TABLE)


def lose_response(route: Route) -> None:
    """Let the service get the request, and lose its response."""
    route.fetch()
    route.abort()


def jobs_of(client: httpx.Client, label: str) -> int:
    """Return the number of jobs with a label."""
    return len(client.get("/v1/jobs", params={"label": label}).raise_for_status().json()["jobs"])


def test_a_lost_response_and_two_clicks_make_one_job(
    opened: Console, client: httpx.Client, table: str
) -> None:
    page = opened.page
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_text("Report, candidates").click()
    page.get_by_label("Label", exact=True).fill("lost response")

    page.route("**/v1/services/DSWAP", lose_response, times=1)
    run = page.get_by_role("button", name="Run", exact=True)
    run.click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    run.click()
    opened.ended()
    assert jobs_of(client, "lost response") == 1
    first = page.url
    page.get_by_role("button", name="Run again").evaluate("button => { button.click(); button.click(); }")
    page.get_by_text("Reproduced").wait_for()
    assert page.url != first
    assert jobs_of(client, "lost response") == 2  # a rerun has the label of its job


def test_a_hidden_tab_holds_no_connection_and_a_busy_service_is_asked_again(
    opened: Console, table: str
) -> None:
    """A browser opens six connections to a service, which six hidden tabs would hold."""
    page = opened.page
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    held: list[Route] = []
    page.route("**/events", lambda route: held.append(route))
    page.route("**/v1/jobs/*", lambda route: route.fulfill(json={**route.fetch().json(), "state": "running"}))

    def streams(number: int) -> None:
        while len(held) < number:
            page.wait_for_timeout(20)  # the route is heard meanwhile

    page.reload()
    streams(1)
    show = """is => {
      Object.defineProperty(document, "hidden", { value: !is, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
        page.evaluate(show, False)
    page.evaluate(show, True)
    streams(2)
    held[1].fulfill(status=429, json={"title": "Too many requests", "detail": "retry", "status": 429})
    streams(3)
    page.unroute("**/v1/jobs/*")
    held[2].continue_()
    opened.ended()
    assert len(held) == 3


def test_a_lost_response_to_an_upload_makes_one_table(
    opened: Console, client: httpx.Client, tmp_path: Path
) -> None:
    page = opened.page
    file = tmp_path / "lost-response.csv"
    file.write_text(TABLE)
    choose = page.get_by_label(re.compile("^A file"))
    page.route("**/v1/buffers?*", lose_response, times=1)
    choose.set_input_files(file)
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    before = client.get("/v1/buffers").raise_for_status().json()["buffers"][0]
    choose.set_input_files(file)
    assert opened.table() == before["id"]


def test_an_interrupted_upload_is_sent_again_as_it_was(opened: Console, client: httpx.Client) -> None:
    """The file and the answers about it are kept; nothing is asked a second time."""
    page = opened.page
    rows = "".join(f"{20 + row % 60};{row},25\n" for row in range(90))
    file = FilePayload(name="umfrage.csv", mimeType="", buffer=f"age;income\n{rows}".encode())
    page.route("**/v1/buffers?*", lambda route: route.abort(), times=2)
    opened.open()
    page.get_by_label(re.compile("^A file")).set_input_files(file)
    page.get_by_role("button", name="Yes: ").click()
    for _ in range(2):
        expect(page.get_by_role("alert")).to_contain_text("umfrage.csv and what you stated about it are kept")
        page.get_by_role("button", name="Send the file again").click()
    buffer = client.get(f"/v1/buffers/{opened.table()}").raise_for_status().json()
    assert [field["type"] for field in buffer["fields"]] == ["int64", "float64"]


LEAVE = """() => {
  const leaving = new Event('beforeunload', { cancelable: true });
  dispatchEvent(leaving);
  return leaving.defaultPrevented;
}"""


def test_a_reload_during_an_upload_is_asked_about(opened: Console) -> None:
    """The browser asks, as long as the file is being sent."""
    page = opened.page
    held: list[Route] = []
    page.route("**/v1/buffers?*", lambda route: held.append(route))
    opened.open()
    assert not opened.evaluate(LEAVE)
    file = FilePayload(name="people.csv", mimeType="", buffer=TABLE.encode())
    with page.expect_request("**/v1/buffers?*"):
        page.get_by_label(re.compile("^A file")).set_input_files(file)
    assert opened.evaluate(LEAVE)
    held[0].continue_()
    opened.table()
    assert not opened.evaluate(LEAVE)


def test_an_upload_is_found_again_after_another_view(opened: Console) -> None:
    """Its progress, its failure, and its end; who has left the view is not led away."""
    page = opened.page
    held: list[Route] = []
    page.route("**/v1/buffers?delimiter*", lambda route: held.append(route))
    opened.open()
    file = FilePayload(name="people.csv", mimeType="", buffer=TABLE.encode())
    with page.expect_request("**/v1/buffers?delimiter*"):
        page.get_by_label(re.compile("^A file")).set_input_files(file)
    opened.open("jobs")
    opened.open()
    page.get_by_text("Uploading people.csv").wait_for()
    opened.open("jobs")
    held.pop().abort()
    opened.open()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    with page.expect_request("**/v1/buffers?delimiter*"):
        page.get_by_role("button", name="Send the file again").click()
    opened.open("jobs")
    opened.open()
    held.pop().continue_()
    page.get_by_role("status").get_by_role("link", name="people.csv").click()
    opened.table()
    opened.open()
    assert page.get_by_text("Uploaded: ").count() == 0


def test_a_late_response_does_not_leave_the_present_view(opened: Console, table: str) -> None:
    page = opened.page
    opened.open(f"tables/{table}/DSWAP")
    held: list[Route] = []
    page.route("**/v1/services/DSWAP", lambda route: held.append(route))
    with page.expect_request("**/v1/services/DSWAP"):
        page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    with page.expect_response("**/v1/services/DSWAP"):
        held[0].fulfill(json={"id": "late"})
    page.get_by_role("link", name="Tables", exact=True).click()
    page.get_by_role("heading", name="Protect a table").wait_for()
    assert not [url for url in opened.asked if url.endswith("/v1/jobs/late")]


def test_a_deleted_table_leaves_nothing_in_the_tab(opened: Console, table: str) -> None:
    page = opened.page
    page.get_by_label("age", exact=True).select_option("sensitive")
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_label("Rate").fill("0.25")
    assert f"{table}.DSWAP" in json.dumps(page.evaluate("Object.keys(sessionStorage)"))
    opened.open(f"tables/{table}")
    page.get_by_role("button", name="Delete this table").click()
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_role("heading", name="Protect a table").wait_for()
    assert table not in json.dumps(page.evaluate("({ ...sessionStorage })"))


def test_parameters_of_a_job_survive_a_reload(opened: Console, table: str) -> None:
    """They replace what was entered in the form before, and so do its measures."""
    page = opened.page
    opened.open(f"tables/{table}/DSWAP")
    rate = page.get_by_label("Rate")
    rate.fill("0.25")
    options = page.get_by_text("Report, candidates")
    options.click()
    keys = page.locator(".options").get_by_role("group", name="Key fields", exact=True)
    keys.get_by_label("age").uncheck()
    keys.get_by_label("income").check()
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    job = page.url.rpartition("/")[2]
    opened.open(f"tables/{table}/DSWAP")
    rate.fill("0.75")
    options.click()
    keys.get_by_label("age").check()
    opened.open(f"jobs/{job}")
    page.get_by_text("Parameters", exact=True).click()
    page.get_by_role("button", name="Change them and run again").click()
    page.get_by_text("Filled in with the parameters that you chose").wait_for()
    page.reload()
    opened.shown()
    expect(rate).to_have_value("0.25")
    options.click()
    expect(keys.get_by_role("checkbox", checked=True)).to_have_accessible_name(re.compile("^income"))


def test_suggestions_follow_roles_that_are_corrected_later(opened: Console, table: str) -> None:
    """They were kept as if they had been entered: the measures took the fields of the roles before."""
    page = opened.page
    opened.open(f"tables/{table}/DSWAP")
    rate = page.get_by_label("Rate")
    rate.fill("0.25")
    opened.open(f"tables/{table}")
    page.get_by_label("age", exact=True).select_option("sensitive")
    page.get_by_label("income", exact=True).select_option("known")
    opened.open(f"tables/{table}/DSWAP")
    expect(rate).to_have_value("0.25")
    page.get_by_text("Report, candidates").click()
    for group, name in (("Swap fields", "age"), ("Key fields", "income")):
        ticked = page.get_by_role("group", name=group, exact=True).get_by_role("checkbox", checked=True)
        expect(ticked).to_have_accessible_name(re.compile(f"^{name}"))


def test_the_rows_shown_are_those_of_the_present_choice(opened: Console, table: str) -> None:
    """A late response for the choice before shows nothing; until a slow view is there, the page says so."""
    page = opened.page
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_label("Rate").fill("0.25")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    only = page.get_by_label("Only rows with a change")
    only.wait_for()
    held: list[Route] = []
    page.route("**/comparison?*only_changed=true*", lambda route: held.append(route))
    with page.expect_request("**/comparison?*only_changed=true*"):
        only.check()
    with page.expect_response("**/comparison?*only_changed=false*"):
        only.uncheck()
    with page.expect_response("**/comparison?*only_changed=true*"):
        held[0].fulfill(json={"fields": [], "rows": [], "aligned": True})
    page.route("**/v1/jobs?*", lambda route: held.append(route))
    page.get_by_role("navigation", name="Console").get_by_role("link", name="Jobs").click()
    page.locator("main[aria-busy]").wait_for()
    assert page.locator(".rows tbody tr").count() == 20
    sign = "getComputedStyle(document.querySelector('main'), '::before')"
    page.wait_for_function(f"() => {sign}.visibility === 'visible' && {sign}.content.includes('Loading')")


def test_a_table_is_shown_while_no_worker_is_free(opened: Console) -> None:
    """The values are counted when one is; until then the user can go on without the figures."""
    page = opened.page
    page.route("**/profile?*", lambda route: None)  # no response
    opened.open()
    file = FilePayload(name="people.csv", mimeType="", buffer=b"age,income\n31,100\n32,200\n")
    page.get_by_label(re.compile("^A file")).set_input_files(file)
    go_on = page.get_by_role("button", name="Go on without the figures")
    go_on.wait_for()
    expect(page.get_by_role("status").filter(has_text="Uploaded: people.csv")).to_have_count(1)
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("heading", name="Jobs").wait_for()
    expect(go_on).to_have_count(0)
    page.go_back()
    go_on.click()
    page.get_by_text("The roles are suggested from names and types alone").wait_for()
    expect(go_on).to_have_count(0)


def test_a_full_storage_stops_nothing(browser: Browser, client: httpx.Client) -> None:
    """Roles and entries last until a reload instead."""
    with console(browser, client) as tab:
        tab.open()
        tab.page.evaluate(FULL)
        table = tab.upload_here("people.csv", TABLE)
        tab.page.get_by_label("age", exact=True).select_option("sensitive")
        tab.page.evaluate("place => { location.hash = place; }", f"#/tables/{table}/DSWAP")
        swap = tab.page.get_by_role("group", name="Swap fields", exact=True)
        expect(swap.get_by_role("checkbox", checked=True)).to_have_count(2)
        tab.page.get_by_role("button", name="Run", exact=True).click()
        tab.ended()


def test_a_view_that_failed_can_be_tried_again(opened: Console, client: httpx.Client, table: str) -> None:
    """Its button and the link that led to it do so; a table that was deleted elsewhere leaves the list."""
    page = opened.page
    jobs = page.get_by_role("navigation", name="Console").get_by_role("link", name="Jobs")
    failed = page.get_by_role("heading", name="This cannot be shown")
    for again in (page.get_by_role("button", name="Try again"), jobs):
        opened.open()
        page.route("**/v1/jobs?*", lambda route: route.abort(), times=1)
        jobs.click()
        failed.wait_for()
        again.click()
        page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    client.delete(f"/v1/buffers/{table}").raise_for_status()
    opened.open(f"tables/{table}")
    page.get_by_text("It was deleted, or it has expired").wait_for()
    page.get_by_role("link", name="To the tables").click()
    page.get_by_text("None in this tab.").wait_for()


def test_back_leads_to_the_place_that_was_left(opened: Console, table: str) -> None:
    page = opened.page
    link = page.get_by_role("link", name="DSWAP").first
    link.scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    assert place > 0
    link.click()
    page.get_by_role("heading", name="Parameters", exact=True).wait_for()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    page.get_by_role("heading", name="Fields").wait_for()
    assert page.evaluate("scrollY") == place
    assert table in page.url
