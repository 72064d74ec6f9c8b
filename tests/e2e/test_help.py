"""Help over a real socket: every page, link, anchor and picture; nothing is loaded from another host."""

import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urljoin, urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from providers.measures import MEASURES
from providers.selection.figures import FIGURES
from tests.e2e.console import NOT_NEXT_TO_THE_PAGE, console

DOCS = Path(__file__).parents[2] / "docs"
LOADING = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """References and anchors of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if tag in LOADING:
            self.loaded.append(given.get(LOADING[tag]) or "inline")
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if tag == "style":
            self.inline.append(tag)


def sources() -> Iterator[str]:
    for path in sorted(DOCS.rglob("*.md")):
        folder, name = posixpath.split(path.relative_to(DOCS).with_suffix("").as_posix())
        yield posixpath.join("/help/", folder, "" if name == "index" else name)


@pytest.fixture(scope="module")
def pages(client: httpx.Client) -> dict[str, Page]:
    """Every page of the documentation, without a key."""
    found = {}
    for place in sources():
        answer = client.get(place, headers={"authorization": ""})
        assert (answer.status_code, place) == (200, place)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        found[place] = Page(answer.text)
    return found


def test_every_internal_link_and_anchor_is_answered(client: httpx.Client, pages: dict[str, Page]) -> None:
    """No page leads to a 404 or to a section that it does not have."""
    others: dict[str, int] = {}
    dead = []
    for place, page in pages.items():
        for link in page.links:
            target = urlsplit(urljoin(place, link))
            if target.scheme:
                assert target.scheme in {"http", "https", "mailto"}
                continue
            if target.path in pages:
                if target.fragment and unquote(target.fragment) not in pages[target.path].anchors:
                    dead.append((place, link))
                continue
            if target.path not in others:
                others[target.path] = client.get(target.path).status_code
            if others[target.path] != 200:
                dead.append((place, link))
    assert dead == []
    assert {"/", "/docs", "/openapi.json", "/help/papers/002.json"} <= set(others)


def test_nothing_is_loaded_from_another_host(client: httpx.Client, pages: dict[str, Page]) -> None:
    """Pictures, styles and scripts are the service's own, and nothing is inline, which the policy forbids."""
    loaded = {urljoin(place, each) for place, page in pages.items() for each in page.loaded}
    assert [each for each in loaded if urlsplit(each).netloc] == []
    assert {place: page.inline for place, page in pages.items() if page.inline} == {}
    assert [each for each in sorted(loaded) if client.get(each).status_code != 200] == []
    assert sum(each.endswith(".svg") for each in loaded) > 30
    policy = client.get("/help/").headers["content-security-policy"]
    assert policy == client.get("/").headers["content-security-policy"]
    picture = client.get("/help/architecture-layers.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "script-src" not in picture.headers["content-security-policy"]
    assert picture.headers["content-security-policy"].startswith("default-src 'none'")


def test_every_page_is_in_the_contents(pages: dict[str, Page]) -> None:
    listed = {urljoin("/help/", link) for link in pages["/help/"].links}
    assert set(pages) <= listed


def test_the_search_index_leads_to_sections(client: httpx.Client, pages: dict[str, Page]) -> None:
    index = client.get("/help/search.json").json()
    entries = {f"/help/{place}": {anchor for _, anchor in inside} for place, _, inside in index}
    assert set(entries) == set(pages)
    assert all(anchors <= pages[place].anchors for place, anchors in entries.items())
    assert sum(map(len, entries.values())) > 300


def test_words_have_every_measure_and_term(client: httpx.Client) -> None:
    """Each has a meaning; a row of the glossary with two terms gives two."""
    words = client.get("/help/words.json").json()
    terms = {each["term"]: each["meaning"] for each in words["glossary"]}
    assert {"seed", "equivalence class", "class", "k-anonymity"} <= set(terms)
    assert not any("`" in meaning or "](" in meaning or not meaning for meaning in terms.values())
    assert [each["key"] for each in words["measures"]] == list(MEASURES)
    assert all(each["title"] and each["meaning"] for each in words["measures"])
    assert {each["name"] for each in words["figures"]} >= set(FIGURES)


def test_a_page_that_is_unchanged_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/help/glossary")
    again = client.get("/help/glossary", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head("/help/glossary").headers["content-length"] == str(len(first.content))


def test_help_without_a_slash_leads_to_the_first_page(client: httpx.Client) -> None:
    """The reference is relative, so that it also holds behind a proxy that serves a folder."""
    answer = client.get("/help", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (308, "help/")
    assert "<h1" in client.get("/help", follow_redirects=True).text


@pytest.mark.parametrize(
    "path",
    [
        "../pyproject.toml", "%2e%2e/pyproject.toml", "..%2fpyproject.toml", "services/..%2f..%2fREADME",
        "%2fetc/passwd", "/etc/passwd", "services", "services/", "routes.py", "page.html.j2", "index.md",
        "glossary/", "%00", "nothing/of/the/kind",
    ],
)  # fmt: skip
def test_only_documents_are_served(client: httpx.Client, path: str) -> None:
    """A path is looked up among the listed files; it never becomes part of a file's path."""
    answer = client.get(f"/help/{path}")
    assert answer.status_code == 404
    assert "[project]" not in answer.text
    assert "root:" not in answer.text


def test_a_missing_page_lists_the_contents(client: httpx.Client) -> None:
    answer = client.get("/help/services/NONE")
    page = Page(answer.text)
    assert answer.status_code == 404
    assert "/help/services/RWN" in {urljoin("/help/services/NONE", link) for link in page.links}


def test_links_out_of_the_documentation_become_text(client: httpx.Client, pages: dict[str, Page]) -> None:
    """A source file is named by its path in the repository, because the service does not serve it."""
    text = client.get("/help/glossary").text
    assert "test (<code>tests/docs/test_writing.py</code>)" in text
    assert not any(re.search(r"\.(py|md|yml)(#|$)", link) for page in pages.values() for link in page.links
                   if not urlsplit(link).netloc)  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_help_in_a_browser(
    browser: Browser, client: httpx.Client, scheme: Literal["light", "dark"], width: int
) -> None:
    """No page is wider than the screen, axe finds nothing, and the search leads to a section."""
    with console(browser, client, scheme=scheme, width=width) as opened:
        for place in ("", "http-reference", "measures", "services/RSWAP", "papers/002", "services/NONE"):
            opened.page.goto(f"{opened.address}/help/{place}")
            opened.page.get_by_role("heading", level=1).wait_for()
            assert opened.evaluate(NOT_NEXT_TO_THE_PAGE), place
        opened.page.goto(f"{opened.address}/help/glossary")
        assert Axe().run(opened.page).response["violations"] == []
        opened.page.get_by_label("Find a heading").fill("partition run")
        opened.page.get_by_label("Find a heading").fill("threat model")
        opened.page.get_by_role("link", name="Security: Threat model").click()
        expect(opened.page.get_by_role("heading", name="Threat model").first).to_be_in_viewport()
