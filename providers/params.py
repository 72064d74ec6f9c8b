"""Base models of parameters, and messages of their validation.

The HTTP contract, the command line, the docs and the error messages are derived from these
models, and the same object travels from the request to the kernel.
"""

import re
from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from providers.described_model import DescribedModel
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
"""Operand of the Optim data swapping providers -> parameter of which it is an alias.

``SWAP_SEED`` is missing: the seed is not a parameter, and the request model takes it.
"""


MOST_ROWS = 2**53 - 1
"""Upper bound of parameters that count rows: the largest integer that every JSON number holds exactly."""


_PART = 100
"""Most items of a list or an object that are validated together. Each invalid one has an error of half a
kilobyte, which takes as long to make as to validate hundreds of valid ones."""

_STRICT = ("bool", "float", "str")
_CONTAINERS = ("list", "tuple", "dict", "set", "model", "definition-ref")
_HOLDS_NO_SCHEMA = ("default", "expected", "metadata", "serialization", "config")


def whole_number(value: Any) -> Any:
    """Return a float that is an integer as that integer, anything else as it is.

    JSON has one kind of number, and its schema calls 5.0 an integer (JSON Schema 2020-12 core, 4.2.3).
    """
    return int(value) if type(value) is float and value.is_integer() and abs(value) < 2**53 else value


def _with_few_errors(schema: dict[str, Any]) -> Any:
    """Return the schema of a list or an object with a bound on the number of its errors.

    One with other lists or objects stops at the first that is invalid. Others are validated in parts, so that
    only one part has errors: those of all items of a megabyte would take gigabytes, and seconds in which
    nobody gets an answer.
    """
    kind, most = schema["type"], schema.get("max_length")
    if kind == "tuple" and schema.get("variadic_item_index") is None:
        return schema
    inner = [schema.get(name) for name in ("items_schema", "keys_schema", "values_schema")]
    if _holds_containers(inner):
        return schema | {"fail_fast": True}

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, list | dict) or len(value) <= _PART:
            return handler(value)
        if most is not None and len(value) > most:
            lengths = {"field_type": kind.capitalize(), "max_length": most, "actual_length": len(value)}
            raise PydanticKnownError("too_long", lengths)
        items = list(value.items()) if isinstance(value, dict) else value
        for end in range(_PART, len(items) + _PART, _PART):
            try:
                handler(type(value)(items[end - _PART : end]))
            except ValidationError:
                # The same errors at their places in the whole, or none if just the last part is too short.
                handler(type(value)(items[:end]))
        return handler(value)

    return core_schema.no_info_wrap_validator_function(validate, schema)


def _holds_containers(schema: Any) -> bool:
    """Whether a value of the schema may have several errors."""
    if isinstance(schema, list | tuple):
        return any(map(_holds_containers, schema))
    if not isinstance(schema, dict):
        return False
    parts = (part for name, part in schema.items() if name not in _HOLDS_NO_SCHEMA)
    return schema.get("type") in _CONTAINERS or any(map(_holds_containers, parts))


def _strict_scalars(schema: Any, model: type["StrictModel"], among_floats: bool = False) -> Any:
    """Return the validation schema of a model that converts no text, number or boolean into another of these.

    The number of its errors is bounded. Lists, tuples, dates and constants stay as they are: JSON has no type
    of its own for tuples and dates. The schemas of other strict models within it are strict already.
    """
    if isinstance(schema, list | tuple):
        floats = any(isinstance(each, dict) and each.get("type") == "float" for each in schema)
        return type(schema)(_strict_scalars(each, model, floats) for each in schema)
    if not isinstance(schema, dict):
        return schema
    inner = schema.get("cls") if schema.get("type") == "model" else None
    if inner is not None and inner is not model and issubclass(inner, StrictModel):
        return schema
    made = {
        name: part if name in _HOLDS_NO_SCHEMA else _strict_scalars(part, model)
        for name, part in schema.items()
    }
    kind = made.get("type")
    if kind in ("list", "tuple", "dict"):
        return _with_few_errors(made)
    if kind in _STRICT:
        return made | {"strict": True}
    if kind == "int" and not made.get("strict"):
        made["strict"] = True
        # Where a float may stand too, 5.0 is one already.
        return made if among_floats else core_schema.no_info_before_validator_function(whole_number, made)
    return made


