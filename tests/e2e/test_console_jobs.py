"""Jobs in the console: verdict first, names of files, drafts, points to click, two jobs, deletion."""

import json
import re
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, Console, console

pytestmark = pytest.mark.browser

ROWS = [f"{20 + row * 7 % 50},t{row % 7},{1000 + row * 37 % 811}" for row in range(240)]
PEOPLE = "\n".join(["age,town,income", *ROWS, ""])
MEASURES = {"key_fields": ["age", "town"], "sensitive_fields": ["income"]}


@pytest.fixture(scope="module")
def jobs(client: httpx.Client) -> dict[str, str]:
    """Two runs that differ in their rate, and a comparison of three rates, all of one table."""
    buffer = client.post("/v1/buffers", content=PEOPLE, headers={"content-type": "text/csv"})
    source = {"buffer": buffer.raise_for_status().json()["id"]}
    made = {}
    for rate in (0.1, 1.0):
        call: dict[str, Any] = {
            "source": source,
            "parameters": {"swap_fields": ["income"], "rate": rate},
            "report": "full",
            "measures": MEASURES,
        }
        made[str(rate)] = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()["id"]
    blocks = {"swap_fields": ["income"], "control_field": "age", "block_size": 5, "rate": 0.5}
    services = [
        {"service": "DSWAP", "parameters": {"swap_fields": ["income"]}, "vary": {"rate": [0.1, 0.5, 1.0]}},
        {"service": "DDSWAP", "parameters": {**blocks, "mechanism": "permutation"}},
    ]
    body = {"source": source, "services": services, "measures": MEASURES}
    made["frontier"] = client.post("/v1/frontier", json=body).raise_for_status().json()["id"]
    return made


def test_a_job_begins_with_its_verdict_and_pictures(opened: Console, jobs: dict[str, str]) -> None:
    """The digests stand below, for the record; the file has the names of table and service."""
    page = opened.page
    opened.upload("adult.csv", PEOPLE)
    opened.open(f"jobs/{jobs['0.1']}")
    headline = page.get_by_role("region", name="In three sentences")
    expect(headline).to_contain_text("High risk: an intruder who knows 'age' and 'town' finds")
    expect(headline).to_have_class("headline alarm")
    swapped = page.locator(".facts div").filter(has=page.get_by_text("Swap fields", exact=True)).locator("dd")
    expect(swapped).to_have_text("income")  # a list reads as its names, not as JSON
    pictures = page.frame_locator("iframe.pictures")
    pictures.get_by_role("heading", name="income").wait_for()
    assert pictures.locator("figure").count() == 3
    places = [
        page.locator(place).first.bounding_box()
        for place in (
            ".outcome",
            ".headline",
            "iframe.pictures",
            "#files",
            "#record",
            "iframe.report:not(.pictures)",
        )
    ]
    tops = [place["y"] for place in places if place]
    assert len(tops) == len(places)
    assert tops == sorted(tops)
    with page.expect_download() as download:
        page.get_by_role("button", name="Result as CSV").click()
    assert download.value.suggested_filename == "adult-DSWAP.csv"


def test_another_tab_finds_the_table_of_a_job(opened: Console, client: httpx.Client) -> None:
    """It has the rows before and after, and the form with the job's parameters."""
    page = opened.page
    rows = PEOPLE.replace("Dublin", "Cork")
    buffer = client.post("/v1/buffers", content=rows, headers={"content-type": "text/csv"}).json()["id"]
    call = {"source": {"buffer": buffer}, "parameters": {"swap_fields": ["income"], "rate": 0.25}}
    job = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()["id"]
    opened.open(f"jobs/{job}")
    page.get_by_label("Only rows with a change").wait_for()
    page.get_by_text("Parameters", exact=True).click()
    page.get_by_role("button", name="Change them and run again").click()
    expect(page.get_by_label("Rate")).to_have_value("0.25")
    assert f"tables/{buffer}/DSWAP" in page.url
    client.delete(f"/v1/buffers/{buffer}").raise_for_status()


def test_a_rerun_without_its_source_leads_to_the_upload(opened: Console, client: httpx.Client) -> None:
    page = opened.page
    rows = [{"income": row * 7, "town": "Bray"} for row in range(30)]
    call = {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}}
    job = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()["id"]
    opened.open(f"jobs/{job}")
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("alert").get_by_role("link", name="Upload the job's table again").click()
    table = opened.upload_here(
        "bray.csv", "income,town\n" + "".join(f"{row * 7},Bray\n" for row in range(30))
    )
    opened.open(f"jobs/{job}")
    expect(page.get_by_label("On", exact=True)).to_have_value(table)
    page.get_by_role("button", name="Run again").click()
    page.get_by_text("Reproduced: the very bytes").wait_for()


