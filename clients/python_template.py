"""Write the template of openapi-python-client with bodies and responses of several media types."""

import sys
from pathlib import Path

import openapi_python_client

NAME = "endpoint_module.py.jinja"

STATED = '"{{ body.content_type | in_double_quote_literal }}"'

CHANGES = {
    # A body of several types is one `File`. The generator sends it as the last type, whatever it is. Here
    # `mime_type` decides, and the first type is the default.
    f'headers["Content-Type"] = {STATED}': (
        'headers.setdefault("Content-Type", {% if body.body_type == "content" %}body.mime_type or {% endif %}'
        f"{STATED})"
    ),
    # The generator parses a response of several types as the first one, whatever `Accept` requested. Here
    # only JSON is parsed; a file is in `content`.
    "        {{ parse_response(parsed_responses, response) | indent(8) }}": (
        "    {% if response.data.content and response.data.content | length > 1 %}\n"
        '        if not response.headers.get("Content-Type", "").startswith("application/json"):\n'
        "            return None\n"
        "    {% endif %}\n"
        "        {{ parse_response(parsed_responses, response) | indent(8) }}"
    ),
}
"""Text of the generator's own template -> its replacement."""


def main(folder: Path) -> None:
    """Write the template into the folder. Raises ValueError: the generator's own is another one."""
    template = Path(openapi_python_client.__path__[0], "templates", NAME).read_text(encoding="utf-8")
    for own, changed in CHANGES.items():
        if own not in template:
            raise ValueError(f"the template of openapi-python-client no longer contains: {own}")
        template = template.replace(own, changed)
    (folder / NAME).write_text(template, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
