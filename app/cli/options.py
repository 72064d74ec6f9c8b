"""Command line options derived from a model's fields, and the option of an error's JSON pointer."""

import argparse
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, create_model

from app.formats.json_text import unique_names
from providers.described_model import field_descriptions
from providers.errors import reference_token

_SCALARS = {"string", "number", "integer"}
_OPTION = "option: "
_QUOTED = re.compile(r"'(\w+)'")

_OF_HEADERS = re.compile(
    r"the `[^`]+` of the `Content-Type`, else |; `[^`]+` in the `Content-Type` means the same"
)
"""Parts of descriptions about headers of HTTP, which a file has not."""

_JSON_TEXTS = frozenset({"--csv-fields"})
"""Options whose JSON is a text in the request."""

Kind = Literal["switch", "text", "list", "json"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option, and the location in the request that it fills."""

    flag: str
    path: tuple[str, ...]
    kind: Kind
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    scalar: bool = False
    """For lists: whether a single value may be given instead."""

    @property
    def pointer(self) -> str:
        """JSON pointer to the location."""
        return "".join(f"/{reference_token(part)}" for part in self.path)


class Options:
    """Options of one command."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._options: list[Option] = []

    def add_model(
        self, model: type[BaseModel], path: tuple[str, ...] = (), prefix: str = "", only: Sequence[str] = ()
    ) -> None:
        """Add an option for each field, and recursively for the fields of a nested model.

        ``path``: location of the model in the request; ``prefix``: prefix of the options' names; ``only``:
        add only these fields, if not empty.
        """
        if only:  # the whole model may refer to schemas of the OpenAPI document
            fields, described = model.model_fields, field_descriptions(model)
            wanted: dict[str, Any] = {name: (fields[name].annotation, fields[name]) for name in only}
            model = create_model("Options", **wanted)
            schema = model.model_json_schema()
            for name in only:
                schema["properties"][name]["description"] = described[name]
        else:
            schema = model.model_json_schema()
        group = self._parser.add_argument_group((prefix or "parameters").replace("-", " "))
        for option in _options_of(schema, schema.get("$defs", {}), path, prefix):
            self._add(option, group)

    def given(self, namespace: argparse.Namespace) -> dict[str, Any]:
        """Return the request made of the options that were given. Raises ValueError."""
        request: dict[str, Any] = {}
        for option in self._options:
            value = getattr(namespace, _OPTION + option.flag, None)
            if value is None:
                continue
            target = request
            for part in option.path[:-1]:
                target = target.setdefault(part, {})
            target[option.path[-1]] = _value(option, value)
        return request

    def named(self, pointer: str) -> str:
        """Return the option for a JSON pointer, such as ``--swap-fields, item 2``; empty if there is none."""
        holding = [each for each in self._options if f"{pointer}/".startswith(f"{each.pointer}/")]
        if holding:
            option = max(holding, key=lambda each: len(each.pointer))
            rest = pointer[len(option.pointer) + 1 :]
            if not rest:
                return option.flag
            return f"{option.flag}, item {int(rest) + 1}" if rest.isdecimal() else f"{option.flag}, at {rest}"
        below = [each.flag for each in self._options if each.pointer.startswith(f"{pointer}/")]
        return ", ".join(below) if pointer.count("/") > 1 else ""

    def in_message(self, message: str, names: Collection[str], part: str = "") -> str:
        """Return the message with the flags of the parameters that it quotes, such as ``'--csv-delimiter'``.

        ``names``: fields of the tables, which stay as they are. A name that several options have also stays,
        unless one of these options is in this ``part`` of the request, which the message is about.
        """
        flags: dict[str, str | None] = {}
        for option in self._options:
            flags[option.path[-1]] = None if option.path[-1] in flags else option.flag
        flags |= {option.path[-1]: option.flag for option in self._options if option.path[0] == part}

        def replaced(quoted: re.Match[str]) -> str:
            flag = None if quoted[1] in names else flags.get(quoted[1])
            return f"'{flag}'" if flag is not None else quoted[0]

        return _QUOTED.sub(replaced, message)

    def _add(self, option: Option, group: Any) -> None:
        self._options.append(option)
        settings: dict[str, Any] = {"dest": _OPTION + option.flag, "default": None, "help": option.help}
        if option.kind == "switch":
            settings["action"] = argparse.BooleanOptionalAction
        else:
            metavar = {"list": "A,B", "json": "JSON"}.get(option.kind, "VALUE")
            settings["metavar"] = "JSON" if option.flag in _JSON_TEXTS else metavar
            settings["required"] = option.required
        if option.kind == "list":
            settings["action"] = "append"
        if option.choices:
            settings["choices"] = option.choices
            del settings["metavar"]
        group.add_argument(option.flag, **settings)


def _options_of(
    schema: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...], prefix: str
) -> Iterator[Option]:
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        place = (*path, name)
        flag = f"{prefix}-{name}" if prefix else name
        nested = definitions.get(field.get("$ref", "").rpartition("/")[2], {})
        if "properties" in nested:
            yield from _options_of(nested, definitions, place, flag)
            continue
        kind, scalar = _kind_of(field)
        yield Option(
            f"--{flag.replace('_', '-')}",
            place,
            kind,
            _help(field),
            tuple(field.get("enum", ())),
            name in required,
            scalar,
        )


def _kind_of(field: dict[str, Any]) -> tuple[Kind, bool]:
    """Return how the field's value is written, and whether a list may be a single value."""
    branches = field.get("anyOf") or field.get("oneOf") or [field]
    if field.get("type") == "boolean":
        return "switch", False
    arrays = [branch for branch in branches if branch.get("type") == "array"]
    others = [branch for branch in branches if branch.get("type") != "array"]
    plain = all(branch.get("type") in _SCALARS and "const" not in branch for branch in others)
    if arrays and plain and all(branch["items"].get("type") in _SCALARS for branch in arrays):
        return "list", bool(others)
    return ("text", False) if plain and not arrays else ("json", False)


def _help(field: dict[str, Any]) -> str:
    text = _OF_HEADERS.sub("", " ".join(field.get("description", "").split()))
    default = field.get("default")
    if default not in (None, [], {}) and "default" not in text.lower():
        text += f" Default: {default if isinstance(default, str) else json.dumps(default)}."
    return text.replace("%", "%%")


def _value(option: Option, value: Any) -> Any:
    if option.kind == "list":
        items = [item for text in value for item in _items(option, text)]
        return items[0] if option.scalar and len(items) == 1 else items
    if option.flag in _JSON_TEXTS:
        return _read(option, value)
    return _parsed(option, value) if option.kind == "json" else value


def _read(option: Option, text: str) -> str:
    """Return the text, read from a file for ``@name``."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{option.flag}: {text[1:]} cannot be read: {_reason(error)}") from None


def _items(option: Option, text: str) -> list[Any]:
    """Split ``a,b``, or parse a JSON list, which names with commas need."""
    if text.lstrip().startswith("["):
        items = _parsed(option, text)
        if isinstance(items, list):
            return items
    return [part.strip() for part in text.split(",")]


def _parsed(option: Option, text: str) -> Any:
    """Return the JSON value, read from a file for ``@name``; text that is not JSON is returned unchanged."""
    text = _read(option, text)
    try:
        return json.loads(text, object_pairs_hook=unique_names)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "["):
            raise ValueError(f"{option.flag}: not valid JSON: {error}") from None
        return text
    except RecursionError:
        raise ValueError(f"{option.flag}: not valid JSON: it is nested too deeply") from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "" if isinstance(error, OSError) else "it is not UTF-8"
