"""Style sheet of a report's page, and the content security policy that allows it and nothing else."""

import hashlib
from base64 import b64encode
from importlib.resources import files

CSS = (files("app.report") / "templates" / "report.css").read_text(encoding="utf-8")
"""Style sheet, which each page contains."""

STYLE_SOURCE = f"'sha256-{b64encode(hashlib.sha256(CSS.encode()).digest()).decode()}'"
"""Source expression of the page's style sheet in its content security policy."""
CONTENT_SECURITY_POLICY = f"default-src 'none'; style-src {STYLE_SOURCE}; base-uri 'none'; form-action 'none'"
"""Content security policy: nothing is loaded or run, and only the page's own style sheet is applied."""
