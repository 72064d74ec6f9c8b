"""Validation errors of a request: one message per location, as a JSON pointer into the body."""

from collections.abc import Iterable, Sequence
from typing import Any

from providers.errors import reference_token
from providers.params import OPTIM_OPERANDS, fault_message


def json_pointer(parts: tuple[Any, ...]) -> str:
    """Return the JSON pointer (RFC 6901) of a location, such as ``/parameters/swap_fields/0``."""
    return "".join(f"/{reference_token(part)}" for part in parts)


def error_items(faults: Iterable[Any], body: Any) -> list[dict[str, str]]:
    """Return the validation errors without duplicates: the innermost location, one branch of each union.

    ``faults``: pydantic's errors, each with the part of the request as the first part of its location;
    ``body``: the body that was sent.
    """
    items: dict[str, dict[str, str]] = {}
    for fault in faults:
        location, *path = fault["loc"]
        message = fault_message(fault)
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
        pointer = json_pointer(_path_in(body, path) + tuple(missing))
        items.setdefault(pointer, {"pointer": pointer, "message": message})
    return [
        item for place, item in items.items() if not any(other.startswith(f"{place}/") for other in items)
    ]


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
            part = next((each for each in body if OPTIM_OPERANDS.get(each) == name), name)
        inside = isinstance(body, dict) and part in body
        if inside or (isinstance(body, list) and isinstance(part, int) and part < len(body)):
            body = body[part]
            found.append(part)
    return tuple(found)
