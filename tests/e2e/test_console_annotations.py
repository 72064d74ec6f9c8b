"""Names, labels and notes in the console; drafts of the forms to compare and to attack."""

import json
import os
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, Console, console

pytestmark = pytest.mark.browser

PEOPLE = "\n".join(
    ["age,town,income", *(f"{20 + row % 50},t{row % 7},{1000 + row}" for row in range(90)), ""]
)
NOTES = "First line\n<b>second</b> line"


def _job(client: httpx.Client, **more: str) -> str:
    rows = [{"age": row % 30, "income": row} for row in range(60)]
    call = {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}, **more}
    job: str = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()["id"]
    return job


def _change(opened: Console, **texts: str) -> None:
    """Fill in the form of the page, and save it."""
    page = opened.page
    if not page.get_by_role("form", name="Name, label and notes").is_visible():
        page.get_by_text("Name, label and notes", exact=True).click()
    form = page.get_by_role("form", name="Name, label and notes")
    for label, text in texts.items():
        form.get_by_label(label, exact=True).fill(text)
    form.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()


def _accessible(opened: Console) -> None:
    found = Axe().run(opened.page, options={"resultTypes": ["violations"]})
    assert not [(each["id"], each["nodes"][0]["html"]) for each in found.response["violations"]]
    assert opened.page.evaluate(NOT_NEXT_TO_THE_PAGE)


def test_a_job_is_named_and_found(opened: Console, client: httpx.Client) -> None:
    """The heading has the name; label and notes are text, never markup; the label leads to its jobs."""
    page, label = opened.page, f"wave {os.urandom(6).hex()} & more"
    job, other = _job(client), _job(client, label=label)
    opened.open(f"jobs/{job}")
    _change(opened, Name="Second wave", Label=label, Notes=NOTES)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Second wave")
    expect(page.locator(".notes")).to_contain_text("<b>second</b> line")
    _accessible(opened)
    stored = client.get(f"/v1/jobs/{job}").json()
    assert (stored["name"], stored["label"], stored["notes"]) == ("Second wave", label, NOTES)

    page.get_by_role("link", name=label).click()
    expect(page.get_by_label("Label is")).to_have_value(label)
    rows = page.get_by_role("table", name="Newest first").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Name contains").fill("SECOND")
    page.get_by_role("button", name="Find").click()
    expect(rows).to_have_count(1)
    expect(rows.get_by_role("link", name="Second wave")).to_have_attribute("href", f"#/jobs/{job}")
    _accessible(opened)
    page.get_by_role("navigation", name="States").get_by_role("link", name="failed").click()
    page.get_by_text("No job has that name and label.").wait_for()
    page.reload()
    page.get_by_text("No job has that name and label.").wait_for()

    opened.open(f"jobs/{other}")
    _change(opened, Label="")
    assert "label" not in client.get(f"/v1/jobs/{other}").json()


def test_a_text_that_is_refused_stays_in_its_input(opened: Console, client: httpx.Client) -> None:
    page = opened.page
    opened.open(f"jobs/{_job(client)}")
    page.get_by_text("Name, label and notes", exact=True).click()
    form = page.get_by_role("form", name="Name, label and notes")
    form.get_by_label("Notes", exact=True).fill("a\u0007b")
    form.get_by_role("button", name="Save").click()
    form.get_by_text("the text has control characters").wait_for()
    expect(form.get_by_label("Notes", exact=True)).to_have_attribute("aria-invalid", "true")


def test_a_table_has_the_name_of_its_file_until_it_is_renamed(opened: Console, client: httpx.Client) -> None:
    """Also in another tab, which only knows its id; the address of the upload does not have the name."""
    page, label = opened.page, f"wave-{os.urandom(6).hex()}"
    table = opened.upload("ada's people.csv", PEOPLE)
    assert client.get(f"/v1/buffers/{table}").json()["name"] == "ada's people.csv"
    assert [url for url in opened.asked if "people" in url] == []
    _change(opened, Name="People of May", Label=label)
    expect(page.get_by_role("heading", level=1)).to_have_text("People of May")
    _accessible(opened)
    page.evaluate("sessionStorage.removeItem('rowveil.tables')")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("People of May")
    opened.open()
    page.get_by_role("link", name="People of May").wait_for()
    page.evaluate("sessionStorage.removeItem('rowveil.tables')")
    page.reload()
    page.get_by_text("None in this tab.").wait_for()
    page.get_by_label("Name contains").fill("of may")
    page.get_by_label("Label is").fill(label)
    page.get_by_role("button", name="Find").click()
    page.get_by_text("1 table", exact=True).wait_for()
    _accessible(opened)
    page.get_by_role("link", name="People of May").click()
    assert opened.table() == table


