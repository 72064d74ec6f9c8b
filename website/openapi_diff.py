"""Changes of the OpenAPI document that break clients generated from an earlier one.

A request may require less and accept more; a response may contain more, and must keep what it had.
Descriptions, examples and errors are free. A new value in an enumeration of a response counts as a break,
because generated clients know the existing values only.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Way = Literal["request", "answer"]

_METHODS = ("get", "put", "post", "delete", "patch")

_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems")

_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def allows_breaking(released: str, current: str) -> bool:
    """Return whether the version allows breaking changes: a new major, or before 1.0 a new minor."""
    before, after = ([int(part) for part in version.split(".")[:2]] for version in (released, current))
    return after > before if before[0] == 0 else after[0] > before[0]


def breaking_changes(released: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return one line for each property of the released document that clients can no longer rely on."""
    return list(dict.fromkeys(_Comparison(released, current).changes()))


class _Comparison:
    """Comparison of two documents."""

    def __init__(self, released: Mapping[str, Any], current: Mapping[str, Any]) -> None:
        self._released = released
        self._current = current
        self._seen: set[tuple[str, str, Way]] = set()

    def changes(self) -> Iterator[str]:
        for path, operations in self._released["paths"].items():
            for method in _METHODS:
                if method not in operations:
                    continue
                place = f"{method.upper()} {path}"
                now = self._current["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{place}: the operation is gone"
                else:
                    yield from self._operation(place, operations[method], now)

    def _operation(self, place: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
        if was.get("operationId") != now.get("operationId"):
            yield f"{place}: its id was {was.get('operationId')} and is {now.get('operationId')}"
        if now.get("security") and not was.get("security"):
            yield f"{place}: it needs credentials now"
        yield from self._parameters(place, was.get("parameters", []), now.get("parameters", []))
        yield from self._body(place, was.get("requestBody"), now.get("requestBody"))
        for status, answer in was["responses"].items():
            if not status.startswith("2"):
                continue
            if status not in now["responses"]:
                yield f"{place}: it does not answer {status} any more"
                continue
            answers = now["responses"][status].get("content", {})
            for media_type, content in answer.get("content", {}).items():
                if media_type not in answers:
                    yield f"{place}: {status} is not to be had as {media_type} any more"
                else:
                    what = f"{place}: {status}"
                    yield from self._schemas(
                        what, content.get("schema", {}), answers[media_type].get("schema", {}), "answer"
                    )

    def _parameters(self, place: str, was: list[Any], now: list[Any]) -> Iterator[str]:
        before = {(each["in"], each["name"]): each for each in was}
        after = {(each["in"], each["name"]): each for each in now}
        for key, parameter in before.items():
            what = f"{place}: {key[0]} parameter '{key[1]}'"
            if key not in after:
                yield f"{what} is gone"
                continue
            if after[key].get("required") and not parameter.get("required"):
                yield f"{what} is required now"
            yield from self._schemas(what, parameter["schema"], after[key]["schema"], "request")
        for key, parameter in after.items():
            if key not in before and parameter.get("required"):
                yield f"{place}: {key[0]} parameter '{key[1]}' is new, and required"

    def _body(self, place: str, was: dict[str, Any] | None, now: dict[str, Any] | None) -> Iterator[str]:
        if now is not None and now.get("required") and not (was or {}).get("required"):
            yield f"{place}: the body is required now"
        after = (now or {}).get("content", {})
        for media_type, content in (was or {}).get("content", {}).items():
            if media_type not in after:
                yield f"{place}: the body is not taken as {media_type} any more"
            else:
                yield from self._schemas(
                    f"{place}: body",
                    content.get("schema", {}),
                    after[media_type].get("schema", {}),
                    "request",
                )

    def _schemas(self, place: str, was: dict[str, Any], now: dict[str, Any], way: Way) -> Iterator[str]:
        names = was.get("$ref", ""), now.get("$ref", "")
        if all(names):
            if (*names, way) in self._seen:
                return
            self._seen.add((*names, way))
            place = f"{names[0].rpartition('/')[2]} ({way})"
        was, now = self._resolved(self._released, was), self._resolved(self._current, now)
        yield from self._branches(place, was, now, way)
        yield from self._values(place, was, now, way)
        yield from self._properties(place, was, now, way)
        if "items" in was and "items" in now:
            yield from self._schemas(f"{place}[]", was["items"], now["items"], way)
        inner = was.get("additionalProperties"), now.get("additionalProperties")
        if isinstance(inner[0], dict) and isinstance(inner[1], dict):
            yield from self._schemas(f"{place}{{}}", inner[0], inner[1], way)

    @staticmethod
    def _resolved(document: Mapping[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in schema:
            return schema
        found: dict[str, Any] = document["components"]["schemas"].get(schema["$ref"].rpartition("/")[2], {})
        return found

    def _branches(self, place: str, was: dict[str, Any], now: dict[str, Any], way: Way) -> Iterator[str]:
        """Compare unions: all accepted types must remain, and responses must not get new ones."""
        before, after = _options(was), _options(now)
        if len(before) == len(after) == 1:
            return
        narrow, wide = (before, after) if way == "request" else (after, before)
        for branch in narrow:
            pairs = [(branch, other) if way == "request" else (other, branch) for other in wide]
            if not any(self._fits(*pair, way) for pair in pairs):
                yield f"{place}: one of its forms is {'gone' if way == 'request' else 'new'}"

    def _fits(self, was: dict[str, Any], now: dict[str, Any], way: Way) -> bool:
        # A separate comparison: its findings are a break only if no other branch fits.
        return not list(_Comparison(self._released, self._current)._schemas("", was, now, way))

    @staticmethod
    def _values(place: str, was: dict[str, Any], now: dict[str, Any], way: Way) -> Iterator[str]:
        if any(several in schema for schema in (was, now) for several in ("anyOf", "oneOf")):
            return
        narrow, wide = (was, now) if way == "request" else (now, was)
        kinds, allowed = _types(narrow), _types(wide)
        if allowed and not (kinds and kinds <= allowed):
            yield f"{place}: its type was {_named(was)} and is {_named(now)}"
        values, known = _enumerated(narrow), _enumerated(wide)
        if known is not None and (values is None or not values <= known):
            diff = sorted(map(str, (values or set()) - known))
            yield f"{place}: values {'gone' if way == 'request' else 'new'}: {', '.join(diff) or 'any other'}"
        if way == "answer":
            return
        for bound in _LEAST:
            if bound in now and now[bound] > was.get(bound, float("-inf")):
                yield f"{place}: {bound} was {was.get(bound, 'none')} and is {now[bound]}"
        for bound in _MOST:
            if bound in now and now[bound] < was.get(bound, float("inf")):
                yield f"{place}: {bound} was {was.get(bound, 'none')} and is {now[bound]}"
        if "pattern" in now and now["pattern"] != was.get("pattern"):
            yield f"{place}: its pattern is another"

    def _properties(self, place: str, was: dict[str, Any], now: dict[str, Any], way: Way) -> Iterator[str]:
        before, after = was.get("properties", {}), now.get("properties", {})
        required = set(was.get("required", ())), set(now.get("required", ()))
        for name, schema in before.items():
            if name not in after:
                yield f"{place}: '{name}' is gone"
            else:
                yield from self._schemas(f"{place}/{name}", schema, after[name], way)
        if way == "request":
            for name in sorted(required[1] - required[0]):
                yield f"{place}: '{name}' is required now"
            if was.get("additionalProperties", True) and now.get("additionalProperties", True) is False:
                yield f"{place}: other names are refused now"
        else:
            for name in sorted((required[0] - required[1]) & after.keys()):
                yield f"{place}: '{name}' may be missing now"


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    several = schema.get("anyOf") or schema.get("oneOf")
    return list(several) if several else [schema]


def _types(schema: dict[str, Any]) -> set[str]:
    """Return the JSON types; empty if any is allowed. An integer is a number."""
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    return types | {"integer"} if "number" in types else types


def _named(schema: dict[str, Any]) -> str:
    return " or ".join(sorted(_types(schema))) or "any"


def _enumerated(schema: dict[str, Any]) -> set[Any] | None:
    if "const" in schema:
        return {schema["const"]}
    return set(schema["enum"]) if "enum" in schema else None
