"""Marked values that no error response and no log line may contain: insertion and search."""

import re
from typing import Any

TEXT = "velvet-otter-7f3a9c51"
NUMBER = 918_273_645_546_372
SEED = "5eedfeedc0de5eed"
SECRET = (
    "whsec_" + "dmVsdmV0LW90dGVyLTdmM2E5YzUxLXdlYmhvb2s="
)  # in two parts, so that it is not found in this file

_MARKS = re.compile("|".join((TEXT, str(NUMBER), SEED, SECRET.removeprefix("whsec_")[:24])), re.IGNORECASE)
_HEX = re.compile("[0-9a-fA-F]{1,64}")


def marked(body: Any) -> Any:
    """Return the request body with a mark in every text that is a row value, seed or webhook secret.

    Rejected requests remain rejected, and accepted ones accepted: a row value may be any text, and a seed of
    hex digits remains one.
    """
    if not isinstance(body, dict):
        return body
    made = dict(body)
    for name in ("source", "destination"):
        if isinstance(made.get(name), dict):
            made[name] = {
                part: _within(value) if part in ("rows", "columns") else value
                for part, value in made[name].items()
            }
    if "seed" in made:
        made["seed"] = _seed(made["seed"])
    if isinstance(made.get("parameters"), dict) and "SWAP_SEED" in made["parameters"]:
        made["parameters"] = made["parameters"] | {"SWAP_SEED": _seed(made["parameters"]["SWAP_SEED"])}
    for name in ("name", "label", "notes"):  # shown on purpose, and perhaps made of a value seen before
        if isinstance(made.get(name), str):
            made[name] = _MARKS.sub("", made[name])
    if isinstance(made.get("webhook"), dict) and isinstance(made["webhook"].get("secret"), str):
        made["webhook"] = made["webhook"] | {"secret": SECRET}
    return made


def _within(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _within(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_within(inner) for inner in value]
    return TEXT + value if isinstance(value, str) else value


def _seed(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        return value
    return (SEED + value)[:64] if _HEX.fullmatch(value) else SEED + value


def found_in(text: str) -> str | None:
    """Return the first mark in the text; None if there is none."""
    found = _MARKS.search(text)
    return found[0] if found else None