def test_a_failed_job_shows_its_parameters_and_the_way_on(opened: Console, client: httpx.Client) -> None:
    """Without its table in this tab, the way leads over the tables; jobs of the same table come first."""
    page = opened.page
    rows = [{"age": row, "town": "x", "income": row} for row in range(30)]
    parameters = {"swap_fields": ["income"], "control_field": "age", "suppression": {"policy": "fail"}}
    failed = client.post("/v1/services/CDSWAP", json={"source": {"rows": rows}, "parameters": parameters})
    same = client.post(
        "/v1/services/DSWAP", json={"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}}
    )
    other = client.post(
        "/v1/services/DSWAP", json={"source": {"rows": rows[1:]}, "parameters": {"swap_fields": ["income"]}}
    )
    assert {answer.raise_for_status().json()["state"] for answer in (same, other)} == {"succeeded"}
    opened.open(f"jobs/{failed.json()['id']}")
    expect(page.get_by_text("Control field", exact=True)).to_be_visible()
    choices = page.get_by_label("Put next to").get_by_role("option")
    expect(choices.first).to_have_attribute("value", same.json()["id"])
    expect(choices.filter(has_text="(of another table)").first).to_have_attribute("value", other.json()["id"])
    client.post("/v1/buffers", content=PEOPLE, headers={"content-type": "text/csv"}).raise_for_status()
    page.get_by_role("link", name="Open the job's table").click()
    page.get_by_role("search", name="Tables").get_by_role("button", name="Find").click()
    page.locator(".cards a").first.wait_for()


def test_two_jobs_are_shown_next_to_each_other(opened: Console, jobs: dict[str, str]) -> None:
    """Both verdicts, the parameter that differs, and the measures that both have."""
    page = opened.page
    opened.open(f"jobs/{jobs['0.1']}")
    page.get_by_label("Put next to").select_option(jobs["1.0"])
    page.get_by_role("button", name="Show both").click()
    page.get_by_role("heading", name="Two jobs next to each other").wait_for()
    expect(page.get_by_role("region", name="In three sentences")).to_have_count(2)
    rows = page.get_by_role("table", name="Parameters", exact=True).locator("tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [["Rate", "0.1", "1"]]
    linkage = page.get_by_role("table", name="Measures").locator("tr", has_text="Record linkage: rate")
    expect(linkage).to_have_count(1)
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert not [(each["id"], each["nodes"][0]["html"]) for each in found.response["violations"]]


def test_a_point_of_the_frontier_is_run_or_refined(
    opened: Console, client: httpx.Client, jobs: dict[str, str]
) -> None:
    page = opened.page
    opened.upload("adult.csv", PEOPLE)
    opened.open(f"jobs/{jobs['frontier']}")
    page.get_by_role("button", name="2: DSWAP").click()
    expect(page.locator(".picked")).to_contain_text("Rate: 0.5")
    page.get_by_role("button", name="Run point 2").click()
    expect(page.get_by_label("Rate")).to_have_value("0.5")
    page.go_back()
    page.get_by_role("button", name="2: DSWAP").click()
    page.get_by_role("button", name="Refine around point 2").click()
    expect(page.get_by_label("Values, one a line")).to_have_value("0.3\n0.5\n0.75")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    points = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}/report").json()["frontier"]["points"]
    assert [point["parameters"]["rate"] for point in points] == [0.3, 0.5, 0.75]


def test_intervals_are_visible_with_forced_colours(opened: Console, jobs: dict[str, str]) -> None:
    """The browser gives each background the colour of the page then."""
    opened.page.emulate_media(forced_colors="active")
    opened.open(f"jobs/{jobs['frontier']}")
    colour = "one => getComputedStyle(one).backgroundColor"
    page_colour = opened.page.locator("body").evaluate(colour)
    assert opened.page.locator(".interval").first.evaluate(colour) != page_colour


def test_a_download_that_is_cut_off_is_named(opened: Console, jobs: dict[str, str]) -> None:
    """The words of the browser for it, "Failed to fetch", say neither what is wrong nor what to do."""
    opened.open(f"jobs/{jobs['0.1']}")
    opened.evaluate("""() => {
      const broken = () => new ReadableStream({ pull: (stream) => stream.error(new TypeError("Failed")) });
      window.fetch = async () => new Response(broken());
    }""")
    opened.page.get_by_role("button", name="Result as CSV").click()
    expect(opened.page.get_by_role("alert")).to_contain_text("whole answer had arrived; try again")


def test_a_point_of_the_permutation_mechanism_states_its_epsilon(
    opened: Console, jobs: dict[str, str]
) -> None:
    """The table states it, and so does the picked point."""
    page = opened.page
    opened.open(f"jobs/{jobs['frontier']}")
    stated = re.compile(r"Epsilon 3\.\d+ at rate 0\.5")
    rows = page.get_by_role("table", name="All combinations").locator("tr")
    expect(rows.filter(has_text=stated)).to_have_count(1)
    expect(rows.filter(has_text=stated)).to_contain_text("DDSWAP")
    page.get_by_role("button", name="4: DDSWAP").click()
    expect(page.locator(".picked")).to_contain_text(stated)


def test_a_draft_survives_back_and_reload(opened: Console) -> None:
    """Also a suggestion that was unticked; the seed, a secret, is not kept."""
    page = opened.page
    table = opened.upload("adult.csv", PEOPLE)
    opened.open(f"tables/{table}/DSWAP")
    income = page.get_by_role("group", name="Swap fields", exact=True).get_by_role("checkbox", name="income")
    town = page.get_by_role("group", name="Swap fields", exact=True).get_by_role("checkbox", name="town")
    expect(income).to_be_checked()
    income.uncheck()
    town.check()
    page.get_by_label("Rate").fill("0.25")
    page.get_by_text("Report, candidates").click()
    page.get_by_role("radio", name="summary").check()
    page.get_by_label("Seed", exact=True).fill("8f1c7a0b52e94d63")
    page.reload()
    opened.shown()
    for _ in range(2):
        expect(income).not_to_be_checked()
        expect(town).to_be_checked()
        expect(page.get_by_label("Rate")).to_have_value("0.25")
        page.get_by_text("Report, candidates").click()
        expect(page.get_by_role("radio", name="summary")).to_be_checked()
        expect(page.get_by_label("Seed", exact=True)).to_have_value("")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_role("heading", name="Jobs").wait_for()
        page.go_back()
        opened.shown()
    assert "8f1c7a0b52e94d63" not in json.dumps(page.evaluate("Object.values(sessionStorage)"))


def test_deleting_a_job_asks(opened: Console, client: httpx.Client) -> None:
    page = opened.page
    rows = [{"age": row % 30, "income": row} for row in range(60)]
    call = {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}}
    job = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()["id"]
    opened.open(f"jobs/{job}")
    opened.open_everything()
    page.get_by_role("button", name="Delete this job").click()
    expect(page.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert client.get(f"/v1/jobs/{job}").status_code == 200
    page.get_by_role("button", name="Delete this job").click()
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_role("heading", name="Jobs").wait_for()
    assert client.get(f"/v1/jobs/{job}").status_code == 404


def test_jobs_fit_a_phone(browser: Browser, client: httpx.Client, jobs: dict[str, str]) -> None:
    with console(browser, client, width=390) as tab:
        for view in (
            f"jobs/{jobs['1.0']}",
            f"jobs/{jobs['frontier']}",
            f"jobs/{jobs['0.1']}/pair/{jobs['1.0']}",
        ):
            tab.open(view)
            tab.page.get_by_role("region", name="In three sentences").first.wait_for()
            assert (view, tab.page.evaluate(NOT_NEXT_TO_THE_PAGE)) == (view, True)


def test_a_suggestion_that_was_taken_back_stays_away(opened: Console) -> None:
    """After a reload, and when the parameters of a run that lacked it are changed; also for an attack."""
    page = opened.page
    rows = [f"{row // 3},t{row % 7},{1000 + row * 37 % 811}" for row in range(240)]
    table = opened.upload("households.csv", "\n".join(["hid,town,income", *rows, ""]))
    opened.open(f"tables/{table}/DSWAP")
    household = page.get_by_label("Household", exact=True)
    expect(household).to_have_value("0")
    household.select_option("none")
    page.reload()
    opened.shown()
    expect(household).to_have_value("")
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    page.get_by_text("Parameters", exact=True).click()
    page.get_by_role("button", name="Change them and run again").click()
    page.get_by_text("Filled in with the parameters that you chose").wait_for()
    expect(household).to_have_value("")
    page.go_back()
    opened.ended()
    page.get_by_role("link", name="Attack this release").click()
    group = page.get_by_role("group", name="Identifiers", exact=True)
    identifiers = group.get_by_role("checkbox", name="hid")
    expect(identifiers).to_be_checked()
    identifiers.uncheck()
    page.reload()
    opened.shown()
    expect(identifiers).not_to_be_checked()
