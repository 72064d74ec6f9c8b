"""Console from a table to its release, as a curator uses it, in a real browser."""

import re
from pathlib import Path
from typing import Literal

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FilePayload, Route, expect

from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, Console, console

pytestmark = pytest.mark.browser

HOSTILE = [
    "<script>alert(1)</script>",
    'o\'clock "time"',
    " two  spaces ",
    "🧑‍🔬 wage/€",
    "\u202eeman",
    "a,b",
]
SHOWN = [*HOSTILE[:4], "\\u{202e}eman", "a,b"]
VIEWS = (
    "",
    "tables/{table}",
    "tables/{table}/CDSWAP",
    "tables/{table}/compare",
    "jobs",
    "jobs/{job}/attack",
    "jobs/{job}",
)


def made_up(tab: Console) -> str:
    """Create the console's sample table; return its buffer's id."""
    tab.open()
    tab.page.get_by_role("button", name="Try with made-up people").click()
    return tab.table()


def hostile_csv() -> str:
    """Return forty rows with the hostile names."""
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in HOSTILE)
    rows = [f"{row % 4},t{row % 3},x{row % 5},{1000 + 7 * row},<b>{row % 2}</b>,{row}" for row in range(40)]
    return "\n".join([quoted, *rows, ""])


def test_a_table_is_protected_by_keyboard_alone(opened: Console, tmp_path: Path) -> None:
    """Sample, fields, service, preview, run, report, file and rerun without a mouse or a lost focus."""
    page = opened.page
    opened.tab_to("Try with made-up people")
    page.keyboard.press("Enter")
    opened.table()
    expect(page.locator("h1")).to_be_focused()
    opened.tab_to("Class-based data swapping")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Parameters").wait_for()
    opened.tab_to("Report, candidates")
    page.keyboard.press("Enter")
    opened.tab_to("full")  # is selected by default, for its pictures
    page.keyboard.press("ArrowUp")
    opened.tab_to("Preview")
    page.keyboard.press("Enter")
    plan = page.get_by_role("region", name="Preview")
    expect(plan).to_be_focused()
    expect(plan).to_contain_text("1 row in 1 group cannot be swapped")  # the inhabitant of Athens
    opened.tab_to("Run", backwards=True)
    page.keyboard.press("Enter")
    opened.ended()
    expect(page.frame_locator("iframe.report").locator("h1")).to_contain_text("Class-based data swapping")
    opened.tab_to("Result as CSV")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == "age,sex,town,education,occupation,hours_per_week,income,savings"
    assert len(lines) == 1001
    opened.tab_to("Run again")
    page.keyboard.press("Enter")
    page.get_by_text("Reproduced: the very bytes").wait_for()


def test_a_preview_names_what_the_service_decides(opened: Console) -> None:
    """A service without swap partners has none in its preview."""
    table = opened.upload(
        "sums.csv", "sum,first,second\n" + "".join(f"{3 * n},{n},{2 * n}\n" for n in range(40))
    )
    page = opened.page
    for service, sentence in (
        ("DSWAP", "Every row with values has a swap partner"),
        ("RWN", "fit each other"),
    ):
        opened.open(f"tables/{table}/{service}")
        for name in ("Swap fields", "Distance fields", "Perturb fields"):
            for box in page.get_by_role("group", name=name, exact=True).get_by_role("checkbox").all():
                box.check()
        page.get_by_role("button", name="Preview").click()
        plan = page.get_by_role("region", name="Preview")
        plan.get_by_text(sentence).wait_for()
        assert ("swap partner" in plan.inner_text()) == (service == "DSWAP")


def test_a_csv_has_no_formulas_unless_they_are_wanted(opened: Console) -> None:
    page = opened.page
    table = opened.upload("formulas.csv", "name,balance\n=1+1,5\n=1+1,6\n")
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("group", name="Swap fields", exact=True).get_by_role("checkbox").last.check()
    page.get_by_role("button", name="Run").click()
    opened.ended()
    for wanted, first in ((False, "'=1+1"), (True, "=1+1")):
        if wanted:
            page.get_by_role("checkbox", name="apostrophe").uncheck()
        with page.expect_download() as download:
            page.get_by_role("button", name="Result as CSV").click()
        assert Path(download.value.path()).read_text().splitlines()[1].split(",")[0] == first


