"""Schemathesis hooks with knowledge beyond the document, loaded by SCHEMATHESIS_HOOKS."""

import gc
import zlib
from typing import Any, TypeAlias

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, HookContext, Response

from tests.fuzz.good_calls import arrow_stream, csv_file, grounded, parquet_file
from tests.fuzz.marks import found_in, marked

AnyCase: TypeAlias = "Case[Any]"
_FILES = {
    "application/vnd.apache.arrow.stream": arrow_stream,
    "application/vnd.apache.parquet": parquet_file,
    "text/csv": csv_file,
}
_OF_A_JOB = (
    "getJob", "getJobRows", "getJobReport", "getJobManifest", "watchJob", "rerunJob", "cancelJob",
    "annotateJob", "deleteJob", "revealSeed",
)  # fmt: skip
_OF_A_BUFFER = (
    "getBuffer", "getBufferRows", "getBufferProfile", "copyBuffer", "annotateBuffer",
    "deleteBuffer",
)  # fmt: skip
_MEMBERS = {"type", "title", "status", "detail", "code", "instance"}
_WITH_VALUES = {"getJobRows", "getBufferRows", "getBufferProfile", "compareJobRows", "revealSeed"}
"""Operations whose responses contain rows or a seed on purpose. So do a run of inline rows, and
a preview with a trial run."""

gc.freeze()
gc.set_threshold(50_000, 20, 20)  # a seventh of Schemathesis's time goes to collections otherwise

# ------------------------------------------------------------------------------------- what is sent


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Declare sequences of operations: the document has no links, which many generators cannot handle.

    Event streams lose their schema. A change of a text may be null, which the document does not show to
    generators (decision 38).
    """
    change = raw_schema.get("components", {}).get("schemas", {}).get("AnnotationChange", {"properties": {}})
    change["properties"] = {
        name: {"anyOf": [text, {"type": "null"}]} for name, text in change["properties"].items()
    }
    for operations in raw_schema["paths"].values():
        for operation in operations.values():
            # Schemathesis takes the schema of an event stream for that of one event, not of the whole text.
            content = operation["responses"].get("200", {}).get("content", {})
            content.get("text/event-stream", {}).pop("schema", None)
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
    """Return the file, a prefix of it, or a copy with one byte changed."""
    places = st.integers(0, len(whole) - 1)
    changed = st.tuples(places, st.integers(0, 255)).map(
        lambda change: whole[: change[0]] + bytes([change[1]]) + whole[change[0] + 1 :]
    )
    return st.one_of(st.just(whole), places.map(lambda end: whole[:end]), changed, st.binary(max_size=200))


for _media_type, _whole in _FILES.items():
    schemathesis.openapi.media_type(_media_type, _damaged(_whole()))
schemathesis.openapi.format("binary", st.one_of([_damaged(make()) for make in _FILES.values()]))


@schemathesis.hook
def before_call(context: HookContext, case: AnyCase, kwargs: dict[str, Any]) -> None:
    """Give three of four potentially valid requests valid rows; put a mark into all secrets."""
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
    """Check that every rejection is a problem document (RFC 9457) with detail, location and status."""
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
def no_secret_is_revealed(context: CheckContext, response: Response, case: AnyCase) -> None:
    """Check that no response contains a value of a row, a seed or a webhook secret unless it should."""
    operation = case.operation.definition.raw["operationId"]
    text = response.content.decode("utf-8", "replace")
    if response.status_code < 400 and (
        operation in _WITH_VALUES or '"destination"' in text or '"trial"' in text
    ):
        return
    found = found_in(text)
    assert found is None, f"{operation} reveals {found}"
