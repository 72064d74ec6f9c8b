"""Mishaps of a curator: odd names, typing errors, a service that rejects requests."""

from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, Console, console

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


def test_a_file_that_is_dropped_next_to_its_place_does_not_replace_the_page(opened: Console) -> None:
    """Also while a form is filled in; a text may be dropped into an input."""
    opened.open()
    script = """add => {
      const dataTransfer = new DataTransfer();
      add ? dataTransfer.items.add(new File(["a"], "a.csv")) : dataTransfer.setData("text/plain", "a");
      const dropped = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer });
      document.querySelector("h1").dispatchEvent(dropped);
      return dropped.defaultPrevented;
    }"""
    assert opened.evaluate(script, True)
    assert not opened.evaluate(script, False)


def test_of_several_dropped_files_none_is_taken_in_silence(opened: Console) -> None:
    """The first one would be uploaded, and the others forgotten without a word."""
    opened.open()
    opened.evaluate("""() => {
      const dataTransfer = new DataTransfer();
      for (const name of ["a.csv", "b.csv"]) dataTransfer.items.add(new File(["age\\n1\\n"], name));
      const dropped = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer });
      document.querySelector(".drop").dispatchEvent(dropped);
    }""")
    expect(opened.page.get_by_role("alert")).to_contain_text("drop one file at a time")
    assert not [url for url in opened.asked if "/v1/buffers" in url]


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


FORMATTED = """async () => {
  const { number, percent } = await import("/console/format.js");
  return [[1e300, 9007199254740993n, 0.25].map(number), [0, 0.00002, 0.5, 0.99998, 1].map(percent)];
}"""


def test_no_figure_is_rounded_to_none_or_all(opened: Console) -> None:
    opened.open("jobs")
    numbers_shown, shares = opened.evaluate(FORMATTED)
    assert numbers_shown == ["1E300", "9,007,199,254,740,993", "0.25"]
    assert shares == ["0 %", "below 1 %", "50 %", "above 99 %", "100 %"]


def test_a_whole_number_beyond_2_to_53_stays_exact(opened: Console, client: httpx.Client) -> None:
    """JavaScript numbers would round it in the form, in the request, on the job's page and in the storage."""
    page, large = opened.page, 2**53 + 1
    wide = "".join(f"{20 + row % 60},{large - row % 5}\n" for row in range(90))
    table = opened.upload("wide.csv", f"age,wide\n{wide}")
    parameters = {
        "swap_fields": ["age"],
        "control_field": "wide",
        "classifier": {"breaks": [large - 2, large]},
    }
    call = {"source": {"buffer": table}, "parameters": parameters}
    job = client.post("/v1/services/CDSWAP", json=call).raise_for_status().json()
    opened.open(f"jobs/{job['id']}")
    page.get_by_text("Parameters", exact=True).click()
    expect(page.locator("dl", has_text="Classifier")).to_contain_text(f"[{large - 2},{large}]")
    page.get_by_role("button", name="Change them and run again").click()
    page.get_by_text("Filled in with the parameters that you chose").wait_for()
    page.reload()
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    again = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").raise_for_status().json()
    assert again["parameters"]["classifier"] == job["parameters"]["classifier"]


def test_an_error_names_controls_by_their_labels(opened: Console) -> None:
    """Neither pointers nor keys of the JSON, in the form of a service and in that of a copied table."""
    page = opened.page
    table = opened.upload("towns.csv", "age,town\n" + "".join(f"{row},t{row % 3}\n" for row in range(90)))
    page.get_by_label("Type of town").select_option("int64")
    page.get_by_role("button", name="Make the changed table").click()
    expect(page.get_by_role("alert")).to_contain_text("Type, “town”: field 'town', row 0")
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_text("Report, candidates").click()
    page.get_by_label("Deadline in seconds").fill("-3")
    page.get_by_label("Rate").fill("7")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("Deadline in seconds: input should be greater than 0")
    expect(page.get_by_role("alert")).to_contain_text("Rate: input should be less")
    expect(page.get_by_role("alert")).not_to_contain_text("/")
    page.get_by_label("Deadline in seconds").fill("")
    page.get_by_label("Rate").fill("")
    for each in page.get_by_role("group", name="Swap fields", exact=True).get_by_role("checkbox").all():
        each.uncheck()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "by name in “Swap fields” or by position in “Swap field ind"
    )


