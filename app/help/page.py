"""A page of the help: its content between the console's header and the navigation."""

from functools import cache
from importlib import resources

from jinja2 import Environment, Template
from markupsafe import Markup

from app.help.documents import Documents, address
from app.help.markdown import Heading, headings, render


@cache
def _template() -> Template:
    text = resources.files("app.help").joinpath("page.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)


def page(documents: Documents, source: str) -> str:
    """Return the HTML of a page of the documentation."""
    text = documents.text(source)
    outline = [each for each in headings(text) if each.level == 2]
    content = Markup(render(text, source, {*documents.sources, *documents.assets}))  # noqa: S704 - our own pages
    return _fill(documents, source.count("/"), source, documents.title(source), content, outline)


def missing_page(documents: Documents | None, depth: int) -> str:
    """Return the HTML of a page about an address without a page.

    Parameters
    ----------
    documents : Documents or None
        Documentation; None if this installation has none.
    depth : int
        Number of folders between ``/help/`` and the page.
    """
    why = (
        "This installation has no documentation."
        if documents is None
        else "There is no help at this address. The contents list every page."
    )
    content = Markup("<h1>No such page</h1><p>{}</p>").format(why)
    return _fill(documents, depth, "", "No such page", content, [])


def _fill(
    documents: Documents | None,
    depth: int,
    source: str,
    title: str,
    content: Markup,
    outline: list[Heading],
) -> str:
    sections = [
        (section.title, [(address(each), documents.title(each), each == source) for each in section.pages])
        for section in (documents.navigation() if documents else ())
        if documents
    ]
    return _template().render(
        root="../" * depth or "./",
        title=title,
        content=content,
        outline=outline if len(outline) > 2 else [],
        sections=sections,
    )
