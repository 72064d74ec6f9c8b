"""A job's report as one self-contained HTML page, made of plain JSON values alone."""

from app.report.page import CONTENT_SECURITY_POLICY, STYLE_SOURCE, html_report

__all__ = ["CONTENT_SECURITY_POLICY", "STYLE_SOURCE", "html_report"]
