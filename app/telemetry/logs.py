"""How log lines are written: as text for people, or as one JSON object a line for programs.

An error's own message never stands in a line: a library's may quote a value of a row. Its type and the
places in the code do.
"""

import logging
import re
import sys
import time
import traceback
from types import TracebackType
from typing import Any

import orjson

from app.telemetry.requests import REQUEST_ID
from app.telemetry.tracing import trace_id

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_REPRESENTED = re.compile(r"[\n(<]")

FIELDS = "fields"
"""``extra={FIELDS: {...}}`` adds members to the line."""


class JsonFormatter(logging.Formatter):
    """``{"time", "level", "logger", "message"}``, the request's and the trace's id, and what was added."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
    """Time, level, logger, message; what was added as ``name=value``; the request's id at the end."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        added = "".join(f" {name}={value}" for name, value in getattr(record, FIELDS, {}).items())
        request_id = REQUEST_ID.get()
        ended = f" [{request_id}]" if request_id else ""
        error = f" ({places(record.exc_info)})" if record.exc_info else ""
        head = f"{self.formatTime(record)} {record.levelname} {record.name}: {message_of(record)}"
        return f"{head}{added}{error}{ended}"


def message_of(record: logging.LogRecord) -> str:
    """What the record says; of asyncio's own no more than its first words.

    It goes on with the task or the callback at fault as it is represented, which has the error's message in
    it, and the arguments.
    """
    message = record.getMessage()
    return _REPRESENTED.split(message, 1)[0].rstrip() if record.name == "asyncio" else message


def places(error: _ExcInfo) -> str:
    """The error's type and where it arose, without its message."""
    kind, _, trace = error
    if kind is None:
        return ""
    frames = traceback.extract_tb(trace)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
    return f"{kind.__module__}.{kind.__qualname__} at {where}"


def set_up_logs(form: str, level: str) -> None:
    """Write what this process logs to the standard error, in one of the two forms."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("rowveil").setLevel(level.upper())
