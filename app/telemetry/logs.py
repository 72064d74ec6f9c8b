"""Log formats: text for people, or one JSON object per line for programs.

A line never contains an error's own message, since a library's may quote a value of a row. It has the error's
type and its locations in the code.
"""

import logging
import re
import sys
import time
import traceback
from types import TracebackType
from typing import Any

import orjson

from app.telemetry.request_id import REQUEST_ID
from app.telemetry.tracing import trace_id

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_REPRESENTED = re.compile(r"[\n(<]")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line or control a terminal. A decoded path, which a client chose, may have them."""

FIELDS = "fields"
"""Key of additional members: ``extra={FIELDS: {...}}``."""


class JsonFormatter(logging.Formatter):
    """JSON formatter: ``{"time", "level", "logger", "message"}``, ids of request and trace, extra members."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if found := trace_id():
            line["trace_id"] = found
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["error"] = places(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """Text formatter: time, level, logger, message, additional members as ``name=value``, request id."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line."""
        added = "".join(f" {name}={value}" for name, value in getattr(record, FIELDS, {}).items())
        request_id = REQUEST_ID.get()
        ended = f" [{request_id}]" if request_id else ""
        error = f" ({places(record.exc_info)})" if record.exc_info else ""
        head = f"{self.formatTime(record)} {record.levelname} {record.name}: {message_of(record)}"
        return _CONTROL.sub(_escaped, f"{head}{added}{error}{ended}")


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def message_of(record: logging.LogRecord) -> str:
    """Return the record's message; of a message of asyncio only its first words.

    asyncio appends the representation of the task or callback, with its arguments and the error's message.
    """
    message = record.getMessage()
    return _REPRESENTED.split(message, 1)[0].rstrip() if record.name == "asyncio" else message


def places(error: _ExcInfo) -> str:
    """Return the error's type and its locations in the code, without its message."""
    kind, _, trace = error
    if kind is None:
        return ""
    frames = traceback.extract_tb(trace)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
    return f"{kind.__module__}.{kind.__qualname__} at {where}"


def set_up_logs(form: str, level: str) -> None:
    """Log to standard error in one of the two formats."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("rowveil").setLevel(level.upper())
