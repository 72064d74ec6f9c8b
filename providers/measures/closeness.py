"""How close the destination's rows are to the source's: PSCR, DCR and interval disclosure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.closest import closest
from providers.measures.measure import Measure
from providers.space import Points, encode

Float64Array = npt.NDArray[np.float64]


def paired_points(
    source: pa.Table, destination: pa.Table, fields: Sequence[str], categorical: Sequence[str] = ()
) -> tuple[Points, Points]:
    """The rows of both tables as points of one space, that of the source's ranges and categories."""
    columns = [
        pa.chunked_array(
            [*source.column(name).chunks, *destination.column(name).chunks], source.field(name).type
        )
        for name in fields
    ]
    rows = source.num_rows
    both = encode(pa.table(columns, names=list(fields)), fields, categorical, fitted_on=rows)
    return both.slice(0, rows), both.slice(rows, len(both.numbers))


def pscr(source: Points, destination: Points) -> float:
    """Chance that an intruder who takes the closest row of the destination takes a row's own.

    Parameters
    ----------
    source, destination : Points
        Row i of the one became row i of the other; at least one row.
    """
    found = closest(source, destination)
    return float(np.mean(found.own / found.ties))


def dcr(source: Points, destination: Points) -> dict[str, float]:
    """Distance to the closest record: mean, fifth percentile, and share of distances that are 0."""
    distances = closest(source, destination).distances
    return {
        "mean": float(distances.mean()),
        "p05": float(np.percentile(distances, 5)),
        "at_zero": float(np.mean(distances == 0)),
    }


def raw_dcr(source: Float64Array, destination: Float64Array) -> float:
    """Mean distance to the closest record in the fields' own units; shapes (n, fields)."""
    none = np.zeros((len(source), 0), np.int32)
    one, two = (
        Points(np.ascontiguousarray(table, np.float64), none, 0, 0.0) for table in (source, destination)
    )
    return float(closest(one, two).distances.mean())


def interval_sd(source: Float64Array, destination: Float64Array, k: float = 1.0) -> dict[str, Any]:
    """Share of rows whose every value is near the one released, and that share field by field.

    Parameters
    ----------
    source, destination : ndarray, shape (n, fields)
        Numbers.
    k : float
        Half the width of an interval, in standard deviations of the destination's field: 1 in the
        RWN paper, .05 in sdcMicro.
    """
    widths = k * destination.std(axis=0, ddof=1)
    near = np.abs(source - destination) <= widths
    return {"share": float(near.all(axis=1).mean()), "by_field": near.mean(axis=0).tolist()}


PSCR = Measure(
    key="pscr",
    title="Share of rows whose own is the closest released",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="mean over i of [d(x_i, y_i) = m_i] / t_i, m_i the least distance to any y_j, attained t_i times",
    source="Perry, Matloff and Tendick 2024, 9.1.4",
    cost="O(n log n) in few fields, towards O(n^2) in many",
    compute=pscr,
)

DCR = Measure(
    key="dcr",
    title="Distance to the closest record",
    concerns="risk",
    goal="high",
    range="0 or more",
    formula="m_i, the least distance of x_i to any y_j: mean, 5th percentile, share of m_i = 0",
    source="Perry, Matloff and Tendick 2024, 9.1.5 and 9.4",
    cost="O(n log n) in few fields, towards O(n^2) in many",
    compute=dcr,
)

INTERVAL_SD = Measure(
    key="interval_sd",
    title="Interval disclosure by standard deviations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |x_if - y_if| <= k sd(y_f) for every field f",
    source="Perry, Matloff and Tendick 2024, 9.4; sdcMicro, dRisk (Mateo-Sanz, Sebe and Domingo-Ferrer 2004)",
    cost="O(n)",
    compute=interval_sd,
)
