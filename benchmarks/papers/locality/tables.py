"""Tables of LOCALITY's experiments (section 5)."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.papers.experiments import Data
from benchmarks.papers.runs import table_of

SYNTHETIC_ROWS = 10_000
QUASI_IDENTIFIERS = ("age", "fnlwgt", "education-num")
ADULT_ROWS = 30_000


def census(data: Data) -> pa.Table:
    """Age, birth place and occupation of 20,090 persons, for the paper's sample of IPUMS."""
    return data.read("peFactors").select(["age", "birth", "occ"])


def synthetic(rows: int = SYNTHETIC_ROWS) -> pa.Table:
    """Return three independent fields, uniform on [0, 1]."""
    return table_of(np.random.default_rng(rows).random((rows, 3)), ("x1", "x2", "x3"))


def adult(data: Data, rows: int = ADULT_ROWS) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return the quasi-identifiers of the first complete rows of adult, and the codes of their occupations.

    Rows whose workclass, occupation or country is missing are left out: 14 occupations remain, as in the
    paper's queries.
    """
    table = data.read("adult")
    complete = np.ones(table.num_rows, np.bool_)
    for name in ("workclass", "occupation", "native-country"):
        complete &= np.array(table[name].to_pylist()) != "?"
    chosen = np.flatnonzero(complete)[:rows]
    occupations = np.array(table["occupation"].to_pylist())[chosen]
    codes = np.unique(occupations, return_inverse=True)[1].astype(np.int64)
    return table.select(list(QUASI_IDENTIFIERS)).take(pa.array(chosen)), codes
