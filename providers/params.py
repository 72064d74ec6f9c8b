"""Parameter models: a parameter is said once, here or in its provider's file.

The HTTP contract, the command line, the docs and the error messages are derived from these
models, and the same object travels from the request to the kernel.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from providers.errors import did_you_mean

OPTIM_OPERANDS = {
    "SWAP_FIELD_NAMES": "swap_fields",
    "SWAP_FIELD_INDICES": "swap_field_indices",
    "SWAP_LOCKED": "locked",
    "SWAP_RATE": "rate",
    "SWAP_CONTROL_ATTR": "control_field",
    "SWAP_CLASSIFIER": "classifier",
    "SWAP_BLOCK_SIZE": "block_size",
}
"""Operands of the Optim data swapping providers -> the parameter each one is an alias of.

``SWAP_SEED`` is not among them: the seed is no parameter, and the request model takes it.
"""


MOST_ROWS = 2**53 - 1
"""A bound on parameters that count rows: what JSON numbers hold exactly, and no table has."""


class StrictModel(BaseModel):
    """Refuses unknown names with the nearest right one; immutable once made."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    called_elsewhere: ClassVar[dict[str, str]] = {}
    """What the models beside this one call something -> this one's own name of it."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for name in data:
                if name not in known:
                    meant = cls.called_elsewhere.get(name, str(name))
                    raise PydanticCustomError(
                        "unknown_name",
                        "unknown name '{name}'{suggestion}",
                        {"name": str(name), "suggestion": did_you_mean(meant, known)},
                    )
        return data


class Params(StrictModel):
    """The parameters of one service. Optim's operand names are accepted as aliases."""

    @model_validator(mode="before")
    @classmethod
    def _translate_optim_operands(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        translated: dict[Any, Any] = {}
        for name, value in data.items():
            ours = OPTIM_OPERANDS.get(name)
            target = ours if ours in cls.model_fields else name
            if target in translated or (target != name and target in data):
                raise PydanticCustomError(
                    "given_twice",
                    "'{name}' is Optim's name for '{ours}': give one of the two",
                    {"name": name, "ours": target},
                )
            if name == "SWAP_FIELD_NAMES" and isinstance(value, str):
                value = [part.strip() for part in value.split(",")]
            translated[target] = value
        return translated


class Suppression(StrictModel):
    """What becomes of the rows that cannot be swapped."""

    policy: Literal["suppress", "replace", "keep", "drop", "fail"] = "suppress"
    """`suppress` nulls the fields; `replace` puts the replacement given for each field; `keep`
    leaves the values as they are; `drop` leaves the row out; `fail` fails the job."""
    fields: tuple[str, ...] = ()
    """The fields to suppress or replace. Default: the swap fields that could not be swapped."""
    replacement: dict[str, JsonValue] = Field(default={}, examples=[{"income": 0}])
    """For `replace`: field -> the value to put."""

    @model_validator(mode="after")
    def _policy_has_what_it_needs(self) -> Self:
        if self.policy == "replace" and not self.replacement:
            raise PydanticCustomError(
                "replacement_missing",
                'policy \'replace\' needs a replacement for each field, such as "replacement": {"income": 0}',
            )
        if self.policy != "replace" and self.replacement:
            raise PydanticCustomError(
                "replacement_unused",
                "a replacement goes with policy 'replace', not '{policy}'",
                {"policy": self.policy},
            )
        if self.policy not in ("suppress", "replace") and self.fields:
            raise PydanticCustomError(
                "fields_unused",
                "fields go with policy 'suppress' or 'replace', not '{policy}'",
                {"policy": self.policy},
            )
        return self


class MovingParams(Params):
    """What every service that moves the values of named fields takes."""

    swap_fields: tuple[str, ...] = Field(default=(), examples=[["income"]])
    """The fields whose values are exchanged between rows. [1 or more]"""
    swap_field_indices: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """The swap fields by position, the first field being 1, in place of `swap_fields`."""
    suppression: Suppression = Suppression()
    """What is done with the rows that cannot be swapped: by default their swap fields become null."""

    @model_validator(mode="after")
    def _fields_are_named_once(self) -> Self:
        if bool(self.swap_fields) == bool(self.swap_field_indices):
            raise PydanticCustomError(
                "swap_fields_missing",
                "give the swap fields by name in 'swap_fields' or by position in "
                "'swap_field_indices', one of the two",
            )
        return self


class SwapParams(MovingParams):
    """What DSWAP, CDSWAP and DDSWAP share."""

    locked: bool = False
    """true: all swap fields of a row move together, which keeps their correlation;
    false: each field moves on its own."""
    rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the rows that take part. [over 0, up to 1]"""
    min_group_size: Annotated[int, Field(ge=2, le=MOST_ROWS)] = 2
    """A group with fewer rows than this is not swapped. [2 or more]"""
    nulls: Literal["swap", "keep"] = "swap"
    """`swap`: a null is a value like any other and moves; `keep`: a row whose value is null
    takes no part for that field (when locked: for any field)."""


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


ControlFields = Annotated[
    tuple[str, ...],
    Field(min_length=1, examples=["city", ["city", "sex"]]),
    BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
]
"""One field by name, or a list of fields."""
