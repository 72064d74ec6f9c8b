"""Navigation of the help that the service serves: the one of `mkdocs.yml`, as JSON without its settings."""

from pathlib import Path
from typing import Any

import orjson
import yaml

_NAVIGATION = "\nnav:\n"


def help_navigation() -> bytes:
    """Return `app/help/navigation.json`: sections in order, each with its pages and folders of pages.

    A page that is in no section of `mkdocs.yml` is a section by itself.
    """
    text = Path("mkdocs.yml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = yaml.safe_load(text[text.index(_NAVIGATION) :])["nav"]
    sections = [
        {title: pages if isinstance(pages, list) else [pages]}
        for entry in entries
        for title, pages in entry.items()
    ]
    return orjson.dumps(sections, option=orjson.OPT_INDENT_2) + b"\n"
