"""One page a service, made from what its provider declares: `docs/services/`."""

import inspect
import sys
from typing import Any

from providers.params import OPTIM_OPERANDS
from providers.provider import Provider


def page(provider: Provider[Any]) -> str:
    """The service's page, as Markdown."""
    module = sys.modules[provider.swap.__module__]
    about = inspect.getdoc(module) or ""
    prose = about.partition("\nReferences\n")[0].strip().partition("\n\n")[2]
    parts = [
        f"# {provider.identifier}: {provider.title}",
        f"{provider.summary} `POST /v1/services/{provider.identifier}`, revision {provider.revision}.",
        prose,
        "## What it guarantees",
        "\n".join(f"- {guarantee}" for guarantee in provider.guarantees),
        "## Parameters",
        _parameters(provider.params.model_json_schema()),
        "## References",
        "\n".join(f"- {reference}" for reference in provider.references),
        "*Made from the code by `make docs`: change it there.*",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parameters(schema: dict[str, Any]) -> str:
    """A table of the parameters, and one of the fields of each model among them."""
    definitions = schema.get("$defs", {})
    optim = {ours: theirs for theirs, ours in OPTIM_OPERANDS.items()}
    parts = [_table(schema, optim)]
    for name, definition in definitions.items():
        if "properties" in definition:
            parts += [f"### {name}", definition["description"], _table(definition, {})]
    return "\n\n".join(parts)


def _table(schema: dict[str, Any], optim: dict[str, str]) -> str:
    required = schema.get("required", [])
    lines = ["| parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, parameter in schema["properties"].items():
        default = "required" if name in required else _shown(parameter.get("default"))
        meaning = " ".join(parameter.get("description", "").split())
        if name in optim:
            meaning += f" Optim: `{optim[name]}`."
        lines.append(f"| `{name}` | {_type(parameter)} | {default} | {meaning} |".replace("|  |", "| |"))
    return "\n".join(lines)


def _shown(default: Any) -> str:
    if isinstance(default, dict) and "policy" in default:
        return f"policy `{default['policy']}`"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    return "none" if default in (None, [], {}) else f"`{default}`"


def _type(parameter: dict[str, Any]) -> str:
    if "$ref" in parameter:
        name = str(parameter["$ref"].rsplit("/", 1)[1])
        return "any JSON value" if name == "JsonValue" else name
    for several in ("anyOf", "oneOf"):
        if several in parameter:
            return " or ".join(dict.fromkeys(_type(option) for option in parameter[several]))
    if "enum" in parameter:
        return ", ".join(f"`{value}`" for value in parameter["enum"])
    if "const" in parameter:
        return f"`{parameter['const']}`"
    if parameter.get("type") == "array":
        return f"list of {_type(parameter['items'])}"
    if "additionalProperties" in parameter and parameter["additionalProperties"] is not False:
        return f"object of {_type(parameter['additionalProperties'])}"
    return str(parameter.get("type", "any JSON value"))
