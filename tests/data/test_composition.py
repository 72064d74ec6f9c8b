"""Twenty releases of adult attacked together: the figures of the page about repeated releases."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.attacks.composition.hypothetical import compose_hypothetical
from providers.attacks.figures import AttackResult
from providers.attacks.suite import attacks_stream
from tests.data.test_real_tables import read

pytestmark = pytest.mark.realdata

NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]


@pytest.fixture(scope="module")
def adult(data_dir: Path) -> pa.Table:
    """Adult with a number for each row, so that every value has one owner."""
    table = read(data_dir / "adult.csv")
    return table.append_column("owner", pa.array(np.arange(table.num_rows)))


def composed(service: str, table: pa.Table, parameters: dict[str, Any], secret: str) -> AttackResult:
    """The strongest attack on 20 releases."""
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    found = compose_hypothetical(table, provider, params, 20, [secret], attacks_stream(bytes(32)))
    return found.attacks[secret]


@pytest.mark.parametrize(
    ("service", "parameters", "secret", "by", "one", "all_releases"),
    [
        ("DSWAP", {"swap_fields": ["owner"], "rate": 0.3}, "owner", "majority", 0.72, 1.0),
        (
            "DDSWAP",
            {"swap_fields": ["owner"], "control_field": "age", "block_size": 5},
            "owner",
            "exclusion",
            0.25,
            0.993,
        ),
        (
            "RWN",
            {
                "k": 5,
                "q": 0.5,
                "perturb_fields": ["owner"],
                "distance_fields": ["age", "education-num", "hours-per-week"],
            },
            "owner",
            "majority",
            0.5,
            0.99,
        ),
        ("DSWAP", {"swap_fields": ["owner"]}, "owner", "exclusion", 0.0, 0.0),
    ],
)
def test_twenty_releases_of_adult(
    adult: pa.Table,
    service: str,
    parameters: dict[str, Any],
    secret: str,
    by: str,
    one: float,
    all_releases: float,
) -> None:
    attacks = composed(service, adult, parameters, secret).details["attacks"][by]
    assert attacks["curve"]["1"] == pytest.approx(one, abs=0.04)
    assert attacks["rate"] == pytest.approx(all_releases, abs=0.012)


@pytest.mark.parametrize(
    ("sigma", "one", "all_releases"), [(0.3, 0.96, 0.99), (1.0, 0.80, 0.95), (2.0, 0.65, 0.90)]
)
def test_twenty_releases_of_adult_by_pabidot(
    adult: pa.Table, sigma: float, one: float, all_releases: float
) -> None:
    """R^2 of age by least squares from a tenth of the rows."""
    parameters = {"fields": NUMBERS, "shuffle": False, "sigma": sigma}
    found = composed("PABIDOT", adult.select(NUMBERS), parameters, "age").details["attacks"]["least_squares"]
    assert [found["r_squared"]["1"], found["r_squared"]["20"]] == pytest.approx([one, all_releases], abs=0.02)
