"""Service pages derived from the declarations of the providers: `docs/services/`."""

import inspect
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from providers.params import OPTIM_OPERANDS
from providers.provider import Provider
from website.attack_tables import attack_sections, strongest_attacks
from website.drawn_swaps import picture_of
from website.paper_pages import paper_sentences

EXAMPLES = Path("docs/examples")
"""Folder with one file per service: a table's name, parameters, seed and figures."""

_COMPOSITION = (
    "`POST /v1/attacks` with `releases` measures, before the first release is published, how much several of "
    "your own releases would reveal together: `composition` in its report."
)


def page(provider: Provider[Any]) -> str:
    """Return the service's page as Markdown."""
    module = sys.modules[provider.swap.__module__]
    about = inspect.getdoc(module) or ""
    prose = about.partition("\nReferences\n")[0].strip().partition("\n\n")[2]
    parts = [
        f"# {provider.identifier}: {provider.title}",
        f"{provider.summary} `POST /v1/services/{provider.identifier}`, revision {provider.revision}.",
        prose,
        picture_of(provider.identifier) or "",
        *_listing("Guarantees", provider.guarantees),
        *_listing("Changed properties", provider.changes),
        *_listing("Not protected against", (*provider.limits, *strongest_attacks(provider.identifier))),
        *attack_sections(provider.identifier),
        *_listing("Attacks on repeated releases", (*provider.repeated_releases, _COMPOSITION)),
        "## Parameters",
        _parameters(provider.params.model_json_schema()),
        *_listing("Special values and small tables", provider.special_values),
        "## Cost",
        provider.cost,
        "## Tables larger than memory",
        _scaling(provider),
        *_example(provider.identifier),
        *_listing("When to choose another service", provider.instead),
        *_listing("Errata of the paper", provider.errata),
        *paper_sentences(provider.identifier),
        "## References",
        "\n".join(f"- {reference}" for reference in provider.references),
        "*Generated from the code by `make docs`.*",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _scaling(provider: Provider[Any]) -> str:
    """Describe whether the service runs out of core, and how it divides the table."""
    able = provider.scaling.swap is not None
    shared = " Also runs on several workers at the same time." if provider.scaling.sharing is not None else ""
    how = "Runs out of core, with a bit-identical destination." if able else "Runs only in memory."
    return f"{how}{shared} {provider.scaling.cut}"


def _listing(title: str, items: tuple[str, ...]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {item}" for item in items)] if items else []


def _example(identifier: str) -> list[str]:
    """Render the worked example from the data that `tests/data/test_worked_examples.py` runs."""
    path = EXAMPLES / f"{identifier}.toml"
    if not path.is_file():
        return []
    example = tomllib.loads(path.read_text(encoding="utf-8"))
    call = {"parameters": example["parameters"], "seed": example["seed"]}
    lines = ["| figure in the report | value |", "| --- | --- |"]
    lines += [f"| `{name}` | {value} |" for name, value in example["figures"].items()]
    return [
        "## Worked example",
        example["about"].strip(),
        f"```json\n{json.dumps(call, indent=2)}\n```",
        "\n".join(lines),
        example["reading"].strip(),
    ]


def _parameters(schema: dict[str, Any]) -> str:
    """Return a table of the parameters, and one of the fields of each nested model."""
    definitions = schema.get("$defs", {})
    optim = {ours: theirs for theirs, ours in OPTIM_OPERANDS.items()}
    parts = [parameter_table(schema, optim)]
    for name, definition in definitions.items():
        if "properties" in definition:
            parts += [f"### {name}", definition["description"], parameter_table(definition)]
    return "\n\n".join(parts)


def parameter_table(schema: dict[str, Any], optim: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return name, type, default and meaning of each field of a model's schema as Markdown."""
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