class StrictModel(DescribedModel):
    """A model that refuses unknown names with the nearest right one, and converts no type into another.

    Immutable once made.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Keep text, numbers and booleans apart; ``strict=False`` in a call converts them."""
        schema: CoreSchema = _strict_scalars(handler(source), cls)
        return schema

    known_aliases: ClassVar[dict[str, str]] = {}
    """Parameter name in other services -> its name in this one."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for name in data:
                if name not in known:
                    raise PydanticCustomError(
                        "unknown_name",
                        "unknown name '{name}'{suggestion}",
                        {"name": str(name), "suggestion": cls._place_of(str(name), known)},
                    )
        return data

    @classmethod
    def _place_of(cls, name: str, known: list[str]) -> str:
        """Return the remedy for an unknown name: the member that has it, or the nearest known name."""
        for member, field in cls.model_fields.items():
            for model in (field.annotation, *get_args(field.annotation)):
                if (
                    name not in cls.known_aliases
                    and isinstance(model, type)
                    and issubclass(model, StrictModel)
                    and name in model.model_fields
                ):
                    return f"; it belongs in '{member}'"
        return did_you_mean(cls.known_aliases.get(name, name), known)


class Params(StrictModel):
    """The parameters of one service. Optim's operand names are accepted as aliases."""

    @classmethod
    def _place_of(cls, name: str, known: list[str]) -> str:
        """Return the remedy for an unknown name: the services that have such a parameter, or a near name."""
        parameter = OPTIM_OPERANDS.get(name, name)
        own = next((service for service, model in MODELS.items() if model is cls), None)
        if own is not None and name not in cls.known_aliases:
            services = sorted(service for service, model in MODELS.items() if parameter in model.model_fields)
            if services:
                shown = ", ".join(f"'{each}'" for each in known)
                return f"; it is a parameter of {' and '.join(services)}, and {own} has {shown}"
        return super()._place_of(name, known)

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


MODELS: dict[str, type[Params]] = {}
"""Service identifier -> parameter model, of every `providers.provider.Provider` that has been made."""


_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a text in quotes",
    "dict_type": "an object",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list",
}
_JSON_NAMES = {str: "a text", bool: "true or false", int: "a number", float: "a number", NoneType: "null"}
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


def fault_message(fault: Mapping[str, Any]) -> str:
    """Return the message of one error of validation, with the remedy where a value is of another JSON type.

    Parameters
    ----------
    fault : Mapping
        An entry of ``ValidationError.errors()``, with its ``input``.
    """
    expected = _EXPECTED.get(fault["type"])
    if fault["type"] == "literal_error" and isinstance(fault.get("input"), str):
        valid = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
        near = did_you_mean(fault["input"], valid)
        return f"must be {fault['ctx']['expected']}{near if near.startswith('; did') else ''}"
    if expected is None or "input" not in fault:
        message: str = fault["msg"].replace("Tuple", "List").replace("a valid tuple", "a list")
        return message[:1].lower() + message[1:]
    given = fault["input"]
    if isinstance(given, str):
        if fault["type"] in ("int_type", "float_type") and _NUMBER.fullmatch(given):
            return f'send the number {given}, not the text "{given}"'
        if fault["type"] == "bool_type" and given.lower() in ("true", "false"):
            return f'send {given.lower()}, not the text "{given}"'
    if fault["type"] == "int_type" and type(given) is float:
        return "must be an integer; a number with a fraction was sent, or one too large"
    sent = _JSON_NAMES.get(type(given)) or ("an object" if isinstance(given, dict) else "a list")
    return f"must be {expected}; {sent} was sent"


class Suppression(StrictModel):
    """Policy for rows that cannot be swapped."""

    policy: Literal["suppress", "replace", "keep", "drop", "fail"] = "suppress"
    """`suppress` sets the fields to null; `replace` writes the replacement given for each field; `keep`
    leaves the values as they are; `drop` leaves the row out; `fail` fails the job."""
    fields: tuple[str, ...] = ()
    """The fields to suppress or replace. Default: the swap fields that could not be swapped."""
    replacement: dict[str, JsonValue] = Field(default={}, examples=[{"income": 0}])
    """For `replace`: field -> value to write."""

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


