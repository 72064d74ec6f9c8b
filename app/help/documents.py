"""Documents of the help: files, navigation and headings. Only files that were listed can be requested."""

import json
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

_ASSETS = {
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".toml": "text/plain; charset=utf-8",
}
"""Ending of a file that pages refer to -> its media type."""
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_REST = "More"


@dataclass(frozen=True, slots=True)
class Section:
    """Part of the navigation."""

    title: str
    pages: tuple[str, ...]
    """Sources of the pages, relative to the documentation, such as ``services/RWN.md``."""


def documentation(package: Path) -> Path | None:
    """Return the folder of the documentation: in an installed package, or in the repository; None without.

    Parameters
    ----------
    package : Path
        Folder of the package ``app``.
    """
    for folder in (package / "docs", package.parent / "docs"):
        if (folder / "index.md").is_file():
            return folder
    return None


class Documents:
    """Files of the documentation, listed once.

    Parameters
    ----------
    folder : Path
        Folder of the documentation.
    """

    def __init__(self, folder: Path) -> None:
        files = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        self.sources = {name: path for name, path in files.items() if name.endswith(".md")}
        """Source of each page -> its file."""
        self.assets = {name: path for name, path in files.items() if path.suffix in _ASSETS}
        """Path below ``/help/`` of every other file -> the file."""
        self.addresses = {address(source): source for source in self.sources}
        """Path below ``/help/`` -> source of the page."""

    @cache  # noqa: B019 - there is one object for the life of the service
    def text(self, source: str) -> str:
        """Return the Markdown of a page."""
        return self.sources[source].read_text(encoding="utf-8")

    @cache  # noqa: B019
    def title(self, source: str) -> str:
        """Return the title of a page: its first heading, as plain text."""
        found = _TITLE.search(self.text(source))
        return plain(found[1]) if found else source.removesuffix(".md")

    @cache  # noqa: B019
    def navigation(self) -> list[Section]:
        """Return the navigation of `mkdocs.yml`; pages that it does not name are in a last section."""
        named: list[dict[str, list[str]]] = json.loads(
            resources.files("app.help").joinpath("navigation.json").read_text(encoding="utf-8")
        )
        sections = [
            Section(title, tuple(source for entry in entries for source in self._pages(entry)))
            for each in named
            for title, entries in each.items()
        ]
        known = {source for section in sections for source in section.pages}
        rest = tuple(source for source in self.sources if source not in known)
        return [section for section in (*sections, Section(_REST, rest)) if section.pages]

    def _pages(self, entry: str) -> list[str]:
        """Return the pages of an entry of the navigation: a page, or all pages of a folder."""
        if entry.endswith("/"):
            return [source for source in self.sources if source.startswith(entry)]
        return [entry] if entry in self.sources else []


def media_type(path: Path) -> str:
    """Return the media type of an asset."""
    return _ASSETS[path.suffix]


def address(source: str) -> str:
    """Return the path of a page below ``/help/``: ``services/RWN`` of ``services/RWN.md``."""
    folder, name = posixpath.split(source.removesuffix(".md"))
    return posixpath.join(folder, "" if name == "index" else name)


def plain(markdown: str) -> str:
    """Return a heading's text without its Markdown."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"[`*]|\\(?=[^\w\s])", "", text).strip()


def anchor(heading: str) -> str:
    """Return the anchor of a heading, formed as GitHub and GitLab do.

    Parameters
    ----------
    heading : str
        Text of the heading in Markdown.
    """
    return re.sub(r"[^\w\- ]", "", plain(heading).lower()).replace(" ", "-")
