"""Write openapi.json and the pages derived from the code: ``python -m website``."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from app.lean import collection_paused
from app.main import create_app
from app.settings import Settings
from providers import PROVIDERS
from website.deployment_picture import deployment_picture
from website.drawn_swaps import drawn_swaps
from website.help_navigation import help_navigation
from website.http_reference import http_page
from website.layers import layers_picture
from website.measures_page import measures_page
from website.openapi_diff import allows_breaking, breaking_changes
from website.paper_pages import paper_files
from website.service_pages import page
from website.settings_page import settings_page

Json = dict[str, Any]


def derived_files(document: Json) -> dict[Path, bytes]:
    """Return the committed files derived from the code: path in the repository -> content.

    ``document``: the OpenAPI document, which takes a second to make.
    """
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
    pages = {
        Path(f"docs/services/{identifier}.md"): page(provider).encode()
        for identifier, provider in PROVIDERS.items()
    }
    return {
        Path("openapi/openapi.json"): text,
        Path("app/help/navigation.json"): help_navigation(),
        Path("docs/measures.md"): measures_page().encode(),
        Path("docs/settings.md"): settings_page().encode(),
        Path("docs/http-reference.md"): http_page(document).encode(),
        Path("docs/architecture-layers.svg"): layers_picture().encode(),
        Path("docs/deployment.svg"): deployment_picture().encode(),
        **pages,
        **drawn_swaps(),
        **paper_files(),
    }


def derive(document: Json, check: bool) -> int:
    """Write the derived files below the working directory, or print which are outdated."""
    status = 0
    for path, content in derived_files(document).items():
        if path.is_file() and path.read_bytes() == content:
            continue
        if check:
            print(f"{path} is not what the code says: run `make openapi docs`", file=sys.stderr)
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(f"wrote {path}")
    return status


_RELEASED = Path("openapi/released.json")
"""OpenAPI document of the last release, which clients rely on."""


def hold_to_release(document: Json) -> int:
    """Return 1 if the API breaks clients of the last release, and the version does not allow it."""
    released = orjson.loads(_RELEASED.read_bytes())
    if allows_breaking(released["info"]["version"], document["info"]["version"]):
        return 0
    broken = breaking_changes(released, document)
    for change in broken:
        print(f"breaks clients of {released['info']['version']}: {change}", file=sys.stderr)
    if broken:
        print("raise the version (before 1.0 the minor), or take the change back", file=sys.stderr)
    return 1 if broken else 0


def main(arguments: list[str] | None = None) -> int:
    """Write or check the derived files; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m website",
        description="Write openapi/openapi.json and the pages that derive from the code.",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check that they are current, and that the contract keeps what was released",
    )
    parser.add_argument(
        "--release", action="store_true", help="keep the contract as the one that clients may rely on"
    )
    given = parser.parse_args(arguments)
    with collection_paused():  # schemas and syntax trees are hardly any garbage
        document = create_app(Settings()).openapi()
        status = derive(document, given.check)
    if given.release and status == 0:
        _RELEASED.write_bytes(Path("openapi/openapi.json").read_bytes())
    return max(status, hold_to_release(document)) if given.check else status


if __name__ == "__main__":
    sys.exit(main())