class PairingParams(Params):
    """Parameters of every service that exchanges values of named fields between rows."""

    swap_fields: tuple[str, ...] = Field(default=(), examples=[["income"]])
    """The fields whose values are exchanged between rows. [1 or more]"""
    swap_field_indices: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Positions of the swap fields, counting from 1, as an alternative to `swap_fields`."""
    suppression: Suppression = Suppression()
    """Policy for rows that cannot be swapped. By default their swap fields become null."""
    on_reversible: Literal["warn", "fail"] = "warn"
    """Treatment of groups of two or three rows. Anyone who knows the groups can undo the exchange of a group
    of two exactly, and of a group of three with a chance of 1/2. `warn`: an event counts such rows; `fail`:
    the job fails before anything is exchanged. This applies only at rates over 0.5, since at lower rates such
    rows mostly keep their own values."""

    @property
    def selection_by_risk(self) -> "RiskSelection | None":
        """The parameter `risk`; None if chance alone selects rows."""
        found: RiskSelection | None = getattr(self, "risk", None)
        return found

    def larger_groups(self) -> str:
        """Return the remedy for groups of two or three rows, for an event or an error."""
        return "let four rows or more be exchanged with each other"

    @model_validator(mode="after")
    def _fields_are_named_once(self) -> Self:
        if bool(self.swap_fields) == bool(self.swap_field_indices):
            raise PydanticCustomError(
                "swap_fields_missing",
                "give the swap fields by name in 'swap_fields' or by position in "
                "'swap_field_indices', one of the two",
            )
        return self


class RiskSelection(StrictModel):
    """Selection of the rows that take part, by their risk of re-identification."""

    key_fields: tuple[str, ...] = Field(default=(), examples=[["region", "age", "sex"]])
    """The fields by which an intruder recognises people. The risk of a row is 1 / (number of rows with the
    same combination of their values). Nulls are equal to each other."""
    weight: str | SkipJsonSchema[None] = Field(default=None, examples=["weight"])
    """The field with survey weights, all above 0; it goes with `key_fields`. The sum of the weights of a
    combination, its estimated population, takes the place of the number of its rows."""
    k: Annotated[int, Field(ge=0, le=MOST_ROWS, title="Least group size (k)")] = 3
    """Rows whose combination occurs fewer than k times always take part, whatever `rate` is; 0: no row must
    take part. With `field`: rows with a risk over 1/k. [0 or more]"""
    field: str | SkipJsonSchema[None] = Field(default=None, examples=["risk"])
    """The field with the risk of each row, 0 or more, in place of `key_fields`."""

    @model_validator(mode="after")
    def _risk_has_one_source(self) -> Self:
        if bool(self.key_fields) == (self.field is not None):
            raise PydanticCustomError(
                "risk_source",
                "give 'key_fields', from which risks are computed, or a 'field' with risks, one of the two",
            )
        if self.weight is not None and self.field is not None:
            raise PydanticCustomError(
                "weight_unused", "'weight' goes with 'key_fields': the risks of 'field' are given"
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_what_is_not_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        return {name: value for name, value in document.items() if value not in (None, (), [])}

    @property
    def fields_read(self) -> tuple[str, ...]:
        """Fields from which risks are computed, each once."""
        named = (*self.key_fields, self.weight, self.field)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def check_rate_of_risk(risk: RiskSelection | None, rate: float) -> None:
    """Raise PydanticCustomError if rows are selected by risk and all rows take part."""
    if risk is not None and rate == 1.0:
        raise PydanticCustomError(
            "risk_without_rate",
            "'risk' needs a 'rate' below 1, such as 0.1: at rate 1 every row takes part",
        )


SERIES_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of the name of a series, which is a segment of a URL's path."""

_LATER_PARAMETERS = ("risk", "household", "household_check", "unit_id", "series")
"""Parameters of later versions, which are not written where they are not given."""


