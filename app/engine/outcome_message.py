"""Outcomes of tasks as bytes without code: JSON, and the binary values of a result after it.

A worker reads tables that others have written. If such a table makes it run foreign code, that code must not
get into the service: nothing that a worker returns is unpickled there.
"""

import json
import struct
from typing import Any

from pydantic_core import from_json

from app.engine.engine import INTERNAL_ERROR, Failure, Outcome

MOST_BYTES = 2**30
"""Largest message that the service accepts of a worker."""

_HEAD = struct.Struct("=Q")
"""Length of the JSON, before it."""

UNREADABLE = Failure(
    INTERNAL_ERROR, "the service failed at this job; its log has the cause under the job's id"
)
"""Outcome in place of a message that is none."""


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome. The values of a result are JSON values, and on the first level also bytes.

    Raises TypeError, ValueError: it has other values.
    """
    if isinstance(outcome, Failure):
        document: dict[str, Any] = {
            "failure": [outcome.code, outcome.message, outcome.pointer, list(outcome.trace)]
        }
        if outcome.lost:
            document["lost"] = True
        return _joined(document, [])
    binary = {name: value for name, value in outcome.items() if isinstance(value, bytes)}
    rest = {name: value for name, value in outcome.items() if name not in binary}
    sizes = [[name, len(value)] for name, value in binary.items()]
    return _joined({"result": rest, "binary": sizes}, list(binary.values()))


def decode_outcome(message: bytes | bytearray) -> Outcome:
    """Decode a message of a worker; one that is malformed is the outcome `UNREADABLE`."""
    try:
        return _decoded(memoryview(message))
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError):
        return Failure(UNREADABLE.code, UNREADABLE.message, trace=("the worker's message is malformed",))


def _joined(document: dict[str, Any], binary: list[bytes]) -> bytes:
    text = json.dumps(document, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return b"".join([_HEAD.pack(len(text)), text, *binary])


def _parsed(text: bytes) -> Any:
    """Return the JSON value; integers of any size are exact."""
    try:
        return from_json(text)
    except ValueError:  # such as half of a surrogate pair, which a name may have
        return json.loads(text)


def _decoded(message: memoryview) -> Outcome:
    (size,) = _HEAD.unpack_from(message)
    end = _HEAD.size + size
    document = _parsed(bytes(message[_HEAD.size : end]))
    if "failure" in document:
        code, text, pointer, trace = document["failure"]
        if not all(isinstance(value, str) for value in (code, text, pointer, *trace)):
            raise TypeError("a failure consists of texts")
        return Failure(code, text, pointer, tuple(trace), document.get("lost") is True)
    result: dict[str, Any] = dict(document["result"])
    for name, length in document["binary"]:
        if not isinstance(name, str) or length < 0 or end + length > len(message):
            raise ValueError("a binary value is outside of the message")
        result[name] = bytes(message[end : end + length])
        end += length
    if end != len(message):
        raise ValueError("bytes follow the last value")
    return result
