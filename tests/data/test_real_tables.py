"""The swaps on real tables, and on each of them equal to the naive twin."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from providers.services.cdswap import CdswapParams
from providers.services.ddswap import DdswapParams
from tests.naive import cdswap, ddswap
from tests.naive.agreement import assert_agree
from tests.naive.columns import lists_of, values_of

pytestmark = pytest.mark.realdata

RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("adult.csv", "CDSWAP", {"swap_fields": ["income", "hours-per-week"], "control_field": "education"}),
    (
        "adult.csv",
        "CDSWAP",
        {
            "swap_fields": ["income", "capital-gain", "occupation"],
            "control_field": ["age", "native-country", "sex"],
            "classifier": [
                {"breaks": [18, 30, 45, 65]},
                {"groups": {"home": ["United-States"], "unknown": ["?"]}, "other": "one_class"},
                "identity",
            ],
            "locked": True,
        },
    ),
    (
        "adult.csv",
        "DDSWAP",
        {"swap_fields": ["income", "workclass"], "control_field": "age", "block_size": 10},
    ),
    ("adult.csv", "DSWAP", {"swap_fields": ["fnlwgt", "native-country"], "rate": 0.2}),
    (
        "EIA.csv",
        "CDSWAP",
        {"swap_fields": ["TOTREVENUE", "RESSALES"], "control_field": ["STATE", "MONTH"], "min_group_size": 5},
    ),
    (
        "EIA.csv",
        "CDSWAP",
        {"swap_fields": ["TOTSALES"], "control_field": "UTILNAME", "classifier": {"prefix": 4}},
    ),
    (
        "EIA.csv",
        "DDSWAP",
        {"swap_fields": ["RESREVENUE"], "control_field": ["YEAR", "TOTSALES"], "block_size": 7},
    ),
    (
        "testdata.csv",
        "CDSWAP",
        {"swap_fields": ["income", "savings", "expend"], "control_field": ["urbrur", "roof", "walls", "sex"]},
    ),
    (
        "testdata.csv",
        "DDSWAP",
        {"swap_fields": ["income", "expend"], "control_field": "age", "block_size": 4},
    ),
    (
        "nycflights13_flights.parquet",
        "CDSWAP",
        {"swap_fields": ["dep_delay", "tailnum"], "control_field": ["carrier", "origin"], "nulls": "keep"},
    ),
    (
        "nycflights13_flights.parquet",
        "DDSWAP",
        {"swap_fields": ["arr_delay"], "control_field": "time_hour", "block_size": 25},
    ),
    ("nycflights13_flights.parquet", "DSWAP", {"swap_fields": ["time_hour"]}),
]


def read(path: Path) -> pa.Table:
    return pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)


@pytest.mark.parametrize(("file", "service", "parameters"), RUNS)
def test_real_table(data_dir: Path, file: str, service: str, parameters: dict[str, Any]) -> None:
    """Equal to the twin; classes and blocks hold what they held; every other field is untouched."""
    path = data_dir / file
    fields = parameters["swap_fields"]
    control = parameters.get("control_field", [])
    control = [control] if isinstance(control, str) else control
    table = read(path)
    bystander = next(name for name in table.column_names if name not in {*fields, *control})
    table = table.select([*fields, *control, bystander])
    parameters = {**parameters, "suppression": {"policy": "keep"}}
    fast, naive = assert_agree(service, table, parameters)
    assert fast is not None
    keys = keys_of(service, table, parameters)
    for name in table.column_names:
        before, after = table[name], fast.table[name]
        if name not in fields:
            assert after.equals(before)
            continue
        values = values_of(before), values_of(after)
        assert Counter(values[0]) == Counter(values[1])
        assert Counter(zip(values[0], keys, strict=True)) == Counter(zip(values[1], keys, strict=True))
        assert fast.summary.changed[name] > 0
    assert fast.summary.unswapped == naive.unswapped


def keys_of(service: str, table: pa.Table, parameters: dict[str, Any]) -> list[Any]:
    """Label of each row's group, computed by the twin."""
    if service == "CDSWAP":
        return cdswap.classes(lists_of(table), CdswapParams.model_validate(parameters))
    if service == "DDSWAP":
        params = DdswapParams.model_validate(parameters)
        groups = ddswap.blocks(ddswap.ranked(lists_of(table), params), params.block_size)
        key_of = {row: group.identity for group in groups for row in group.rows}
        return [key_of[row] for row in range(table.num_rows)]
    return [0] * table.num_rows
