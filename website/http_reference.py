"""HTTP reference page derived from the OpenAPI document: `docs/http-reference.md`."""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from app.api.pages.openapi import SCOPE
from app.errors import AppError, InvalidRequest
from providers import PROVIDERS
from providers.errors import ProviderError
from website.service_pages import parameter_table

Json = dict[str, Any]

E = TypeVar("E", bound=Exception)

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
"""Link that works only in Swagger UI."""

_TAGS = {
    "services": "Services",
    "jobs": "Jobs",
    "buffers": "Buffers",
    "measures": "Measures and comparison of services",
    "health": "Health",
}

_ABOUT = """\
All operations, generated from the OpenAPI document of the service. [The HTTP contract](http.md) explains
how they work together. `GET /openapi.json` returns the document, and `/docs` has a page to try requests."""


def http_page(document: Json) -> str:
    """Return operations, models and error codes as Markdown."""
    parts = ["# HTTP reference", _ABOUT]
    for tag, title in _TAGS.items():
        parts += [f"## {title}", *_operations(document, tag)]
    parts += ["## Models", *_models(document["components"]["schemas"])]
    parts += [
        "## Error codes",
        _CODES,
        _error_codes(),
        "*Generated from the code by `make docs`.*",
    ]
    return "\n\n".join(parts) + "\n"


def _operations(document: Json, tag: str) -> Iterator[str]:
    runs: list[tuple[str, Json]] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag not in operation["tags"]:
                continue
            if path.rpartition("/")[2] in PROVIDERS:
                runs.append((path, operation))
            else:
                yield from _operation(f"{method.upper()} {path}", operation)
    if runs:
        yield from _runs(runs)


def _runs(runs: list[tuple[str, Json]]) -> Iterator[str]:
    """Return the operations of the services, which differ only in their parameters."""
    lines = ["| operation | id | parameters |", "| --- | --- | --- |"]
    for path, operation in runs:
        identifier = path.rpartition("/")[2]
        page = f"[{operation['summary']}](services/{identifier}.md)"
        lines.append(f"| `POST {path}` | `{operation['operationId']}` | {page} |")
    yield "### Run a service"
    yield "\n".join(lines)
    media = "`, `".join(_bodies(runs[0][1]))
    yield from _details(runs[0][1], f"`{media}` [call of a service](#call-of-a-service)")


def _operation(title: str, operation: Json) -> Iterator[str]:
    yield f"### {title}"
    described = _LINK.sub(r"\1", operation.get("description", "").partition("Required scope:")[0].strip())
    heading = f"{operation['summary']}." if not operation["summary"].endswith("?") else operation["summary"]
    yield f"{heading} {described}".strip() + f" Operation id: `{operation['operationId']}`."
    bodies = [
        f"`{media}`" + (f" {_linked(content['schema'])}" if _linked(content.get("schema", {})) else "")
        for media, content in _bodies(operation).items()
    ]
    yield from _details(operation, ", ".join(bodies))


def _details(operation: Json, body: str) -> Iterator[str]:
    """Return scope, body, parameters and responses."""
    scope = f"scope `{operation[SCOPE]}`" if SCOPE in operation else "no API key"
    yield f"Required: {scope}." + (f" Body: {body}." if body else "")
    if operation.get("parameters"):
        lines = ["| parameter | in | meaning |", "| --- | --- | --- |"]
        for parameter in operation["parameters"]:
            meaning = " ".join(parameter.get("description", "").split()).replace("|", "\\|")
            lines.append(f"| `{parameter['name']}` | {parameter['in']} | {meaning} |".replace("|  |", "| |"))
        yield "\n".join(lines)
    lines = ["| status | response | meaning |", "| --- | --- | --- |"]
    for status, response in sorted(operation["responses"].items()):
        meaning = " ".join(response["description"].split()).replace("|", "\\|")
        meaning = meaning.replace("Successful Response", "Success.")
        lines.append(f"| {status} | {_answer(response)} | {meaning} |".replace("|  |", "| |"))
    yield "\n".join(lines)


def _bodies(operation: Json) -> Json:
    bodies: Json = operation.get("requestBody", {}).get("content", {})
    return bodies


def _answer(response: Json) -> str:
    """Return the models of a response, or its media types if it has none."""
    content = response.get("content", {})
    models = [_linked(body.get("schema", {})) for body in content.values()]
    return ", ".join(
        dict.fromkeys(model or f"`{media}`" for media, model in zip(content, models, strict=True))
    )


def _linked(schema: Json) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"[{name}](#{name.lower()})" if name else ""


def _models(schemas: Json) -> Iterator[str]:
    """Return every request and response model except the services' parameters, which have their own pages."""
    own = {f"{identifier.title()}{kind}" for identifier in PROVIDERS for kind in ("Params", "Request")}
    yield "### Call of a service"
    yield (
        "`parameters` is the service's own model, documented on its page; the other members are the same "
        "for all services."
    )
    yield _members(schemas[f"{next(iter(PROVIDERS)).title()}Request"])
    for name, schema in schemas.items():
        if schema.get("properties") and name not in own:
            yield f"### {name}"
            yield " ".join(schema.get("description", "").split())
            yield _members(schema)


def _members(schema: Json) -> str:
    return parameter_table(schema).replace("| parameter |", "| member |", 1)


_CODES = """\
Values of `code` in a [problem](#problem). A failed job has its problem in `error`."""


def _error_codes() -> str:
    found = {kind.code: (InvalidRequest.status, _meaning(kind)) for kind in reversed(_kinds(ProviderError))}
    found |= {kind.code: (kind.status, _meaning(kind)) for kind in reversed(_kinds(AppError))}
    found[AppError.code] = (AppError.status, "Internal error of the service.")
    lines = ["| code | status | meaning |", "| --- | --- | --- |"]
    for code, (status, meaning) in sorted(found.items(), key=lambda item: (item[1][0], item[0])):
        lines.append(f"| `{code}` | {status} | {meaning} |")
    return "\n".join(lines)


def _kinds(base: type[E]) -> list[type[E]]:
    """Return the class and all its subclasses, each before its own subclasses."""
    found = [base]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


def _meaning(kind: type[Exception]) -> str:
    return (kind.__doc__ or "").partition("\n")[0].replace("``", "`")
