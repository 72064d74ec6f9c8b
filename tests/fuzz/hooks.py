"""What Schemathesis is told of the service beyond its document. Loaded by it: SCHEMATHESIS_HOOKS."""

import zlib
from typing import Any, TypeAlias

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, HookContext, Response

from tests.fuzz.good_calls import arrow_stream, csv_file, grounded, parquet_file
from tests.fuzz.marks import found_in, marked

AnyCase: TypeAlias = "Case[Any]"
_ARROW = "application/vnd.apache.arrow.stream"
_OF_A_JOB = (
    "getJob", "getJobRows", "getJobReport", "getJobManifest", "watchJob", "rerunJob", "cancelJob",
    "deleteJob", "revealSeed",
)  # fmt: skip
_OF_A_BUFFER = ("getBuffer", "getBufferRows", "deleteBuffer")
_MEMBERS = {"type", "title", "status", "detail", "code", "instance"}
_WITH_VALUES = {"getJobRows", "getBufferRows", "revealSeed"}
"""What is asked for rows, or for a seed, answers them; a run answers the rows that came inline."""


# ------------------------------------------------------------------------------------- what is sent


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Say which calls follow which: the document has no links, as many client generators trip over them."""
    for operations in raw_schema["paths"].values():
        for operation in operations.values():
            for status in ("200", "201", "202"):
                answer = operation["responses"].get(status, {})
                schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
                kind = schema.get("$ref", "").rpartition("/")[2]
                following = {"Job": _OF_A_JOB, "Buffer": _OF_A_BUFFER}.get(kind, ())
                parameter = {"Job": "job_id", "Buffer": "buffer_id"}.get(kind, "")
                if operation["operationId"] in ("getJob", "cancelJob", "getBuffer"):
                    continue
                for name in following:
                    answer.setdefault("links", {})[name] = {
                        "operationId": name,
                        "parameters": {parameter: "$response.body#/id"},
                    }


def _damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The file, or a beginning of it, or it with one byte changed."""
    places = st.integers(0, len(whole) - 1)
    changed = st.tuples(places, st.integers(0, 255)).map(
        lambda change: whole[: change[0]] + bytes([change[1]]) + whole[change[0] + 1 :]
    )
    return st.one_of(st.just(whole), places.map(lambda end: whole[:end]), changed, st.binary(max_size=200))


schemathesis.openapi.media_type(_ARROW, _damaged(arrow_stream()))
schemathesis.openapi.format(
    "binary", st.one_of([_damaged(whole) for whole in (csv_file(), parquet_file(), arrow_stream())])
)


@schemathesis.hook
def before_call(context: HookContext, case: AnyCase, kwargs: dict[str, Any]) -> None:
    """Give three calls of four that may be right the rows that they lack; put a mark in all secrets."""
    if not isinstance(case.body, dict):
        return
    positive = case.meta is None or case.meta.generation.mode.is_positive
    operation = case.operation.definition.raw["operationId"]
    if positive and zlib.crc32(repr(case.body).encode()) % 4:
        case.body = grounded(operation, case.body)
    elif positive:
        case.body = {name: value for name, value in case.body.items() if name != "validate_only"}
    case.body = marked(case.body)


# ---------------------------------------------------------------------------------- what is checked


@schemathesis.check
def problem_documents(context: CheckContext, response: Response, case: AnyCase) -> None:
    """Every refusal is a problem document (RFC 9457) that says what, where and with which status."""
    if response.status_code < 400 or response.request.method == "HEAD":
        return
    assert response.headers["content-type"] == ["application/problem+json"], "not a problem document"
    document = response.json()
    assert document.keys() >= _MEMBERS, f"lacks {_MEMBERS - document.keys()}"
    assert document["status"] == response.status_code
    assert document["type"].startswith("urn:rowveil:problem:")
    assert document["detail"].strip(), "says nothing"
    for item in document.get("errors", ()):
        assert item["message"].strip(), "an error says nothing"


@schemathesis.check
def no_secret_is_told(context: CheckContext, response: Response, case: AnyCase) -> None:
    """No value of a row, seed or webhook's secret is in an answer that is not asked for it."""
    operation = case.operation.definition.raw["operationId"]
    text = response.content.decode("utf-8", "replace")
    if response.status_code < 400 and (operation in _WITH_VALUES or '"destination"' in text):
        return
    found = found_in(text)
    assert found is None, f"{operation} tells {found}"
