"""The table bodyfat as 9.3.2 uses it: 241 men, body fat by Siri, and the body mass index in regressions."""

import numpy as np
import pyarrow as pa

from benchmarks.papers.experiments import Data
from benchmarks.papers.runs import Matrix, matrix, table_of

LARGEST = 36
"""Row of observation 37, the largest man, counted from 0."""
TARGET = "siri"


def cleaned(data: Data) -> pa.Table:
    """Return 14 fields of the men whose density and fat agree, without impossible fat and height."""
    table = data.read("bodyfat")
    density, fat, height = (table[name].to_numpy().astype(float) for name in ("density", "siri", "height"))
    agree = np.abs(np.round(495 / density - 450, 1) - fat) <= 1
    kept = agree & (fat >= 4) & (height >= 30)
    fields = table.filter(pa.array(kept)).drop_columns(["case", "brozek", "density"])
    return table_of(matrix(fields), fields.column_names)


def mass_index(values: Matrix, fields: list[str]) -> Matrix:
    """Return weight / height^2 with 703 lb / in^2 as its unit, shape (rows,)."""
    index: Matrix = 703 * values[:, fields.index("weight")] / values[:, fields.index("height")] ** 2
    return index


def regressors(values: Matrix, fields: list[str]) -> tuple[Matrix, Matrix]:
    """Return body fat, shape (rows,), and all other fields with the body mass index, shape (rows, 14)."""
    target = fields.index(TARGET)
    others = np.delete(values, target, axis=1)
    return values[:, target], np.column_stack([others, mass_index(values, fields)])
