"""Parameters: what is refused, where it stands, and what would be right."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from providers import PROVIDERS
from providers.errors import ParameterError, SourceError
from providers.params import Params

SCHEMA = pa.schema(
    [
        ("age", pa.int64()),
        ("income", pa.float64()),
        ("city", pa.string()),
        ("born", pa.date32()),
        ("seen", pa.timestamp("ms", "Europe/Dublin")),
        ("left", pa.timestamp("s")),
        ("grade", pa.dictionary(pa.int8(), pa.string())),
        ("paid", pa.decimal128(6, 2)),
        ("small", pa.int8()),
        ("active", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
        ("wake", pa.time32("s")),
        ("lasted", pa.duration("ms")),
    ]
)


def check(service: str, parameters: dict[str, Any], schema: pa.Schema = SCHEMA) -> Params:
    provider = PROVIDERS[service]
    checked: Params = provider.check(provider.params.model_validate(parameters), schema)
    return checked


def refused(service: str, parameters: dict[str, Any]) -> tuple[str, str]:
    """The pointer and the message of what the schema's check refuses."""
    with pytest.raises(ParameterError) as caught:
        check(service, parameters)
    return caught.value.pointer, caught.value.message


INCOME = {"swap_fields": ["income"]}

BY_SCHEMA: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "DSWAP",
        {"swap_fields": ["city", "agee"]},
        "/swap_fields/1",
        "unknown field 'agee'; did you mean 'age'?",
    ),
    (
        "DSWAP",
        {"swap_fields": ["Income"]},
        "/swap_fields/0",
        "unknown field 'Income'; did you mean 'income'?",
    ),
    (
        "DSWAP",
        {"swap_fields": ["qqqqqq"]},
        "/swap_fields/0",
        "unknown field 'qqqqqq'; known are 'age', 'income'",
    ),
    ("DSWAP", {"swap_fields": ["age", "age"]}, "/swap_fields/1", "swap field 'age' is named twice"),
    (
        "DSWAP",
        {"swap_field_indices": [1, 15]},
        "/swap_field_indices/1",
        "there is no field 15; the source has 14, the first being 1",
    ),
    ("DSWAP", {"swap_field_indices": [2, 2]}, "/swap_field_indices/1", "swap field 'income' is named twice"),
    (
        "CDSWAP",
        {**INCOME, "control_field": "cty"},
        "/control_field",
        "unknown control field 'cty'; did you mean 'city'?",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": ["city", "born", "city"]},
        "/control_field/2",
        "control field 'city' is named twice",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "income"},
        "/swap_fields/0",
        "field 'income' is both swap and control field",
    ),
    (
        "DDSWAP",
        {**INCOME, "control_field": "tags", "block_size": 2},
        "/control_field",
        "control field 'tags' has type",
    ),
    (
        "DDSWAP",
        {**INCOME, "control_field": "age", "block_size": 3, "min_group_size": 4},
        "/min_group_size",
        "no block of 3 rows reaches min_group_size 4; lower it, or raise block_size",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "age", "classifier": {"breaks": [18, 30, 30]}},
        "/classifier/breaks/2",
        "breaks must increase: 30 follows 30",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "age", "classifier": {"breaks": [18, "30"]}},
        "/classifier/breaks/1",
        "a break for 'age' (int64) must be a number",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "born", "classifier": {"breaks": [1990]}},
        "/classifier/breaks/0",
        "a break for 'born' (date32[day]) must be an ISO date such as '2024-02-29'",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "left", "classifier": {"breaks": ["2024-02-29T08:30+01:00"]}},
        "/classifier/breaks/0",
        "without an offset, as the field has no time zone",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "left", "classifier": {"breaks": ["2024-02-29T08:30:00.5"]}},
        "/classifier/breaks/0",
        "a moment in whole units of s",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "city", "classifier": {"breaks": [1]}},
        "/classifier/breaks",
        "breaks are for numbers, dates and timestamps; 'city' has type string",
    ),
    (
        "CDSWAP",
        {
            **INCOME,
            "control_field": ["city", "age"],
            "classifier": ["identity", {"groups": {"a/b": [1, "2"]}}],
        },
        "/classifier/1/groups/a~1b/1",
        "a group value for 'age' (int64) must be an integer",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "city", "classifier": {"groups": {"n": ["Oslo"], "s": ["Rome", "Oslo"]}}},
        "/classifier/groups/s/1",
        "value 'Oslo' is in two groups, 'n' and 's'",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "age", "classifier": {"groups": {"one": [1], "two": [1.0]}}},
        "/classifier/groups/two/0",
        "value 1.0 is in two groups",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "small", "classifier": {"groups": {"one": [128]}}},
        "/classifier/groups/one/0",
        "must be an integer from -128 to 127",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "active", "classifier": {"groups": {"yes": [1]}}},
        "/classifier/groups/yes/0",
        "must be true or false",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "born", "classifier": {"prefix": 4}},
        "/classifier/prefix",
        "a prefix is of text or of integers; 'born' has type date32[day]",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "raw", "classifier": {"prefix": 4}},
        "/classifier/prefix",
        "'raw' has type",
    ),
    (
        "DSWAP",
        {**INCOME, "suppression": {"policy": "suppress", "fields": ["incom"]}},
        "/suppression/fields/0",
        "unknown field 'incom'; did you mean 'income'?",
    ),
    (
        "DSWAP",
        {**INCOME, "suppression": {"policy": "suppress", "fields": ["age", "age"]}},
        "/suppression/fields/1",
        "field 'age' is named twice",
    ),
    (
        "DSWAP",
        {**INCOME, "suppression": {"policy": "replace", "replacement": {"age": 0}}},
        "/suppression/replacement",
        "a replacement for 'income' is missing",
    ),
    (
        "DSWAP",
        {**INCOME, "suppression": {"policy": "replace", "replacement": {"income": 0, "age": 0}}},
        "/suppression/replacement/age",
        "a replacement for 'age', which is not replaced: name it in 'fields'",
    ),
]


