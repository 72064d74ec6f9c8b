"""Report page in a real browser, opened from a file without network."""

import io
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pypdf
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from app.report.page import html_report
from tests.e2e.conftest import RUNS, Reader, report_page
from tests.reports.documents import HOSTILE, attacks, candidates, frontier, full_report, job

pytestmark = pytest.mark.browser

SERVED = [pytest.param(service, marks=pytest.mark.realdata) for service in RUNS]
WORST = [HOSTILE[at] for at in (0, 2, 7, 8)]
MADE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "hostile": (job(field_names=WORST), full_report(WORST, candidates=candidates())),
    "frontier": (
        job("frontier"),
        {"summary": {}, "measures": {}, "provider": {}, "limits": [], "frontier": frontier()},
    ),
    "attacks": (
        job("attacks", field_names=WORST),
        {"summary": {}, "measures": {}, "provider": {}, "limits": ["More is known."], **attacks(WORST[1])},
    ),
}

NOT_NEXT_TO_THE_PAGE = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
CUT_OFF = """[...document.querySelectorAll('h1,h2,h3,p,li,dd,dt,figcaption,svg')].filter(element => {
  const box = element.getBoundingClientRect();
  const beyond = box.width && (box.right > innerWidth + 1 || box.left < -1);
  return beyond && !element.closest('.scroll,.hidden-words');
}).map(element => element.outerHTML.slice(0, 200))"""
SEEN = "[...document.querySelectorAll('figure table')].map(table => table.checkVisibility())"


@pytest.fixture(scope="module", params=[*SERVED, *MADE, *(f"{name}, dark" for name in MADE)])
def reader(
    request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    """Reader of the page file; colours are equal on all pages, so one dark page suffices."""
    name, _, dark = request.param.partition(", ")
    if name in MADE:
        content = html_report(*MADE[name])
    else:
        client: httpx.Client = request.getfixturevalue("client")
        content = report_page(client, name, request.getfixturevalue("data_dir")).text
    path = tmp_path_factory.mktemp("pages") / f"{name}.html"
    path.write_text(content, encoding="utf-8")
    context = browser.new_context(offline=True, color_scheme="dark" if dark else "light")
    yield Reader(context, path)
    context.close()


def test_page_is_read_without_network_or_error(reader: Reader) -> None:
    """Only the file itself is loaded, and nothing is logged to the console."""
    assert reader.asked == [reader.path.as_uri()]
    assert reader.said == []
    assert reader.page.title()


def test_every_picture_is_drawn_and_has_its_table(reader: Reader) -> None:
    """The table opens and closes with the keyboard."""
    page = reader.page
    figures = page.locator("figure")
    if "has no pictures" not in page.inner_text("main"):
        assert figures.count()
    for at in range(figures.count()):
        figure = figures.nth(at)
        for drawing in figure.locator("svg").all():
            box = drawing.bounding_box()
            assert box is not None
            assert box["width"] > 250
            assert box["height"] > 30
        assert figure.locator("details table tbody tr").count()
    if figures.count():
        table, summary = figures.last.locator("table"), figures.last.locator("summary")
        was_open = table.is_visible()
        summary.focus()
        page.keyboard.press("Enter")
        assert table.is_visible() is not was_open
        page.keyboard.press("Enter")
        assert table.is_visible() is was_open


def test_a_checker_of_accessibility_finds_nothing(reader: Reader) -> None:
    """Axe's rules, including contrast in light and dark; on a sample page with all tables open."""
    if reader.path.stem in MADE:
        reader.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = Axe().run(reader.page, options={"resultTypes": ["violations"]})
    reader.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
    assert not [(each["id"], each["nodes"][0]["html"]) for each in found.response["violations"]]


def test_page_is_legible_on_a_narrow_screen(reader: Reader) -> None:
    """At 400 pixels nothing exceeds the screen except tables that scroll by themselves."""
    page = reader.page
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": 400, "height": 800})
    try:
        for state in ("false", "true"):
            page.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = {state})")
            assert page.evaluate(NOT_NEXT_TO_THE_PAGE)
            assert page.evaluate(CUT_OFF) == []
        sizes = page.evaluate(
            "[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)"
        )
        assert min(sizes, default=12) >= 10
    finally:
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
        page.set_viewport_size(size)


def test_print_opens_the_tables(reader: Reader) -> None:
    """Less important tables are closed on the screen, and open on paper.

    Those of a comparison and of attacks are the result, and open at first.
    """
    page = reader.page
    if reader.path.stem not in ("frontier", "attacks"):
        assert not any(page.evaluate(SEEN))
    page.emulate_media(media="print")
    try:
        assert all(page.evaluate(SEEN))
        assert page.pdf(format="A4", tagged=False).startswith(b"%PDF-")
    finally:
        page.emulate_media(media="screen")


def test_paper_has_every_figure_of_the_tables(browser: Browser, tmp_path: Path) -> None:
    """Each cell of each row of each table is in the text of the sheets."""
    path = tmp_path / "page.html"
    path.write_text(html_report(job(), full_report()), encoding="utf-8")
    context = browser.new_context(offline=True)
    page = Reader(context, path).page
    rows = page.evaluate("[...document.querySelectorAll('table tr')].map(row => row.textContent)")
    printed = pypdf.PdfReader(io.BytesIO(page.pdf(format="A4", tagged=False)))
    text = plain("".join(sheet.extract_text() for sheet in printed.pages))
    assert len(rows) > 50
    for row in rows:
        assert plain(row) in text, row
    context.close()


def plain(text: str) -> str:
    """Return the text without spaces and without ligatures."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", text))


@pytest.mark.realdata
def test_page_is_read_as_it_is_served(
    browser: Browser, client: httpx.Client, address: str, key: str, data_dir: Path
) -> None:
    """The policy header allows the page's own style, and nothing else is loaded."""
    served = report_page(client, "RWN", data_dir)
    context = browser.new_context(
        extra_http_headers={"accept": "text/html", "authorization": f"Bearer {key}"}
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(f"{address}{served.url.path}")
    assert answer is not None
    assert answer.headers["content-type"] == "text/html; charset=utf-8", answer.text()
    assert page.evaluate("getComputedStyle(document.querySelector('.limits')).borderLeftStyle") == "solid"
    assert said == []
    assert asked == [f"{address}{served.url.path}"]
    context.close()
