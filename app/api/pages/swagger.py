"""Swagger UI, served from the package: it works without internet access and behind any proxy."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache, partial
from importlib import resources

from fastapi import APIRouter, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

from app.api.pages.examples import example_file
from app.formats.media_types import ARROW_STREAM, CSV

router = APIRouter(include_in_schema=False)

_FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}


def _page() -> str:
    """Build the page. Its URLs are relative, so that no Host header decides where scripts come from."""
    response = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Rowveil - Swagger UI",
        swagger_js_url="swagger/swagger-ui-bundle.js",
        swagger_css_url="swagger/swagger-ui.css",
        swagger_favicon_url="swagger/favicon-32x32.png",
        swagger_ui_parameters={
            "tryItOutEnabled": True,
            "displayRequestDuration": True,
            "displayOperationId": True,
        },
    )
    html = bytes(response.body).decode().replace("<html>", '<html lang="en">', 1)
    own = '<script src="swagger/swagger.js"></script>\n    <script src="swagger/swagger-ui-bundle.js">'
    html = html.replace('<script src="swagger/swagger-ui-bundle.js">', own, 1)
    options = "\n        requestInterceptor: withExample,\n        plugins: [resolveInPart],"
    return html.replace("SwaggerUIBundle({", f"SwaggerUIBundle({{{options}", 1)


_PAGE = _page()

_SCRIPTS = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    for script in re.findall(r"<script>(.*?)</script>", _PAGE, re.DOTALL)
)

_POLICY = (
    f"default-src 'none'; script-src 'self' {_SCRIPTS}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles on its elements; scripts are limited to its own files and the page's, by digest."""


@router.get("/docs")
async def page() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _POLICY})


def _file(name: str, media_type: str, read: Callable[[], bytes]) -> None:
    content = cache(read)

    def answer() -> Response:  # in a thread, because the first request reads the file
        return Response(content(), media_type=media_type, headers={"Cache-Control": "max-age=86400"})

    router.add_api_route(f"/swagger/{name}", answer, methods=["GET"])


for _name, _media_type in _FILES.items():
    _file(_name, _media_type, resources.files("fastapi_swagger.resources").joinpath(_name).read_bytes)

_file("swagger.js", "text/javascript", resources.files("app.api.pages").joinpath("swagger.js").read_bytes)

_file("people.csv", CSV, partial(example_file, "csv"))

_file("people.arrow", ARROW_STREAM, partial(example_file, "arrow"))
