"""Tables that a service refuses for their number of rows: the check before a run raises its error."""

from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import SourceError
from providers.progress import no_progress

PARTS = {"swap_fields": ["x"], "k": 2, "method": "partitioned", "parts": 3}


def table_of(rows: int) -> pa.Table:
    numbers = [float(row) for row in range(rows)]
    return pa.table({"x": numbers, "y": numbers[::-1], "town": ["a"] * rows}, schema=SCHEMA)


SCHEMA = pa.schema([("x", pa.float64()), ("y", pa.float64()), ("town", pa.string())])

REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("MEDS", PARTS, 11),
    ("MEDS", PARTS | {"others": "univariate"}, 3),
    ("RWN", {}, 1),
    ("RWN", {"neighbours": "partition", "parts": 3}, 5),
    ("PABIDOT", {}, 0),
    ("PABIDOT", {"nulls": "drop_from_fit"}, 1),
]


@pytest.mark.parametrize(("service", "given", "rows"), REFUSED)
def test_the_check_raises_the_error_of_the_run(service: str, given: dict[str, Any], rows: int) -> None:
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(given), SCHEMA)
    with pytest.raises(SourceError) as checked:
        provider.check_rows(params, rows)
    with pytest.raises(SourceError) as run:
        provider.swap(table_of(rows), params, provider.stream(bytes(32)), no_progress)
    assert checked.value.args == run.value.args


ACCEPTED: list[tuple[str, dict[str, Any], int]] = [
    ("MEDS", PARTS, 0),
    ("MEDS", PARTS, 12),
    ("MEDS", PARTS | {"nulls": "keep"}, 3),  # only the run knows how many rows have numbers
    ("RWN", {"neighbours": "partition", "parts": 3}, 0),
    ("RWN", {"neighbours": "partition", "parts": 3}, 6),
    ("PABIDOT", {}, 2),
    ("DSWAP", {"swap_fields": ["x"]}, 1),
]


@pytest.mark.parametrize(("service", "given", "rows"), ACCEPTED)
def test_other_numbers_of_rows_pass_the_check(service: str, given: dict[str, Any], rows: int) -> None:
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(given), SCHEMA)
    provider.check_rows(params, rows)
