"""Pages of the help below ``/help/``: rendered when they are first requested, and kept in memory."""

import hashlib
import json
import threading
from functools import cache
from importlib import resources
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from app.api.pages.console import HEADERS
from app.api.request_headers import combined, none_match
from app.help.documents import Documents, address, documentation, media_type

router = APIRouter(include_in_schema=False)

_HTML = "text/html; charset=utf-8"
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Content security policy of a picture that is opened by itself: its own styles, and nothing else."""
_OWN = {"help.css": "text/css; charset=utf-8", "search.js": "text/javascript; charset=utf-8"}
"""Files of the help's own pages -> media type."""
_MADE = ("search.json", "words.json")
_rendering = threading.Lock()  # one thread renders, the others find the page


class _Content:
    """Content of an address, with its media type and headers."""

    def __init__(self, content: bytes, kind: str, status: int = 200) -> None:
        self.content = content
        self.media_type = kind
        self.status = status
        self.headers = HEADERS | {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}
        if kind == "image/svg+xml":
            self.headers["Content-Security-Policy"] = _PICTURE_POLICY


@cache
def _documents() -> Documents | None:
    folder = documentation(Path(str(resources.files("app"))))
    return None if folder is None else Documents(folder)


@cache
def _content(path: str) -> _Content:
    """Return the content of a path below ``/help/`` that exists."""
    if path in _OWN:
        return _Content(resources.files("app.help").joinpath(path).read_bytes(), _OWN[path])
    documents = _documents()
    assert documents is not None
    if path == "search.json":
        return _Content(_search_index(documents), "application/json")
    if path == "words.json":
        from app.help.words import words

        return _Content(words(documents), "application/json")
    if path in documents.assets:
        return _Content(documents.assets[path].read_bytes(), media_type(documents.assets[path]))
    from app.help.page import page

    return _Content(page(documents, documents.addresses[path]).encode(), _HTML)


@cache
def _missing(depth: int) -> _Content:
    from app.help.page import missing_page

    return _Content(missing_page(_documents(), depth).encode(), _HTML, 404)


def _search_index(documents: Documents) -> bytes:
    """Return all headings as JSON: of each page its address, title, and pairs of heading and anchor."""
    from app.help.markdown import headings

    pages = [
        [
            address(source),
            documents.title(source),
            [[each.text, each.anchor] for each in headings(documents.text(source)) if each.level > 1],
        ]
        for section in documents.navigation()
        for source in section.pages
    ]
    return json.dumps(pages, ensure_ascii=False, separators=(",", ":")).encode()


def _find(path: str) -> _Content:
    with _rendering:
        documents = _documents()
        if path in _OWN or (
            documents is not None
            and (path in _MADE or path in documents.assets or path in documents.addresses)
        ):
            return _content(path)
        return _missing(min(path.count("/"), 9))


@router.get("/help")
async def overview() -> Response:
    """Redirect to the first page, by a relative reference: no Host header decides where it leads."""
    return Response(status_code=308, headers={"Location": "help/"})


@router.get("/help/{path:path}")
async def show(path: str, request: Request) -> Response:
    """Return a page, a picture, or a page about an address without a page."""
    found = await run_in_threadpool(_find, path)
    cached = combined(request.headers.getlist("if-none-match"))
    if found.status == 200 and not none_match(cached, found.headers["ETag"]):
        return Response(status_code=304, headers=found.headers)
    return Response(found.content, found.status, headers=found.headers, media_type=found.media_type)
