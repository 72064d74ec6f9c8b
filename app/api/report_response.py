"""Report responses: JSON or the self-contained HTML page, by content negotiation."""

from typing import Any

from anyio import to_thread
from fastapi import Response

from app.api.report_schemas import Report
from app.errors import NotAcceptable
from app.formats.media_types import JSON, negotiate
from app.report.style import CONTENT_SECURITY_POLICY

HTML = "text/html"

REPORT_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report.",
        "headers": {"Content-Disposition": {"schema": {"type": "string"}, "description": "A file name."}},
        "content": {
            JSON: {"schema": {"$ref": "#/components/schemas/Report"}},
            HTML: {"schema": {"type": "string"}},
        },
    }
}
"""OpenAPI 200 response of an operation that returns a report."""


async def report_response(job: dict[str, Any], report: dict[str, Any], accept: str | None) -> Response:
    """Return the report in the preferred type of `accept`; JSON without a preference.

    Raises
    ------
    NotAcceptable
        Neither type is acceptable.
    """
    media_type = negotiate(accept, (JSON, HTML))
    if media_type is None:
        raise NotAcceptable(f"Accept takes none of the types that a report is available as: {JSON} or {HTML}")
    ending = "html" if media_type == HTML else "json"
    headers = {
        "Content-Disposition": f'inline; filename="rowveil-report-{job["id"]}.{ending}"',
        "Vary": "Accept",
    }
    if media_type == JSON:
        content = Report.model_validate(report).model_dump_json(exclude_none=True)
        return Response(content, headers=headers, media_type=JSON)
    headers["Content-Security-Policy"] = f"{CONTENT_SECURITY_POLICY}; frame-ancestors 'none'"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    page = await to_thread.run_sync(_page, job, report)
    return Response(page, headers=headers, media_type=HTML)


def _page(job: dict[str, Any], report: dict[str, Any]) -> str:
    from app.report.page import html_report  # imported late: the first page needs Jinja and all plots

    return html_report(job, report)