class SwapParams(PairingParams):
    """Parameters that DSWAP, CDSWAP and DDSWAP share."""

    locked: bool = False
    """true: all swap fields of a row move together, which keeps their correlation;
    false: each field moves independently."""
    mechanism: Literal["pairs", "permutation"] = "pairs"
    """`pairs`: rows exchange values in random pairs; `permutation`: each row of a group is selected with
    probability `rate`, and the selected rows are permuted at random so that none keeps its place. Only
    `permutation` has a finite epsilon, which the report states. It needs a `rate` below 1, or
    `target_epsilon`."""
    rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the rows that take part in the exchange. [over 0, up to 1]"""
    risk: RiskSelection | SkipJsonSchema[None] = Field(
        default=None, examples=[{"key_fields": ["region", "age", "sex"], "k": 3}]
    )
    """Selection of the rows by risk, with mechanism `pairs` and a `rate` below 1. Rows at risk always take
    part. Other rows take part up to the rate, each with a probability in proportion to its risk. Default:
    every row of a group is equally likely. The selection depends on the data, so that no epsilon holds."""
    target_epsilon: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = None
    """Largest epsilon that the run may have, added up over fields that move independently; with `mechanism`
    set to `permutation`, in place of `rate`. The smallest rate that meets it is found. If no rate meets it,
    the error states the least epsilon that a rate reaches. [over 0]"""
    min_group_size: Annotated[int, Field(ge=2, le=MOST_ROWS)] = 2
    """Minimum number of rows of a group; smaller groups are not swapped. [2 or more]"""
    nulls: Literal["swap", "keep"] = "swap"
    """`swap`: a null is a value like any other and moves; `keep`: a row whose value is null
    does not take part for that field (when locked: for any field)."""
    household: str | SkipJsonSchema[None] = Field(default=None, examples=["household"])
    """The field, of integers or text, that identifies a household. Whole households of equal size are
    exchanged, member by member, and `rate`, `min_group_size` and sizes of blocks count households. Default:
    every row moves on its own."""
    household_check: str | SkipJsonSchema[None] = Field(default=None, examples=["household"])
    """The field that identifies a household, if rows move on their own: the report states how many households
    the run tears."""
    unit_id: str | SkipJsonSchema[None] = Field(default=None, examples=["person"])
    """The field, of integers or text, that identifies a unit, such as a person, which can occur in several
    rows. The rows of a unit move as one: units of equal size are exchanged, row by row, and `rate`,
    `min_group_size` and sizes of blocks count units. It takes the place of `household`."""
    unit_sizes: Literal["equal", "any"] = "equal"
    """With `unit_id`. `equal`: units with equal numbers of rows are exchanged, row by row; `any`: units of
    all sizes are exchanged, which needs one value of each swap field within each unit. All rows of a unit
    get the value of its partner, so that the number of rows with each value changes."""
    series: Annotated[str, Field(pattern=SERIES_NAME)] | SkipJsonSchema[None] = Field(
        default=None, examples=["panel-2026"]
    )
    """With `unit_id`: the name of a series of tables. A unit keeps its partner in all tables of a series.
    Units that are new in a table are paired among themselves. It needs `locked` or a single swap field, and
    `nulls` set to `swap`. [1 to 64 letters, digits, `.`, `_` and `-`, a letter or digit first]"""
    checks: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        default=(), max_length=20, examples=[["birth <= death", "age >= 15 or children == 0"]]
    )
    """Expressions that rows should meet: comparisons of fields with fields or values by `==`, `!=`, `<`,
    `<=`, `>` and `>=`, joined by `and`, `or`, `not` and parentheses; `field("net income")` for a name with
    spaces. A comparison with a null is unknown and breaks nothing. The report counts the rows that break each
    check in the source and in the release. [up to 20, each of up to 200 characters]"""
    on_broken: Literal["report", "repair"] = "report"
    """Treatment of rows that break a check because of an exchange. `report`: events list them; `repair`:
    their exchanges are drawn again, at most 20 times, and undone if they still break a check. `repair` needs
    random pairs of single rows: it cannot be combined with mechanism `permutation`, `risk`, `household` or
    `unit_id`."""

    @model_serializer(mode="wrap")
    def _leave_out_defaults_of_later_versions(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write random pairs without risk as versions without these parameters do, which can run the job."""
        document: dict[str, Any] = handler(self)
        left_out = {"mechanism", "target_epsilon"} if self.mechanism == "pairs" else set()
        left_out |= {name for name in _LATER_PARAMETERS if document[name] is None}
        left_out |= set() if self.checks else {"checks", "on_broken"}
        left_out |= {"unit_sizes"} if self.unit_sizes == "equal" else set()
        return {name: value for name, value in document.items() if name not in left_out}

    @model_validator(mode="after")
    def _households_move_or_are_checked(self) -> Self:
        if self.household is not None and self.household_check is not None:
            raise PydanticCustomError(
                "household_twice",
                "give 'household', which moves whole households, or 'household_check', which counts those "
                "that a run tears, one of the two",
            )
        if self.unit_id is not None and (self.household is not None or self.household_check is not None):
            raise PydanticCustomError(
                "unit_twice",
                "give 'unit_id' or '{other}', one of the two: each says which rows belong together",
                {"other": "household" if self.household is not None else "household_check"},
            )
        if self.unit_sizes == "any" and self.unit_id is None:
            raise PydanticCustomError(
                "sizes_without_unit", "'unit_sizes' says which units are exchanged: it needs 'unit_id'"
            )
        return self

    @model_validator(mode="after")
    def _a_series_has_one_partner_for_each_unit(self) -> Self:
        if self.series is None:
            return self
        if self.unit_id is None:
            raise PydanticCustomError(
                "series_without_unit",
                "'series' needs 'unit_id', the field by which a unit is found in every table",
            )
        if not self.locked and len(self.swap_fields) + len(self.swap_field_indices) > 1:
            raise PydanticCustomError(
                "series_of_several_partners",
                "in a series each unit has one partner, and swap fields that move independently have a "
                "partner each: set 'locked' to true, or give a single swap field",
            )
        if self.nulls == "keep":
            raise PydanticCustomError(
                "series_without_nulls",
                "in a series a unit moves as a whole in every table: set 'nulls' to 'swap', so that a null "
                "of one table does not separate it from its partner",
            )
        return self

    @property
    def moving_unit(self) -> str | None:
        """The field of the units that move as one, from `household` or `unit_id`; None: rows move."""
        return self.household if self.household is not None else self.unit_id

    @property
    def unit_noun(self) -> str:
        """The word for the units that move as one, in messages."""
        return "unit" if self.unit_id is not None else "household"

    @property
    def whole_table(self) -> str | None:
        """The parameter for which a run needs the whole table in memory; None if it runs out of core."""
        names = ("risk", "household", "household_check", "unit_id")
        found = next((name for name in names if getattr(self, name) is not None), None)
        return found if found is not None or not self.checks else "checks"

    @model_validator(mode="after")
    def _a_repair_has_checks_and_pairs(self) -> Self:
        if self.on_broken == "report":
            return self
        if not self.checks:
            raise PydanticCustomError(
                "repair_without_checks", "'on_broken' needs 'checks': give at least one, or leave it out"
            )
        if self.mechanism != "pairs" or self.risk is not None or self.moving_unit is not None:
            raise PydanticCustomError(
                "repair_needs_pairs",
                "a repair draws random pairs of single rows again: with mechanism 'permutation', 'risk', "
                "'household' or 'unit_id' use 'on_broken': 'report'",
            )
        return self

    @model_validator(mode="after")
    def _risk_has_its_rate(self) -> Self:
        if self.risk is None:
            return self
        if self.mechanism != "pairs":
            raise PydanticCustomError(
                "risk_without_epsilon",
                "'risk' goes with mechanism 'pairs': mechanism 'permutation' has an epsilon, and a selection "
                "that depends on the data has none",
            )
        check_rate_of_risk(self.risk, self.rate)
        return self

    @model_validator(mode="after")
    def _mechanism_has_its_rate(self) -> Self:
        if self.mechanism == "pairs":
            if self.target_epsilon is not None:
                raise PydanticCustomError(
                    "target_without_epsilon",
                    "'target_epsilon' goes with mechanism 'permutation': random pairs have no finite epsilon",
                )
        elif self.target_epsilon is not None:
            if self.rate != 1.0:
                raise PydanticCustomError(
                    "rate_and_target", "give 'rate' or 'target_epsilon', one of the two"
                )
        elif self.rate == 1.0:
            raise PydanticCustomError(
                "rate_missing",
                "mechanism 'permutation' needs a 'rate' below 1, such as 0.5, or a 'target_epsilon'",
            )
        return self


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


ControlFields = Annotated[
    tuple[str, ...],
    Field(min_length=1, examples=["city", ["city", "sex"]]),
    BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
]
"""One field by name, or a list of fields."""