def test_names_are_text_wherever_they_stand(opened: Console, client: httpx.Client) -> None:
    """Markup, quotes, spaces, an emoji and reversed direction: from the upload to the report and back."""
    page = opened.page
    table = opened.upload("<img src=x onerror=alert(2)>.csv", hostile_csv())
    assert page.locator("ul.fields label").all_inner_texts() == SHOWN
    opened.open(f"tables/{table}/DSWAP")
    swap = page.get_by_role("group", name="Swap fields", exact=True)
    for box in swap.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Run").click()
    opened.ended()
    job = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()
    assert sorted(job["parameters"]["swap_fields"]) == sorted(HOSTILE)
    expect(page.frame_locator("iframe.report").locator("body")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("img[src=x], main script").count() == 0


@pytest.fixture(scope="module")
def places(client: httpx.Client) -> list[str]:
    """Routes of all views, with a table, and a job with two candidates and a report."""
    rows = "".join(f"{20 + row % 50},t{row % 5},{1000 + 37 * row % 811}\n" for row in range(200))
    content = f"age,town,income\n{rows}9,alone,1\n"
    buffer = client.post("/v1/buffers", content=content, headers={"content-type": "text/csv"})
    table = buffer.raise_for_status().json()["id"]
    call = {
        "source": {"buffer": table},
        "parameters": {"swap_fields": ["income"], "control_field": "town"},
        "candidates": 2,
        "report": "full",
    }
    job = client.post("/v1/services/CDSWAP", json=call).raise_for_status().json()
    assert job["outcome"] == "SUCCESS_WITH_INFO"
    return [view.format(table=table, job=job["id"]) for view in VIEWS]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_every_view_is_legible(
    browser: Browser, client: httpx.Client, places: list[str], scheme: Literal["light", "dark"], width: int
) -> None:
    """Axe finds nothing with everything opened; at 390 pixels nothing overflows the page."""
    with console(browser, client, scheme=scheme, width=width) as tab:
        for view in places:
            tab.open(view)
            if view.endswith("compare"):
                tab.page.get_by_role("checkbox", name="Multivariate equi-width swapping").check()
                tab.page.get_by_role("button", name="Add a parameter").click()
            if view.endswith("CDSWAP"):
                tab.page.get_by_role("button", name="Preview").click()
                tab.page.get_by_role("region", name="Preview").wait_for()
            if view == places[-1]:
                tab.page.frame_locator("iframe.report").locator("h1").wait_for()
            if view == "jobs":
                tab.page.get_by_role("button", name="key").click()
            tab.open_everything()
            found = Axe().run(tab.page, options={"resultTypes": ["violations"]})
            faults = [(each["id"], each["nodes"][0]["html"]) for each in found.response["violations"]]
            assert (view, faults) == (view, [])
            assert (view, tab.page.evaluate(NOT_NEXT_TO_THE_PAGE)) == (view, True)


CONTROLS = """() => {
  const kinds = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const left = new Set([...document.querySelectorAll(kinds)].filter((one) =>
    one.checkVisibility() && !one.disabled && (one.type !== "radio" || one.checked)));
  document.addEventListener("focusin", ({ target }) => left.delete(target));
  window.left = () => [...left].map((one) => one.outerHTML);
  document.activeElement?.blur();
  return left.size;
}"""


def test_every_control_is_reached_by_keyboard(
    browser: Browser, client: httpx.Client, places: list[str]
) -> None:
    """Tab leads to each control of each view, with everything opened."""
    with console(browser, client) as tab:
        for view in places:
            tab.open(view)
            if view.endswith("compare"):
                tab.page.get_by_role("checkbox", name="Multivariate equi-width swapping").check()
            if view == places[-1]:
                tab.page.frame_locator("iframe.report").locator("h1").wait_for()
            tab.open_everything()
            controls = tab.evaluate(CONTROLS)
            assert controls > 5, view
            for pressed in range(2 * controls + 400):  # a report in its frame has controls too
                if pressed % 20 == 0 and not tab.evaluate("left()"):
                    break
                tab.page.keyboard.press("Tab")
            assert (view, tab.evaluate("left()")) == (view, [])


def test_what_is_refused_is_reported_at_its_place(opened: Console) -> None:
    """The control of the error has the focus and the message, also inside a collapsed section."""
    page = opened.page
    table = made_up(opened)
    opened.open(f"tables/{table}/CDSWAP")
    rate = page.get_by_label("Rate")
    rate.fill("3")
    page.get_by_role("button", name="Preview").click()
    expect(rate).to_be_focused()
    expect(rate).to_have_attribute("aria-invalid", "true")
    description = "Share of the rows that take part in the exchange. [over 0, up to 1]"
    expect(rate).to_have_accessible_description(f"{description} input should be less than or equal to 1")
    rate.fill("0.5")
    page.get_by_text("More, with defaults").click()
    indices = page.get_by_label("Swap field indices")
    indices.fill("99")
    page.get_by_text("More, with defaults").click()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("“Swap field indices”")
    expect(rate).not_to_have_attribute("aria-invalid", "true")


def test_fields_that_name_a_person_are_warned_of_until_they_are_said_not_to(opened: Console) -> None:
    """Only the user can remove them from a release."""
    page = opened.page
    rows = "\n".join(f"P{row},Ada,{row * 7919 % 10007}" for row in range(50))
    opened.upload("named.csv", f"patient id,family name,income\n{rows}\n")
    warning = page.locator(".warning")
    expect(warning).to_contain_text("no service leaves them out: patient id, family name.")
    page.get_by_label("family name", exact=True).select_option("known")
    expect(warning).to_contain_text("no service leaves it out: patient id.")
    page.get_by_label("patient id", exact=True).select_option("other")
    expect(warning).to_have_count(0)


def test_roles_are_given_to_the_measures(opened: Console, client: httpx.Client) -> None:
    """Identifying fields and a weight are not measured, and the report says so."""
    page = opened.page
    rows = [
        f"{row},{row % 7},{20 + row * 7 % 50},{1000 + row * 37 % 811},t{row % 4},{1 + row % 9}"
        for row in range(200)
    ]
    head = "customerId,called,age,income,town,sampling_weight"
    table = opened.upload("roles.csv", "\n".join([head, *rows, ""]))
    page.get_by_label("called", exact=True).select_option("identifier")
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    path = f"/v1/jobs/{page.url.rpartition('/')[2]}"
    measures = client.get(path).json()["options"]["measures"]
    assert measures["identifier_fields"] == ["customerId", "called"]
    assert measures["weight_fields"] == ["sampling_weight"]
    assert measures["domain_fields"] == ["town"]
    report = client.get(f"{path}/report").json()
    assert set(report["measures"]["pscr"]["fields"]) == {"age", "income", "town"}
    assert report["left_out"]["fields.called"].startswith("it was given as an identifier")
    totals = report["measures"]["domain_totals"]["value"]["totals"]
    assert {row["domain"] for row in totals} == {f"t{number}" for number in range(4)}


def test_a_release_is_attacked_after_its_run(opened: Console, client: httpx.Client) -> None:
    """The roles are the known and secret fields; the verdict comes first, and the page has its bars."""
    page = opened.page
    rows = [f"{20 + row * 7 % 50},t{row % 7},{row * 13 % 40},{1000 + row * 37 % 811}" for row in range(240)]
    table = opened.upload("people.csv", "\n".join(["age,town,household_size,income", *rows, ""]))
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    run = page.url.rpartition("/")[2]
    page.get_by_role("link", name="Attack this release").click()
    page.get_by_label("Attacks", exact=True).fill("60")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Preview")).to_contain_text("a sister release")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    job = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()
    assert job["parameters"]["job"] == run
    assert job["parameters"]["known"] == ["age", "town", "household_size"]
    assert job["parameters"]["secret"] == ["income"]
    expect(page.get_by_role("region", name="Verdict on attacks")).to_contain_text("Risk: ")
    report = page.frame_locator("iframe.report")
    report.get_by_role("heading", name="Verdict on attacks").wait_for()
    report.get_by_role("img", name="Success of each attack").first.wait_for()
    page.get_by_role("link", name="the release of this run").click()
    page.get_by_role("link", name="Attack this release").wait_for()


def test_a_comparison_says_what_ranks_nothing(opened: Console) -> None:
    """Unswapped known fields cannot rank; with the figure named explicitly, nothing is called better."""
    page = opened.page
    table = made_up(opened)
    opened.open(f"tables/{table}/compare")
    page.get_by_role("checkbox", name="Data swapping DSWAP").first.check()
    page.get_by_role("button", name="Add a parameter").click()
    page.get_by_role("combobox", name="Parameter").select_option("locked")
    page.get_by_label("Values, one a line").fill("false\ntrue")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    report = page.get_by_role("region", name="Comparison")
    expect(report).to_contain_text("Inference of the secrets beyond a guess")
    expect(report).to_contain_text("wants to learn income")
    report.get_by_role("columnheader", name="Protects").wait_for()
    expect(report).to_contain_text("Linkability of known and sensitive fields")
    expect(report).to_contain_text("By chance alone the figure of risk is")
    opened.open(f"tables/{table}/compare")  # filled in as it was left
    expect(page.get_by_label("Values, one a line")).to_have_value("false\ntrue")
    page.get_by_text("how risk and utility are measured").click()
    page.get_by_label("Risk", exact=True).select_option("record_linkage.rate")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    page.locator(".warning", has_text="No combination is called better").wait_for()
    assert page.get_by_role("table", name="All combinations").locator("tr.marked").count() == 0


def test_nothing_to_compare_is_said_before_anything_is_asked(opened: Console) -> None:
    page = opened.page
    table = made_up(opened)
    opened.open(f"tables/{table}/compare")
    for button in ("Preview", "Run"):
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("tick the services to compare")
        expect(page.get_by_role("alert")).to_be_focused()
    assert not [url for url in opened.asked if url.endswith("/v1/frontier")]


def test_a_choice_is_taken_on(opened: Console, client: httpx.Client) -> None:
    """A combination of the frontier, or the kept candidate, becomes the draft of a run."""
    page = opened.page
    table = made_up(opened)
    opened.open(f"tables/{table}/compare")
    page.get_by_role("checkbox", name="Data swapping DSWAP").first.check()
    page.get_by_role("button", name="Add a parameter").click()
    page.get_by_role("combobox", name="Parameter").select_option("locked")
    page.get_by_label("Values, one a line").fill("false\ntrue")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Preview")).to_contain_text("2 combinations")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    combinations = page.get_by_role("table", name="All combinations")
    assert "Locked" in combinations.locator("tbody tr.marked").first.inner_text()
    locked = (
        "true" in combinations.locator("tbody tr.marked").first.locator("li", has_text="Locked").inner_text()
    )
    combinations.get_by_role("button", name="Use DSWAP").first.click()
    expect(page.get_by_label("Locked")).to_be_checked(checked=locked)
    page.get_by_text("Report, candidates").click()
    page.get_by_role("combobox", name="Candidates: kind").select_option(label="a number")
    page.get_by_role("spinbutton", name="Value").fill("2")
    page.get_by_role("button", name="Run").click()
    opened.ended()
    kept = page.get_by_role("table", name="2 candidates").locator("tr.marked")
    report = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}/report").json()
    assert kept.locator("th").inner_text() == str(report["candidates"]["chosen"] + 1)
    assert kept.locator("td").last.inner_text() == "kept"