@pytest.mark.parametrize(("service", "parameters", "pointer", "message"), BY_SCHEMA)
def test_the_schema_refuses(service: str, parameters: dict[str, Any], pointer: str, message: str) -> None:
    """The message says what is wrong and what would be right; the pointer says where."""
    found_pointer, found_message = refused(service, parameters)
    assert found_pointer == f"/parameters{pointer}"
    assert message in found_message


BY_MODEL: list[tuple[str, dict[str, Any], str]] = [
    ("DSWAP", {}, "give the swap fields by name in 'swap_fields' or by position"),
    ("DSWAP", {"swap_fields": ["a"], "swap_field_indices": [1]}, "one of the two"),
    ("DSWAP", {"swap_field_indices": [0]}, "greater than or equal to 1"),
    ("DSWAP", {**INCOME, "rate": 0}, "greater than 0"),
    ("DSWAP", {**INCOME, "rate": 1.1}, "less than or equal to 1"),
    ("DSWAP", {**INCOME, "lockd": True}, "unknown name 'lockd'; did you mean 'locked'?"),
    ("RWN", INCOME, "unknown name 'swap_fields'; did you mean 'perturb_fields'?"),
    ("PABIDOT", INCOME, "unknown name 'swap_fields'; did you mean 'fields'?"),
    ("LOCALITY", INCOME, "unknown name 'swap_fields'; did you mean 'fields'?"),
    (
        "DSWAP",
        {**INCOME, "SWAP_FIELD_NAMES": "income"},
        "'SWAP_FIELD_NAMES' is Optim's name for 'swap_fields'",
    ),
    ("DSWAP", {**INCOME, "suppression": {"policy": "replace"}}, "policy 'replace' needs a replacement"),
    (
        "DSWAP",
        {**INCOME, "suppression": {"replacement": {"a": 1}}},
        "a replacement goes with policy 'replace'",
    ),
    ("DSWAP", {**INCOME, "suppression": {"policy": "drop", "fields": ["a"]}}, "fields go with policy"),
    ("CDSWAP", INCOME, "Field required"),
    ("CDSWAP", {**INCOME, "control_field": []}, "at least 1 item"),
    ("CDSWAP", {**INCOME, "control_field": "a", "classifier": {"break": [1]}}, "a classifier is 'identity',"),
    ("CDSWAP", {**INCOME, "control_field": "a", "classifier": "same"}, "a classifier is 'identity'"),
    ("CDSWAP", {**INCOME, "control_field": "a", "classifier": {"breaks": []}}, "at least 1 item"),
    ("CDSWAP", {**INCOME, "control_field": "a", "classifier": {"breaks": [True]}}, "valid"),
    ("CDSWAP", {**INCOME, "control_field": "a", "classifier": {"prefix": 0}}, "greater than or equal to 1"),
    (
        "CDSWAP",
        {**INCOME, "control_field": "a", "classifier": {"groups": {"x": ["y"]}, "othr": "fail"}},
        "unknown name 'othr'; did you mean 'other'?",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": ["a", "b"], "classifier": {"prefix": 2}},
        "the control fields are 2 and the classifiers 1: give a list with one classifier for each control "
        "field",
    ),
    (
        "CDSWAP",
        {**INCOME, "control_field": "a", "classifier": ["identity", "identity"]},
        "give a list with one classifier for each control field",
    ),
    ("DDSWAP", {**INCOME, "control_field": "a"}, "Field required"),
    ("DDSWAP", {**INCOME, "control_field": "a", "block_size": 1}, "greater than or equal to 2"),
]


