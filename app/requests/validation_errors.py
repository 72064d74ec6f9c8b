"""Validation errors of a request: one message per location, as a JSON pointer into the body."""

from collections.abc import Iterable, Sequence
from typing import Any

from providers.errors import reference_token
from providers.params import OPTIM_OPERANDS, SERIES_NAME, fault_message

DIGEST = "^sha256t?:[0-9a-f]{64}$"
"""Pattern of a table's digest, in either form."""

NOT_BLANK = r"\S"
"""Pattern of a text that has a character other than white space."""

_OF_PATTERNS = {
    DIGEST: "a digest is 'sha256t:' or 'sha256:' and 64 hexadecimal digits, as a job or a buffer shows it",
    NOT_BLANK: "the text has only white space; write it out",
    SERIES_NAME: "a series' name is 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first",
}
"""Pattern of a text -> message for a text that does not match it; pydantic's shows the pattern alone."""

MOST_ERRORS = 100
"""Most errors that a response lists; a small request may have an error at every second byte."""


def json_pointer(parts: tuple[Any, ...]) -> str:
    """Return the JSON pointer (RFC 6901) of a location, such as ``/parameters/swap_fields/0``."""
    return "".join(f"/{reference_token(part)}" for part in parts)


def pointer_as_sent(pointer: str, body: Any) -> str:
    """Return the JSON pointer with Optim's name of a parameter, and the index of a single element, as sent.

    Services check their parameters by our names, and do not know whether a single element was in a list. A
    value below Optim's name may have another form than ours, such as names in one text instead of a list; the
    pointer then ends at that name.
    """
    parts: list[str] = []
    renamed = False
    for token in pointer.split("/")[1:]:
        name: Any = token.replace("~1", "/").replace("~0", "~")
        if isinstance(body, dict) and name not in body and (operand := _operand_in(body, name)):
            name, renamed = operand, True
        elif isinstance(body, list) and token.isdecimal():
            name = int(token)
        elif isinstance(body, list) and len(body) == 1:
            (body,) = body
            parts.append("/0")
        known = body if isinstance(body, dict) else range(len(body) if isinstance(body, list) else 0)
        inside = name in known
        if renamed and not inside:
            break
        body = body[name] if inside else None
        parts.append(f"/{reference_token(name)}")
    return "".join(parts)


def _operand_in(body: dict[Any, Any], name: Any) -> str | None:
    """Return the member of the body that has a parameter by its Optim name, if there is one."""
    operands = (operand for operand, ours in OPTIM_OPERANDS.items() if ours == name)
    return next((operand for operand in operands if operand in body), None)


def error_items(faults: Iterable[Any], body: Any) -> list[dict[str, str]]:
    """Return the validation errors without duplicates: the innermost location, one branch of each union.

    The message of the last of `MOST_ERRORS` says that no more are listed.

    ``faults``: pydantic's errors, each with the part of the request as the first part of its location;
    ``body``: the body that was sent.
    """
    items: dict[str, dict[str, str]] = {}
    ancestors: set[str] = set()
    for fault in faults:
        if len(items) == MOST_ERRORS:
            last = next(reversed(items.values()))
            last["message"] += f" (only the first {MOST_ERRORS} errors are listed)"
            break
        location, *path = fault["loc"]
        pattern = fault.get("ctx", {}).get("pattern")
        message = _OF_PATTERNS.get(pattern) or fault_message(fault)
        if location != "body":
            # Branches of unions follow the parameter's name, and indices of a list are no use to a reader.
            name = str(path[0]) if path else str(location)
            if fault["type"] == "none_required":
                continue
            items.setdefault(name, {"parameter": name, "message": message})
            continue
        if fault["type"] == "missing" and not path:
            message = "nothing was sent; send a JSON object"
        missing = [path.pop()] if fault["type"] == "missing" and path else []
        if fault["type"] == "unknown_name":
            missing = [*filter(None, [fault["ctx"].get("within")]), fault["ctx"]["name"]]
        parts = _path_in(body, path) + tuple(missing)
        pointer = json_pointer(parts)
        items.setdefault(pointer, {"pointer": pointer, "message": message})
        ancestors.update(json_pointer(parts[:depth]) for depth in range(len(parts)))
    return [item for place, item in items.items() if "parameter" in item or place not in ancestors]


def _path_in(body: Any, path: Sequence[Any]) -> tuple[Any, ...]:
    """Return the part of the path that exists in the body; locations also name union branches, which do not.

    A parameter given by Optim's name keeps that name, and the seed its place among the parameters.
    """
    found: list[Any] = []
    if path and path[0] == "seed" and isinstance(body, dict) and "seed" not in body:
        parameters = body.get("parameters")
        if isinstance(parameters, dict) and "SWAP_SEED" in parameters:
            path = ("parameters", "SWAP_SEED", *path[1:])
    for name in path:
        part = name
        if isinstance(body, dict) and name not in body:
            part = _operand_in(body, name) or name
        inside = isinstance(body, dict) and part in body
        if inside or (isinstance(body, list) and isinstance(part, int) and part < len(body)):
            body = body[part]
            found.append(part)
    return tuple(found)
