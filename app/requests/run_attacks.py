"""Attacks on the release of a run: the member `attacks` of its request."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.errors import InvalidRequest
from providers.attacks.options import AttackOptions
from providers.measures.assessment import MeasureOptions


def _attacks_of_run(value: Any) -> Any:
    if value is True:
        return {}
    if value is False:
        return None
    if isinstance(value, str | int | float | list):
        raise PydanticCustomError(
            "attacks", 'give true, or an object, such as {"known": ["age"], "secret": ["income"]}'
        )
    return value


class RunAttackOptions(AttackOptions):
    """Attacks on the release of a run."""

    advice: bool = False
    """true: try other values of the service's parameters on a sample of the source, and report which of them
    lower the risk."""


RunAttacks = Annotated[
    RunAttackOptions | SkipJsonSchema[None],
    BeforeValidator(_attacks_of_run),
    WithJsonSchema(
        {
            "anyOf": [{"type": "boolean"}, {"$ref": "#/components/schemas/RunAttackOptions"}],
            "default": False,
            "examples": [{"known": ["age", "city"], "secret": ["income"]}],
        }
    ),
]
"""Value of `attacks` in a run's request: true, false, or the options."""


def attack_options_of_run(given: RunAttackOptions, measures: MeasureOptions) -> AttackOptions:
    """Return the options of the attacks after a run; unnamed fields come from the options of the measures.

    Raises InvalidRequest: neither names a field.
    """
    defaults: Mapping[str, tuple[str, ...]] = {
        "known": measures.known_fields or measures.key_fields,
        "secret": measures.sensitive_fields or (() if measures.target is None else (measures.target,)),
        "identifiers": measures.identifier_fields,
        "weights": measures.weight_fields,
        "categorical_fields": measures.categorical_fields,
    }
    named = given.model_dump(exclude_unset=True, exclude={"advice"})
    known = set(named.get("known") or defaults["known"])
    found: dict[str, Any] = {name: fields for name, fields in defaults.items() if fields}
    if measures.unit_field is not None:
        found["unit_field"] = measures.unit_field
    if "secret" not in named and "secret" in found:  # the target may be known too
        found["secret"] = tuple(name for name in found["secret"] if name not in known)
    options = AttackOptions.model_validate(found | named)
    check_fields_are_named(options, "/attacks")
    return options


def check_fields_are_named(given: AttackOptions, pointer: str = "") -> None:
    """Raise InvalidRequest if the options name neither a known nor a secret field."""
    if not given.known and not given.secret:
        raise InvalidRequest(
            "name the fields that an intruder knows ('known') or those to protect ('secret')",
            pointer or "/known",
        )
