"""Words of the console: no raw keys, backticks or schema names in any view; pickers, tooltips and help."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.console import Console, console

pytestmark = pytest.mark.browser

TABLE = "age,sex,town,income,savings\n" + "".join(
    f"{20 + row % 50},{'mf'[row % 2]},town {row % 4},{1000 + row * 37 % 977},{row * 53 % 4001}\n"
    for row in range(120)
)
TEXTS = """() => {
  const own = 'h1, h2, h3, h4, label, legend, option, summary, th, dt, button, .about, .lead, .quiet, '
    + '.fault, .warning, .good, .alarm, .headline, .tip, .order, li, small, [placeholder], [aria-label]';
  const shown = [];
  for (const node of document.querySelectorAll('main ' + own.split(', ').join(', main '))) {
    const copy = node.cloneNode(true);
    copy.querySelectorAll('.name, .digest').forEach((one) => one.remove());
    shown.push(copy.textContent, node.placeholder ?? '', node.getAttribute('aria-label') ?? '');
  }
  return [...new Set(shown.map((text) => text.trim()).filter(Boolean))];
}"""
RAW = re.compile(r"`|\b[a-z][a-z0-9]*_[a-z0-9_]+\b|\b[A-Z]\w+(?:Params|Options|Request|Schema)\b|/v1/")
SERVICES = ("CDSWAP", "DDSWAP", "DSWAP", "LOCALITY", "MEDS", "MEWS", "PABIDOT", "RSWAP", "RWN")


def raw(tab: Console) -> list[str]:
    """Return the texts of the view that have a key, a backtick or the name of a schema."""
    tab.open_everything()
    texts: list[str] = tab.evaluate(TEXTS)
    assert texts
    return [text for text in texts if RAW.search(text)]


@pytest.fixture(scope="module")
def tab(browser: Browser, client: httpx.Client) -> Iterator[Console]:
    with console(browser, client) as opened:
        yield opened


@pytest.fixture(scope="module")
def table(tab: Console) -> str:
    return tab.upload("people.csv", TABLE)


def choose_every_kind(tab: Console) -> None:
    """Open what is behind each choice of a kind, and one entry of each list."""
    for picker in tab.page.locator("select[aria-label$=': kind']").all():
        for option in picker.locator("option").all():
            picker.select_option(option.get_attribute("value"))
    for adder in tab.page.get_by_role("button", name=re.compile("^Add")).all():
        adder.click()


def test_the_tables_view_has_words(tab: Console, table: str) -> None:
    tab.open()
    assert raw(tab) == []
    tab.open(f"tables/{table}")
    assert raw(tab) == []


@pytest.mark.parametrize("service", SERVICES)
def test_the_form_of_each_service_has_words(tab: Console, table: str, service: str) -> None:
    tab.open(f"tables/{table}/{service}")
    tab.open_everything()
    choose_every_kind(tab)
    assert raw(tab) == []
    link = tab.page.get_by_role("link", name="Help", exact=True)
    assert link.evaluate("link => link.href") == f"{tab.address}/help/services/{service}"


def test_a_run_its_report_an_attack_and_a_comparison_have_words(tab: Console, table: str) -> None:
    tab.open(f"tables/{table}/DSWAP")
    tab.page.get_by_role("button", name="Preview", exact=True).click()
    tab.page.get_by_role("region", name="Preview").wait_for()
    assert raw(tab) == []
    tab.page.get_by_role("button", name="Run", exact=True).click()
    tab.ended()
    tab.page.get_by_role("heading", name="Report", exact=True).wait_for()
    assert raw(tab) == []
    job = tab.page.url.rpartition("/")[2]
    tab.open(f"jobs/{job}/attack")
    choose_every_kind(tab)
    assert raw(tab) == []
    tab.open("jobs")
    assert raw(tab) == []
    tab.open(f"tables/{table}/compare")
    for service in SERVICES:
        tab.page.get_by_role("checkbox", name=re.compile(rf" {service}$")).check()
    assert raw(tab) == []


@pytest.mark.parametrize(
    "parameters",
    [{"rate": 0.05}, {"rate": 0.05, "control_field": "age", "block_size": 8}],
    ids=["DSWAP", "DDSWAP"],
)
def test_what_to_do_about_a_high_risk_has_words(
    tab: Console, table: str, client: httpx.Client, parameters: dict[str, Any]
) -> None:
    """The headline, the advice and a comparison name parameters by the labels of the form."""
    known = ["age", "sex", "town"]
    call = {
        "source": {"buffer": table},
        "parameters": {"swap_fields": ["income", "savings"], **parameters},
        "report": "full",
        "measures": {"key_fields": known, "sensitive_fields": ["savings"]},
    }
    service = "DDSWAP" if "block_size" in parameters else "DSWAP"
    job = client.post(f"/v1/services/{service}", json=call).raise_for_status().json()["id"]
    tab.open(f"jobs/{job}")
    headline = tab.page.get_by_role("region", name="In three sentences")
    larger = "make the groups larger (“Block size”)" if service == "DDSWAP" else "To lower the risk, raise “"
    expect(headline).to_contain_text(larger)
    assert raw(tab) == []
    body = {"job": job, "source": {"buffer": table}, "known": known, "secret": ["savings"], "advice": True}
    attack = client.post("/v1/attacks", json={**body, "attacks": 60}).raise_for_status().json()["id"]
    tab.open(f"jobs/{attack}")
    expect(tab.page.get_by_role("region", name="Verdict on attacks")).to_contain_text("With “")
    assert raw(tab) == []


def test_measures_and_figures_are_picked_by_their_titles(tab: Console, table: str) -> None:
    """No text field takes the key of a measure: lists have title, meaning and better values."""
    tab.open(f"tables/{table}/DSWAP")
    tab.open_everything()
    measures = tab.page.get_by_role("group", name="Measures to take")
    ticks = measures.get_by_role("checkbox")
    assert ticks.count() > 25
    pscr = measures.get_by_role("checkbox", name="Distance to the closest record")
    expect(pscr).to_have_accessible_description(re.compile(r"\w+.* is better|near the source"))
    expect(measures.get_by_role("textbox")).to_have_count(0)
    tab.open(f"tables/{table}/compare")
    tab.open_everything()
    risk = tab.page.get_by_role("combobox", name="Risk", exact=True)
    utility = tab.page.get_by_role("combobox", name="Utility", exact=True)
    assert risk.locator("option").count() > 20
    assert "model" in [option.get_attribute("value") for option in utility.locator("option").all()]
    risk.select_option("record_linkage.rate")
    expect(risk.locator("xpath=following-sibling::p[1]")).not_to_be_empty()


def test_a_verdict_names_figures_and_options_by_their_titles(tab: Console) -> None:
    """A name that is none of them may be that of a field, and stays."""
    tab.open()
    script = "async text => (await import('./console/words.js')).sayOfTable(text)"
    said = tab.evaluate(script, "'inference_risk' of 'income_2' has no interval: take several 'runs'")
    assert (
        said == "“Inference of the secrets beyond a guess” of 'income_2' has no interval: take several “Runs”"
    )


def test_terms_are_explained_by_mouse_touch_and_keyboard(tab: Console, table: str) -> None:
    tab.open(f"tables/{table}/DSWAP")
    tab.open_everything()
    term = tab.page.locator("main .term").first
    meaning = tab.page.locator(f"#{term.get_attribute('popovertarget')}")
    expect(term).to_have_accessible_description(re.compile(r".{20,}"))
    expect(meaning).to_be_hidden()
    term.scroll_into_view_if_needed()
    term.hover()
    meaning.hover()  # over the gap; a screen magnifier needs the mouse there
    tab.page.wait_for_timeout(400)
    assert meaning.is_visible()
    tab.page.mouse.move(0, 0)
    expect(meaning).to_be_hidden()
    term.click()
    meaning.wait_for()
    tab.page.keyboard.press("Escape")
    term.focus()
    tab.page.keyboard.press("Enter")
    meaning.wait_for()
    tab.page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()


def test_a_workbook_is_refused_with_the_way_to_a_csv(tab: Console) -> None:
    tab.open()
    file = {"name": "people.xlsx", "mimeType": "", "buffer": b"PK\x03\x04"}
    tab.page.get_by_label(re.compile("^A file")).set_input_files(file)  # type: ignore[arg-type]
    expect(tab.page.get_by_role("alert")).to_contain_text("CSV (UTF-8)")