def test_a_service_that_does_not_answer_is_named_while_a_job_runs(opened: Console) -> None:
    """The page goes on by itself when the service is back."""
    page = opened.page
    table = opened.upload("numbers.csv", numbers(["age", "income"]))
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    job = page.url.rpartition("/")[2]

    def running(route: Route) -> None:
        progress = {"fraction": 0.999, "stage": "exchanging"}
        route.fulfill(json={**route.fetch().json(), "state": "running", "progress": progress})

    page.route(f"**/v1/jobs/{job}", running, times=1)
    page.route("**/events", lambda route: route.abort())
    opened.open("jobs")
    opened.open(f"jobs/{job}")
    page.get_by_text("The service does not answer.").wait_for()
    page.get_by_text("exchanging · 99 %").wait_for()
    page.unroute("**/events")
    opened.ended()


def test_another_key_shows_again_what_was_refused(opened: Console) -> None:
    page = opened.page
    page.route("**/v1/jobs?*", refused, times=1)
    opened.open("jobs/find/state%3Dcancelled")
    page.get_by_role("heading", name="This cannot be shown").wait_for()
    page.route("**/v1/jobs?*", lambda route: route.fulfill(json={"jobs": [], "next_page_token": None}))
    key = page.evaluate("sessionStorage.getItem('rowveil.key')")
    page.get_by_role("button", name="Access key").click()
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")
    page.get_by_text("No job is in the state “cancelled”.").wait_for()


def test_paper_has_the_words_that_explain_themselves(opened: Console) -> None:
    page = opened.page
    table = opened.upload("numbers.csv", numbers(["age", "income"]))
    opened.open(f"tables/{table}/DDSWAP")
    page.emulate_media(media="print")
    shown = "all => all.map(one => getComputedStyle(one).display)"
    terms = page.locator("main button.term").evaluate_all(shown)
    assert terms
    assert "none" not in terms
    assert set(page.locator("main .actions button").evaluate_all(shown)) == {"none"}


LISTEN = """() => {
  const report = document.querySelector("iframe.report").contentWindow;
  report.addEventListener("beforeprint", () => { window.printed = true; });
}"""


def test_a_printed_result_has_no_controls_and_no_frame(opened: Console) -> None:
    """The frame of the report would be cut anywhere, so that it is printed by itself."""
    page = opened.page
    table = opened.upload("numbers.csv", numbers(["age", "income"]))
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    page.get_by_label("Only rows with a change").wait_for()
    opened.evaluate(LISTEN)
    page.get_by_role("button", name="Print the report").click()
    page.wait_for_function("() => window.printed")
    page.emulate_media(media="print")
    controls = page.locator("main :is(button:not(.term), select, input, textarea, iframe.report)")
    assert [each for each in controls.all() if each.is_visible()] == []
    expect(page.get_by_text("The report is printed by itself")).to_be_visible()


HEIGHTS = """() => {
  const frame = document.querySelector("iframe.pictures");
  const { body } = frame.contentDocument;
  return [frame.clientWidth, frame.clientHeight, body.offsetHeight, body.querySelectorAll("figure").length];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_are_printed_whole_and_on_white(
    browser: Browser, client: httpx.Client, scheme: Literal["light", "dark"]
) -> None:
    """A wide table stays within the paper."""
    with console(browser, client, scheme=scheme) as tab:
        page = tab.page
        table = tab.upload("numbers.csv", numbers(["age", "income", "x" * 150]))
        tab.open(f"tables/{table}/DSWAP")
        page.get_by_role("button", name="Run", exact=True).click()
        tab.ended()
        page.get_by_label("Only rows with a change").wait_for()
        page.frame_locator("iframe.pictures").locator("figure").first.wait_for()
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})  # of A4 with the browser's margins
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("iframe.pictures").is_visible()
        width, height, whole, pictures = page.evaluate(HEIGHTS)
        assert (width, height, pictures > 0) == (672, whole, True)
        assert page.evaluate(NOT_NEXT_TO_THE_PAGE)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(HEIGHTS)[0] > width
