"""Documentation site: no broken link, and readable in a real browser without other hosts."""

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    rb"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?([^"'\s>]+)"""
    rb"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preconnect|preload|prefetch|dns-prefetch|manifest))"""
    rb"""[^>]*\bhref=["']?([^"'\s>]+)"""
)
"""Elements that a browser loads automatically: scripts, pictures, style sheets."""
STYLED = re.compile(rb"""@import\s*["']?(?:url\()?["']?([^"')]+)|url\(["']?([^"')]+)""")


def build(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout as `make site` does: not quietly, which would count no warning."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(into)],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Site of this checkout, without broken links."""
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    """No script, picture, style sheet or font of a page has an address with a host."""
    pages, sheets = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert len(pages) > 40
    assert sheets
    loaded = {match for page in pages for match in LOADED.findall(page.read_bytes())}
    styled = {match for sheet in sheets for match in STYLED.findall(sheet.read_bytes())}
    assert any(b"assets/" in b"".join(match) for match in loaded)
    for match in loaded | styled:
        address = b"".join(match)
        assert address.startswith(b"data:") or b"//" not in address, address


def test_every_page_is_in_the_site_and_lists_are_lists(site: Path) -> None:
    """Forges begin a list or a table directly after a paragraph, which the site would merge."""
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        for paragraph in re.findall(r"<p>(.*?)</p>", built.read_text(encoding="utf-8"), flags=re.DOTALL):
            assert not re.search(r"^\s*(?:[-*]|\d+\.) |^\|", paragraph, flags=re.MULTILINE), page


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("[gone](gone.md), [no such part](keys.md#no-such-part)", ("gone.md", "no-such-part")),
        ("[no such file](../providers/gone.py)", ("providers/gone.py",)),
    ],
)
def test_a_broken_link_fails(tmp_path: Path, written: str, reported: tuple[str, ...]) -> None:
    """Links to a page, to a section, to a file of the repository."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for path in ROOT.iterdir():
        if path.name not in ("docs", "var"):
            (tmp_path / path.name).symlink_to(path)
    page = tmp_path / "docs/report.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n{written}\n", encoding="utf-8")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert all(name in built.stdout + built.stderr for name in reported)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """Serve the site; yield its local address."""
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.browser
def test_the_site_is_read_and_searched_without_a_network(browser: Browser, served: str) -> None:
    """Nothing else is loaded, nothing is logged to the console, and a word is found."""
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.route(lambda url: not url.startswith(served), lambda route: route.abort())
    for name in ("index", "http-reference", "services/CDSWAP", "repository/providers/selection/seeds.py"):
        page.goto(f"{served}/{name}.html")
        assert page.locator("article h1").count() == 1
    page.goto(f"{served}/index.html")
    page.locator(".md-search__input").fill("microaggregation")
    found = page.locator(".md-search-result__link")
    found.first.wait_for()
    assert any("from-sdcmicro" in str(link.get_attribute("href")) for link in found.all())
    assert [url for url in asked if not url.startswith((served, "data:", "blob:"))] == []
    assert said == []
    page.close()