@pytest.mark.parametrize(("service", "parameters", "message"), BY_MODEL)
def test_the_model_refuses(service: str, parameters: dict[str, Any], message: str) -> None:
    """Faults that need no schema are refused without one."""
    with pytest.raises(ValidationError) as caught:
        PROVIDERS[service].params.model_validate(parameters)
    assert any(message in error["msg"] for error in caught.value.errors()), caught.value


def test_fields_by_position_become_names() -> None:
    """Checked parameters name every field."""
    params: Any = check("DSWAP", {"swap_field_indices": [3, 1]})
    assert params.swap_fields == ("city", "age")
    assert params.swap_field_indices == ()


def test_optims_operands_are_aliases() -> None:
    """Optim's names say the same as ours."""
    optim = {
        "SWAP_FIELD_NAMES": "income, age",
        "SWAP_LOCKED": True,
        "SWAP_RATE": 0.5,
        "SWAP_CONTROL_ATTR": "city",
        "SWAP_CLASSIFIER": {"prefix": 1},
    }
    ours = {
        "swap_fields": ["income", "age"],
        "locked": True,
        "rate": 0.5,
        "control_field": ["city"],
        "classifier": [{"prefix": 1}],
    }
    assert check("CDSWAP", optim) == check("CDSWAP", ours)
    blocks = {"SWAP_FIELD_INDICES": [2], "SWAP_CONTROL_ATTR": "age", "SWAP_BLOCK_SIZE": 5}
    assert check("DDSWAP", blocks) == check(
        "DDSWAP", {"swap_fields": ["income"], "control_field": "age", "block_size": 5}
    )


@pytest.mark.parametrize(
    "classifier", ["identity", {"breaks": [1, 2.5]}, {"groups": {"a": [1]}}, {"prefix": 2}]
)
def test_parameters_survive_json(classifier: Any) -> None:
    """A stored job's parameters are the parameters that ran."""
    params = check("CDSWAP", {**INCOME, "control_field": "age", "classifier": classifier})
    stored = json.loads(json.dumps(params.model_dump(mode="json")))
    assert PROVIDERS["CDSWAP"].params.model_validate(stored) == params


@pytest.mark.parametrize("service", PROVIDERS)
def test_the_json_schema_describes_every_parameter(service: str) -> None:
    """A client sees each parameter with its meaning; a control field is a name or a list of names."""
    schema = PROVIDERS[service].params.model_json_schema()
    assert all(property_.get("description") for property_ in schema["properties"].values())
    if "control_field" in schema["properties"]:
        forms = schema["properties"]["control_field"]["anyOf"]
        assert [form["type"] for form in forms] == ["string", "array"]


def test_two_fields_of_one_name_are_refused() -> None:
    """A name must say which field is meant."""
    schema = pa.schema([("a", pa.int8()), ("a", pa.int8())])
    with pytest.raises(SourceError, match="2 fields named 'a'"):
        check("DSWAP", {"swap_fields": ["a"]}, schema)
