"""Identifiers and weights of real tables are recognised, and nothing else is."""

from pathlib import Path

import pytest

from providers.measures.shared.comparison import Comparison, Release
from providers.measures.shared.options import MeasureOptions
from providers.randomness.chacha20 import Stream
from tests.data.test_real_tables import read

pytestmark = pytest.mark.realdata

RECOGNISED = {
    "testdata.csv": {"ori_hid", "sampling_weight", "household_weights"},
    "adult.csv": {"fnlwgt"},
    "CASCrefmicrodata.csv": {"AFNLWGT"},
    "bodyfat.csv": {"case"},
    "abalone.csv": set(),  # Whole_weight is what the shellfish weighs
    "svcensus.csv": set(),  # every age is another, by a random fraction
    "peFactors.csv": set(),
    "EIA.csv": set(),  # 258 utilities in 4092 rows: categories
    "wine_quality_white.csv": set(),
    "wholesale_customers.csv": set(),
    "pima_diabetes_na.csv": set(),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_identifiers_and_weights_take_no_part(data_dir: Path, name: str) -> None:
    """A recognised field is reported with the reason; all other fields are compared."""
    table = read(data_dir / name)
    case = Comparison(Release(table, table), MeasureOptions(), Stream(bytes(32), "measures", 1))
    found = set(table.column_names) - set(case.compared)
    assert found == RECOGNISED[name]
    assert set(case.columns) == set(table.column_names)
    assert all("takes no part in distances" in case.left_out[field] for field in found)
