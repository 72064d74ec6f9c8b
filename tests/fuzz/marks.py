"""Values that no answer about a mistake, and no line of a log, may hold: where they are put, and found."""

import re
from typing import Any

TEXT = "velvet-otter-7f3a9c51"
NUMBER = 918_273_645_546_372
SEED = "5eedfeedc0de5eed"
SECRET = (
    "whsec_" + "dmVsdmV0LW90dGVyLTdmM2E5YzUxLXdlYmhvb2s="
)  # in two, or it would be taken for one that somebody left here

_MARKS = re.compile("|".join((TEXT, str(NUMBER), SEED, SECRET.removeprefix("whsec_")[:24])), re.IGNORECASE)
_HEX = re.compile("[0-9a-fA-F]{1,64}")


def marked(body: Any) -> Any:
    """The request's body with a mark in every value of a row, seed and webhook's secret that is a text.

    What was refused is refused still, and what was taken is taken: a value of a row may be any text, a seed
    of hex digits stays one.
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
    """The first mark in the text; None where there is none."""
    found = _MARKS.search(text)
    return found[0] if found else None