def test_a_broken_stream_is_taken_up_again(opened: Console) -> None:
    """Progress continues to the end although its first stream broke."""
    page = opened.page
    table = made_up(opened)
    streams: list[str] = []

    def break_first(route: Route) -> None:
        streams.append(route.request.url)
        if len(streams) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/events", break_first)
    opened.open(f"tables/{table}/DSWAP")
    page.route("**/v1/jobs/*", still_queued, times=1)  # the first look may come after a fast job's end
    page.get_by_role("button", name="Run").click()
    opened.ended()
    assert len(streams) > 1


def still_queued(route: Route) -> None:
    """Respond with the job as it was a moment before."""
    job = route.fetch().json()
    route.fulfill(json={**job, "state": "queued", "progress": {"fraction": 0, "stage": "queued"}})


def test_files_are_taken_as_they_are_written(opened: Console, client: httpx.Client) -> None:
    """Semicolons are detected, null tokens respected, non-tables reported, and deleting a table asks."""
    page = opened.page
    opened.open()
    page.get_by_text("How the CSV is written").click()
    page.get_by_label("Null tokens, one a line").fill("NA\n-")
    table = opened.upload_here("survey.csv", "age;town\n31;Cork\nNA;-\n")
    fields = client.get(f"/v1/buffers/{table}").json()["fields"]
    assert fields == [{"name": "age", "type": "int64"}, {"name": "town", "type": "string"}]
    expect(page.locator("ul.fields")).to_contain_text("1 null")
    page.get_by_role("button", name="Delete this table").click()
    page.get_by_role("button", name="Keep it").click()
    assert client.get(f"/v1/buffers/{table}").status_code == 200
    page.get_by_role("button", name="Delete this table").click()
    expect(page.get_by_role("button", name="Keep it")).to_be_focused()
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_role("heading", name="Protect a table").wait_for()
    assert client.get(f"/v1/buffers/{table}").status_code == 404
    page.get_by_label(re.compile("^A file")).set_input_files(
        FilePayload(name="people.zip", mimeType="", buffer=b"PK")
    )
    expect(page.get_by_role("alert")).to_contain_text("Export the table as CSV or Parquet")


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser, client: httpx.Client) -> None:
    """A 401 opens the dialog, also after a wrong key; the correct key is sent and stored only in the tab."""
    key = client.headers["authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=client.base_url) as nobody, console(browser, nobody) as tab:
        page = tab.page
        sent: list[str | None] = []
        page.on("request", lambda request: sent.append(request.headers.get("authorization")))
        page.goto(f"{tab.address}/#/jobs")
        dialog = page.get_by_role("dialog", name="Access key")
        expect(dialog).to_contain_text("an access key: paste the one")
        page.get_by_label("Key", exact=True).fill("rv_wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("unknown to this service")
        reason = re.compile("^the key is unknown to this service.* Kept in this tab")
        expect(page.get_by_label("Key", exact=True)).to_have_accessible_description(reason)
        assert f"Bearer {key}" not in sent
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Jobs").wait_for()
        assert sent[-1] == f"Bearer {key}"
        made_up(tab)
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert page.evaluate("key => Object.values(sessionStorage).includes(key)", key)


def test_a_running_job_is_cancelled(opened: Console, client: httpx.Client) -> None:
    """The page of a running job has a button to cancel it, and shows the cancellation."""
    page = opened.page
    rows = "\n".join(f"{row * 7919 % 10007},{row * 104729 % 9973}" for row in range(60_000))
    table = opened.upload("many.csv", f"income,savings\n{rows}\n")
    opened.open(f"tables/{table}/LOCALITY")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    opened.ended("cancelled")
    assert client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()["state"] == "cancelled"


def test_files_are_served_with_their_policy(client: httpx.Client) -> None:
    """Only the service's own scripts and styles; a cached module or contract is not sent again."""
    for path, media_type in {"/": "text/html", "/console/main.js": "text/javascript"}.items():
        answer = client.get(path)
        assert answer.headers["content-type"].startswith(media_type)
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
    document = client.get("/openapi.json")  # the console loads it with each page, over slow networks, too
    assert document.headers["cache-control"] == "no-cache"
    same = {"if-none-match": document.headers["etag"]}
    assert client.get("/openapi.json", headers=same).status_code == 304
    assert "http" not in client.get("/").text.replace("http-equiv", "")
    assert client.get("/console/..%2fmain.py").status_code == 404
