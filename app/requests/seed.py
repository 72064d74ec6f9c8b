"""Seed of a request: hex digits or an integer, parsed to 32 bytes."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from providers.params import whole_number

_HEX_SEED = re.compile(r"[0-9a-fA-F]{1,64}")
_PADDING = "0" * 8
"""Zeros at the beginning of a seed that no random draw explains: a small number was padded."""

SEED_INTEGER_BOUND = 2**53  # above it, JSON numbers lose digits in many readers


class Seed(BaseModel):
    """Seed of a run as 32 bytes, with the number of bits that the caller supplied."""

    model_config = ConfigDict(frozen=True)

    secret: bytes = Field(repr=False)
    bits: int


def _parse_seed(value: Any) -> Any:
    value = whole_number(value)
    if isinstance(value, str) and _HEX_SEED.fullmatch(value):
        number = int(value, 16)
        padded = value.startswith(_PADDING)
        return Seed(secret=number.to_bytes(32, "big"), bits=_bits(number) if padded else 4 * len(value))
    if type(value) is int and 0 <= value < SEED_INTEGER_BOUND:
        return Seed(secret=value.to_bytes(32, "big"), bits=_bits(value))
    raise PydanticCustomError(
        "seed", "a seed is a string of 1 to 64 hex digits, or an integer from 0 to 2**53 - 1"
    )


def _bits(number: int) -> int:
    return max(1, number.bit_length())


SeedValue = Annotated[
    Seed,
    BeforeValidator(_parse_seed),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^[0-9a-fA-F]{1,64}$"},
                {"type": "integer", "minimum": 0, "exclusiveMaximum": SEED_INTEGER_BOUND},
            ],
            "writeOnly": True,
        }
    ),
]
