"""Parameters are checked against a table of many fields in a time in proportion to the fields."""

from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.attacks.options import AttackOptions, check_attack_options
from providers.measures.shared.options import MeasureOptions, check_options

FIELDS = 400

EACH = 8
"""Most comparisons for each field: one lookup in a set or a dictionary each. A list takes `FIELDS` / 2."""


class Name(str):
    """Field name that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


NAMES = tuple(Name(f"f{index}") for index in range(FIELDS))
HALF, OTHER_HALF = NAMES[: FIELDS // 2], NAMES[FIELDS // 2 :]
SCHEMA = pa.schema([(str(name), pa.int64()) for name in NAMES])
ONE = (str(NAMES[0]),)


class CountedSchema:
    """Schema that counts how often all its names are listed."""

    listed = 0

    def __getattr__(self, attribute: str) -> Any:
        self.listed += attribute == "names"
        return getattr(SCHEMA, attribute)

    def __iter__(self) -> Any:
        return iter(SCHEMA)

    def __len__(self) -> int:
        return len(SCHEMA)


REPLACED = {"policy": "replace", "fields": NAMES, "replacement": dict.fromkeys(NAMES, 1)}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "DSWAP": ("DSWAP", {"swap_fields": ONE}, {"swap_fields": NAMES}),
    "CDSWAP": (
        "CDSWAP",
        {"swap_fields": ONE, "control_field": ("f1",)},
        {"swap_fields": HALF, "control_field": OTHER_HALF},
    ),
    "RWN by default": ("RWN", {}, {}),
    "RWN": (
        "RWN",
        {},
        {"distance_fields": NAMES, "perturb_fields": NAMES, "categorical_fields": HALF}
        | {"ordinal_fields": dict.fromkeys(OTHER_HALF, (1, 2))},
    ),
    "LOCALITY": (
        "LOCALITY",
        {"fields": ONE},
        {"fields": NAMES, "domain": dict.fromkeys(NAMES, (0, 1))},
    ),
    "PABIDOT": ("PABIDOT", {}, {"fields": HALF, "label_fields": OTHER_HALF}),
    "RSWAP": (
        "RSWAP",
        {"hierarchy": ONE, "risk_fields": (str(NAMES[-1]),)},
        {"hierarchy": HALF, "similar": tuple((name,) for name in OTHER_HALF)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_service_looks_names_up(case: str) -> None:
    service, valid, update = CASES[case]
    provider, schema = PROVIDERS[service], CountedSchema()
    params = provider.params.model_validate(valid).model_copy(update=update)
    Name.compared = 0
    provider.check(params, schema)
    assert Name.compared <= EACH * FIELDS
    assert schema.listed <= EACH


def test_suppression_looks_names_up() -> None:
    valid = {"swap_fields": ONE, "suppression": {"policy": "replace", "replacement": {"f0": 1}}}
    params = PROVIDERS["DSWAP"].params.model_validate(valid)
    policy = params.suppression.model_copy(update=REPLACED)
    params = params.model_copy(update={"swap_fields": NAMES, "suppression": policy})
    Name.compared = 0
    PROVIDERS["DSWAP"].check(params, SCHEMA)
    assert Name.compared <= EACH * FIELDS


def test_measures_and_attacks_look_names_up() -> None:
    measures = MeasureOptions().model_copy(
        update={
            "fields": NAMES,
            "categorical_fields": NAMES,
            "key_fields": HALF,
            "sensitive_fields": OTHER_HALF,
            "rounding": dict.fromkeys(HALF, 1.0),
        }
    )
    attacks = AttackOptions().model_copy(
        update={"known": HALF, "secret": OTHER_HALF, "categorical_fields": NAMES}
    )
    Name.compared = 0
    check_options(measures, SCHEMA, SCHEMA, ())
    assert Name.compared <= EACH * FIELDS
    attacks = attacks.model_copy(update={"linked": (HALF[::2], HALF[1::2])})
    Name.compared = 0
    check_attack_options(attacks, SCHEMA, SCHEMA, SCHEMA)
    assert Name.compared <= EACH * FIELDS
