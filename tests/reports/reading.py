"""A page as a parser sees it: its elements, their text, and where they stand."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br", "img", "link", "input", "hr", "base"}


@dataclass
class Element:
    """One element of the page."""

    tag: str
    attributes: dict[str, str]
    parent: "Element | None"
    children: list["Element"] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text within."""
        return "".join(self.pieces)

    def all(self, tag: str, kind: str = "") -> list["Element"]:
        """Elements within of this tag and class, in the order of the page."""
        found = []
        for child in self.children:
            if child.tag == tag and (not kind or kind in child.attributes.get("class", "").split()):
                found.append(child)
            found += child.all(tag, kind)
        return found

    def one(self, tag: str, kind: str = "") -> "Element":
        """The only one."""
        [found] = self.all(tag, kind)
        return found

    def rows(self) -> list[list[str]]:
        """Text of each cell of a table."""
        return [[cell.text for cell in row.children] for row in self.all("tr")]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {}, None)
        self.at = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} stands twice"
        element = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(element)
        if tag not in _VOID:
            self.at = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert tag == self.at.tag, f"</{tag}> closes <{self.at.tag}>"
            assert self.at.parent is not None
            self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        within: Element | None = self.at
        while within is not None:
            within.pieces.append(data)
            within = within.parent


def read(page: str) -> Element:
    """The page; every element that is opened must be closed in its place."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser.at is parser.root, f"<{parser.at.tag}> is not closed"
    return parser.root
