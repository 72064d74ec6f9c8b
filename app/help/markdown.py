"""Markdown of the documentation as HTML. Imported by the first request for help, since no other needs it."""

import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from app.help.documents import address, anchor, plain

_OF_THE_SERVICE = {"../openapi/openapi.json": "../openapi.json"}
"""File outside of the documentation -> path at which the service has the same, both below ``/help/``."""


@dataclass(frozen=True, slots=True)
class Heading:
    """Heading of a page."""

    level: int
    """1 to 6."""
    text: str
    anchor: str
    """Fragment of the heading's address, unique on the page."""


class _Renderer(RendererHTML):
    """HTML in which wide blocks scroll by themselves, also by keyboard."""

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return '<div class="scroll" role="group" tabindex="0" aria-label="Table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</table></div>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<pre tabindex="0"><code>{escape(tokens[idx].content)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self.fence(tokens, idx, options, env)


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable(
        ["table", "strikethrough"]
    )


_FULL = _parser()
_BLOCKS = _parser().disable("inline")


def headings(text: str) -> list[Heading]:
    """Return the headings of a page in its order; the text inside of paragraphs is not parsed."""
    return [heading for _, heading in _headings(_BLOCKS.parse(text))]


def render(text: str, source: str, files: Collection[str]) -> str:
    """Render a page as HTML; links between pages lead to their addresses.

    A link to a file outside of the documentation becomes its text and the file's path in the repository.

    Parameters
    ----------
    text : str
        Markdown of the page.
    source : str
        Path of the page relative to the documentation.
    files : collection of str
        Paths of all files of the documentation.
    """
    tokens = _FULL.parse(text)
    for token, heading in _headings(tokens):
        token.attrSet("id", heading.anchor)
        if heading.level > 1 and token.map is not None:
            _add_permalink(tokens[tokens.index(token) + 1], heading)
    for token in tokens:
        if token.children:
            token.children = list(_with_links(token.children, source, files))
    rendered: str = _FULL.renderer.render(tokens, _FULL.options, {})
    return rendered


def _headings(tokens: Iterable[Token]) -> Iterator[tuple[Token, Heading]]:
    """Yield the token that opens each heading; a repeated anchor gets a number, as on GitHub."""
    used: Counter[str] = Counter()
    opened: Token | None = None
    for token in tokens:
        if token.type == "heading_open":
            opened = token
        elif opened is not None:
            fragment = anchor(token.content)
            used[fragment] += 1
            if used[fragment] > 1:
                fragment = f"{fragment}-{used[fragment] - 1}"
            yield opened, Heading(int(opened.tag[1:]), plain(token.content), fragment)
            opened = None


def _add_permalink(content: Token, heading: Heading) -> None:
    opened = Token("link_open", "a", 1, attrs={"href": f"#{heading.anchor}", "class": "permalink"})
    opened.attrSet("aria-label", f"Link to this section: {heading.text}")
    content.children = [*(content.children or ()), opened, Token("text", "", 0, content="#")]
    content.children.append(Token("link_close", "a", -1))


def _with_links(tokens: Iterable[Token], source: str, files: Collection[str]) -> Iterator[Token]:
    """Yield a paragraph's tokens with the links of the help; links cannot be nested (CommonMark, 6.3)."""
    outside = ""
    for token in tokens:
        if token.type == "link_open":
            href = str(token.attrGet("href"))
            place = _target(href, source, files)
            if place is None:
                outside = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), href))
                continue
            token.attrSet("href", place)
            if urlsplit(place).netloc:
                token.attrSet("rel", "noreferrer")
        elif token.type == "link_close" and outside:
            yield Token("text", "", 0, content=" (")
            yield Token("code_inline", "code", 0, content=outside)
            yield Token("text", "", 0, content=")")
            outside = ""
            continue
        elif token.type == "image":
            token.attrSet("loading", "lazy")
        yield token


def _target(href: str, source: str, files: Collection[str]) -> str | None:
    """Return the address that a link leads to, relative to the page; None if the service has no such file."""
    link = urlsplit(href)
    if link.scheme or link.netloc or not link.path:
        return href
    folder = posixpath.dirname(source)
    file = posixpath.normpath(posixpath.join(folder, link.path))
    place = _OF_THE_SERVICE.get(file)
    if place is None:
        if file not in files:
            return None
        place = address(file) if file.endswith(".md") else file
    relative = posixpath.relpath(place or ".", folder or ".") + ("" if place else "/")
    return f"{relative}#{link.fragment}" if link.fragment else relative
