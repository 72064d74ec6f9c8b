"""Console: one page and its modules, served from the package. It uses only the public HTTP API."""

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from fastapi import APIRouter, Request, Response

from app.api.request_headers import combined, none_match
from app.report.style import STYLE_SOURCE

router = APIRouter(include_in_schema=False)

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    f"style-src 'self' {STYLE_SOURCE}",  # also applies to a report's page in its frame
    "img-src 'self'",
    "connect-src 'self'",
    "frame-src blob:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
"""Content security policy; the browser itself prevents that text is parsed as markup."""

HEADERS = {
    "Cache-Control": "no-cache",  # modules of different versions must not be mixed
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of each file of the console, and of the pages that look like it."""


def _serve(path: str, file: Traversable) -> None:
    content = file.read_bytes()
    media_type = _TYPES[PurePosixPath(file.name).suffix]
    headers = HEADERS | {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}

    async def answer(request: Request) -> Response:
        if not none_match(combined(request.headers.getlist("if-none-match")), headers["ETag"]):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    router.add_api_route(path, answer, methods=["GET"])


def _serve_folder(path: str, folder: Traversable) -> None:
    for file in folder.iterdir():
        if file.is_dir():
            _serve_folder(f"{path}/{file.name}", file)
        else:
            _serve("/" if file.name == "index.html" else f"{path}/{file.name}", file)


_serve_folder("/console", resources.files("app").joinpath("console"))
