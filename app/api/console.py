"""The console: one page and its modules, from the service's own files. It calls the public contract alone."""

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from fastapi import APIRouter, Request, Response

from app.api.conditional import none_match
from app.report import STYLE_SOURCE

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
    f"style-src 'self' {STYLE_SOURCE}",  # a report's page in its frame lives under this policy, too
    "img-src 'self'",
    "connect-src 'self'",
    "frame-src blob:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
"""No markup is ever made from text: the browser itself refuses it."""
_HEADERS = {
    "Cache-Control": "no-cache",  # modules of two versions must not meet
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def _serve(path: str, file: Traversable) -> None:
    content = file.read_bytes()
    media_type = _TYPES[PurePosixPath(file.name).suffix]
    headers = _HEADERS | {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}

    async def answer(request: Request) -> Response:
        if not none_match(request.headers.get("if-none-match"), headers["ETag"]):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    router.add_api_route(path, answer, methods=["GET"])


for _file in resources.files("app").joinpath("console").iterdir():
    _serve("/" if _file.name == "index.html" else f"/console/{_file.name}", _file)
