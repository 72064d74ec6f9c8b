"""bodyfat as the RWN paper uses it: cleaned, and with the body mass index in its regressions."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from providers.measures.models.linear_model import Regression
from tests.naive.measures import regression

Float64Array = npt.NDArray[np.float64]


def cleaned(path: Path) -> pa.Table:
    """241 men: those whose density and fat contradict each other, the impossible ones left out."""
    table = pyarrow.csv.read_csv(path)
    density, fat, height = (table[name].to_numpy().astype(float) for name in ("density", "siri", "height"))
    contradicts = np.abs(np.round(495 / density - 450, 1) - fat) > 1
    wrong = contradicts | (fat < 4) | (height < 30)
    return table.filter(pa.array(~wrong)).drop_columns(["case", "brozek", "density"])


def matrix(table: pa.Table) -> Float64Array:
    return np.column_stack([column.to_numpy().astype(float) for column in table.columns])


def fat_on_the_rest(table: pa.Table) -> Regression:
    """Body fat on all other measures and the body mass index, 703 lb / in^2."""
    names = [name for name in table.column_names if name != "siri"]
    fields = {name: table[name].to_numpy().astype(float) for name in table.column_names}
    mass_index = 703 * fields["weight"] / fields["height"] ** 2
    return regression(fields["siri"], np.column_stack([*(fields[name] for name in names), mass_index]))
