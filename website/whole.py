"""Hooks for MkDocs: folders in the navigation become their pages, and linked files become pages.

MkDocs calls the functions below by name (`hooks` in mkdocs.yml). A page links to files of the repository as a
forge needs it, such as ``../providers/rng.py``; the site has no such path, so each of them becomes a page
below ``repository/``.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_FOLDER = "repository"
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_LANGUAGES = {".py": "python", ".sh": "sh", ".json": "json", ".yml": "yaml", ".c": "c"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace a folder in the navigation by its pages in the order of their names."""
    pages = Path(config.docs_dir)
    for entry in config.nav or []:
        if isinstance(entry, dict):
            for title, place in entry.items():
                if isinstance(place, str) and place.endswith("/"):
                    entry[title] = sorted(f"{place}{page.name}" for page in (pages / place).glob("*.md"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add files that pages link to outside of the documentation as pages."""
    root = Path(config.docs_dir).parent
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    known: set[str] = set()
    while waiting:
        page, text = waiting.pop()
        for place in _outside(page, text):
            if place in known or place.startswith("docs/"):
                continue
            known.add(place)
            content = _content(root, place, page)
            added = File.generated(config, _page_of(place), content=content)
            added.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(added)
            if place.endswith(".md"):  # a link inside code is not a link
                waiting.append((added.src_uri, content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite the page's links to files of the repository to their pages."""
    here = page.file.src_uri
    if _is_code(here):
        return markdown

    def led(link: re.Match[str]) -> str:
        place = _place(here, link[1])
        return _relative(here, _page_of(place)) if place is not None else link[1]

    return _LINK.sub(led, markdown)


def _outside(page: str, text: str) -> Iterator[str]:
    for link in _LINK.findall(text):
        place = _place(page, link)
        if place is not None:
            yield place


def _place(page: str, link: str) -> str | None:
    """Return the repository path that a page's link points to; None if it is within the documentation."""
    if page.startswith(f"{_FOLDER}/"):
        of_page = page.removeprefix(f"{_FOLDER}/")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(of_page), link))
    else:
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if place.startswith("docs/") and not page.startswith(f"{_FOLDER}/") else place


def _page_of(place: str) -> str:
    """Return the site's page of a file of the repository."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return f"{_FOLDER}/{place}" if place.endswith(".md") else f"{_FOLDER}/{place}.md"


def _is_code(page: str) -> bool:
    """Return whether the page shows a source file of the repository."""
    return page.startswith(f"{_FOLDER}/") and bool(posixpath.splitext(page.removesuffix(".md"))[1])


def _relative(page: str, target: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def _content(root: Path, place: str, page: str) -> str:
    """Return a file of the repository as a page."""
    file = root / place
    if not file.is_file():
        raise PluginError(f"{page} links to {place}, which is no file of the repository")
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"# {place}\n\n````{_LANGUAGES.get(file.suffix, 'text')}\n{text}````\n"