def test_a_run_takes_texts_with_the_call(opened: Console, client: httpx.Client) -> None:
    page = opened.page
    table = opened.upload("adult.csv", PEOPLE)
    opened.open(f"tables/{table}/DSWAP")
    page.get_by_text("Report, candidates").click()
    for label, text in {"Name": "First run", "Label": "wave-1", "Notes": NOTES}.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name="Run", exact=True).click()
    opened.ended()
    job = client.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()
    assert (job["name"], job["label"], job["notes"]) == ("First run", "wave-1", NOTES)


def _kept(opened: Console) -> str:
    kept: str = json.dumps(opened.page.evaluate("Object.values(sessionStorage)"))
    return kept


def test_the_draft_of_a_comparison_survives_back_and_reload(opened: Console) -> None:
    """Ticked services with their parameters and variations, and the options; the seed is not kept."""
    page = opened.page
    table = opened.upload("adult.csv", PEOPLE)
    opened.open(f"tables/{table}/compare")
    boxes = page.locator(".choice")
    dswap = boxes.filter(has=page.locator(".identifier", has_text="CDSWAP"))
    dswap.get_by_role("checkbox").first.check()
    dswap.get_by_role("group", name="Swap fields", exact=True).get_by_role("checkbox", name="age").check()
    dswap.get_by_role("group", name="Swap fields", exact=True).get_by_role(
        "checkbox", name="income"
    ).uncheck()
    dswap.get_by_role("button", name="Add a parameter").click()
    dswap.locator(".pair select").select_option("rate")
    dswap.get_by_label("Values, one a line").fill("0.3\n0.7")
    page.get_by_text("How risk and utility are measured").click()
    page.get_by_label("Name", exact=True).fill("Which rate?")
    page.get_by_label("Seed", exact=True).fill("8f1c7a0b52e94d63")
    page.reload()
    opened.shown()
    for _ in range(2):
        fields = dswap.get_by_role("group", name="Swap fields", exact=True)
        expect(fields.get_by_role("checkbox", name="age")).to_be_checked()
        expect(fields.get_by_role("checkbox", name="income")).not_to_be_checked()
        expect(dswap.get_by_label("Values, one a line")).to_have_value("0.3\n0.7")
        expect(boxes.locator(".variation:visible")).to_have_count(1)
        page.get_by_text("How risk and utility are measured").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("Which rate?")
        expect(page.get_by_label("Seed", exact=True)).to_have_value("")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_role("heading", name="Jobs").wait_for()
        page.go_back()
        opened.shown()
    assert "8f1c7a0b52e94d63" not in _kept(opened)


def test_the_draft_of_an_attack_survives_back_and_reload(opened: Console, client: httpx.Client) -> None:
    """Also the control rows; another job has a draft of its own."""
    page = opened.page
    first, second = _job(client), _job(client)
    control = opened.upload("control.csv", PEOPLE)
    opened.open(f"jobs/{first}/attack")
    known = page.get_by_role("group", name="Known", exact=True)
    known.get_by_role("checkbox", name="age").check()
    page.get_by_label("Control rows").select_option(control)
    page.get_by_label("Label", exact=True).fill("attacks of May")
    page.get_by_label("Seed", exact=True).fill("8f1c7a0b52e94d63")
    page.reload()
    opened.shown()
    for _ in range(2):
        expect(known.get_by_role("checkbox", name="age")).to_be_checked()
        expect(page.get_by_label("Control rows")).to_have_value(control)
        expect(page.get_by_label("Label", exact=True)).to_have_value("attacks of May")
        expect(page.get_by_label("Seed", exact=True)).to_have_value("")
        opened.open(f"jobs/{second}/attack")
        expect(page.get_by_label("Label", exact=True)).to_have_value("")
        page.go_back()
        opened.shown()
    assert "8f1c7a0b52e94d63" not in _kept(opened)


def test_texts_fit_a_phone(browser: Browser, client: httpx.Client) -> None:
    """A name without spaces of the greatest length, too."""
    texts: dict[str, Any] = {"name": "n" * 120, "label": "l" * 120, "notes": "o" * 2000}
    job = _job(client, **texts)
    with console(browser, client, width=390) as tab:
        for view in (f"jobs/{job}", "jobs", f"jobs/find/label%3D{'l' * 120}"):
            tab.open(view)
            tab.page.get_by_text("n" * 120).first.wait_for()
            assert (view, tab.page.evaluate(NOT_NEXT_TO_THE_PAGE)) == (view, True)
