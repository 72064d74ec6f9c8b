"""The OpenAPI document: the framework's, less what this service does not answer."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.examples import add_examples
from app.api.report_schemas import Report
from app.api.responses import problems
from app.api.schemas import ProgressUpdate, Rows
from app.api.scopes import NEEDED
from app.callers import SCOPES

_BEARER = "An API key (`rv_...`, made by `rowveil keys create`), or a token of the configured OIDC issuer."


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made once.

    The framework describes a 422 of its own for every operation with a parameter; here every error
    is a problem document, and operations that can answer 422 say so themselves.
    """
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for operations in made["paths"].values():
            for operation in operations.values():
                for answer in operation["responses"].values():
                    events = answer.get("content", {}).get("text/event-stream", {})
                    events.pop("itemSchema", None)  # which is OpenAPI 3.2
                if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                    del operation["responses"]["422"]
                _guard(operation)
                add_examples(operation)
        schemas = made["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError", "Seed"):
            schemas.pop(name, None)
        for model in (Report, Rows, ProgressUpdate):  # in answers that have several types, or events
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            described.pop("$defs", None)
            schemas[model.__name__] = described
        scopes = f"{_BEARER} Scopes: " + "; ".join(f"`{scope}`: {does}" for scope, does in SCOPES.items())
        made["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": f"{scopes}."}
        }
        for schema in _within(schemas):
            if isinstance(schema.get("default"), dict) and _refers(schema):
                del schema["default"]  # it says no more than the model's own; generators leave the model out
        app.openapi_schema = made
    return app.openapi_schema


def _guard(operation: dict[str, Any]) -> None:
    """Say which scope the operation needs, and what it answers those without."""
    scope = NEEDED[operation["operationId"]]
    if scope is None:
        operation["security"] = []
        return
    operation["security"] = [{"bearer": [scope]}]
    refusals = {str(status): answer for status, answer in problems(401, 403).items() if status != 500}
    operation["responses"] |= refusals


def _within(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(inner)


def _refers(schema: dict[str, Any]) -> bool:
    """Whether it is a model, or may be one."""
    return any("$ref" in branch for branch in (schema, *schema.get("anyOf", ())))
