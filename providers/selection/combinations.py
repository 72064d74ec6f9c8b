"""Combinations of services and varied parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, Field, JsonValue, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from providers import PROVIDERS
from providers.errors import ParameterError, did_you_mean, reference_token
from providers.params import OPTIM_OPERANDS, Params, StrictModel, fault_message
from providers.provider import Provider
from providers.swapping.series import refuse_series

MOST_COMBINATIONS = 500

_OPTIM_NAMES = {ours: theirs for theirs, ours in OPTIM_OPERANDS.items()}


def _known(service: str) -> str:
    if service not in PROVIDERS:
        raise PydanticCustomError(
            "unknown_service",
            "unknown service '{service}'{suggestion}",
            {"service": service, "suggestion": did_you_mean(service, PROVIDERS)},
        )
    return service


class Variation(StrictModel):
    """Service with fixed and varied parameters."""

    service: Annotated[
        str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(PROVIDERS)})
    ]
    """Identifier of the service."""
    parameters: dict[str, JsonValue] = Field(default={}, examples=[{"swap_fields": ["income"]}])
    """Parameters of the service that are the same in all combinations."""
    vary: dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]] = Field(
        default={}, examples=[{"k": [3, 5, 10]}]
    )
    """Parameter -> its values. Each value is combined with all values of the other parameters."""


@dataclass(frozen=True, slots=True)
class Combination:
    """One service with one set of parameters."""

    provider: Provider[Any]
    params: Params
    """Parameters, checked against the table's schema."""
    given: dict[str, Any]
    """Parameters as given in the request."""


def combinations_of(services: Sequence[Variation], schema: pa.Schema) -> list[Combination]:
    """Expand all combinations in the listed order; the last varied parameter varies fastest.

    Raises
    ------
    ParameterError
        There are too many, or one does not fit the schema. The pointer names the invalid value, such as
        ``/services/1/vary/k/0``.
    """
    count = sum(math.prod(len(values) for values in variation.vary.values()) for variation in services)
    if count > MOST_COMBINATIONS:
        raise ParameterError(
            f"these are {count} combinations; at most {MOST_COMBINATIONS} are compared at once", "/services"
        )
    return [
        _checked(variation, chosen, schema, f"/services/{index}")
        for index, variation in enumerate(services)
        for chosen in _choices(variation, f"/services/{index}")
    ]


def _choices(variation: Variation, place: str) -> Iterator[dict[str, int]]:
    """Yield for each combination: varied parameter -> index of its value."""
    for name in variation.vary:
        if name in variation.parameters:
            raise ParameterError(
                f"'{name}' is among 'parameters' as well: a parameter stays or varies",
                f"{place}/vary/{reference_token(name)}",
            )
    for indices in itertools.product(*(range(len(values)) for values in variation.vary.values())):
        yield dict(zip(variation.vary, indices, strict=True))


def _checked(variation: Variation, chosen: Mapping[str, int], schema: pa.Schema, place: str) -> Combination:
    provider = PROVIDERS[variation.service]
    given = variation.parameters | {name: variation.vary[name][index] for name, index in chosen.items()}
    try:
        params = provider.check(provider.params.model_validate(given), schema)
        refuse_series(params)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        path = [*fault["loc"]]
        if fault["type"] == "unknown_name":
            path.append(fault["ctx"]["name"])
        raise ParameterError(fault_message(fault), _pointer(path, given, chosen, place)) from None
    except ParameterError as error:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in error.pointer.split("/")[2:]]
        raise ParameterError(error.message, _pointer(parts, given, chosen, place)) from None
    return Combination(provider, params, given)


def _pointer(path: Sequence[Any], given: Mapping[str, Any], chosen: Mapping[str, int], place: str) -> str:
    """Build the JSON pointer of an invalid value; names of union branches in the path are skipped."""
    if not path:
        return place
    name, *rest = path
    if name not in given and _OPTIM_NAMES.get(name) in given:
        name = _OPTIM_NAMES[name]
    found = (
        f"{place}/vary/{reference_token(name)}/{chosen[name]}" if name in chosen else f"{place}/parameters"
    )
    if name not in chosen:
        found += f"/{reference_token(name)}"
    value = given.get(name)
    for part in rest:
        key: Any = int(part) if isinstance(value, list) and str(part).isdecimal() else part
        inside = isinstance(value, dict) and key in value
        if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            continue
        value = value[key]  # type: ignore[index]  # a dict or a list, by the test above
        found += f"/{reference_token(key)}"
    return found
