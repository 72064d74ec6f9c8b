"""How close the destination's rows are to the source's: PSCR, DCR and interval disclosure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.closest import Closest, closest
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
    """`pscr_of` what is closest to each point of the source in the destination."""
    return pscr_of(closest(source, destination))


def pscr_of(found: Closest) -> float:
    """Chance that an intruder who takes the closest row of the destination takes a row's own.

    Parameters
    ----------
    found : Closest
        Row i of the source became row i of the destination; at least one row.
    """
    return float(np.mean(found.own / found.ties))


def dcr(source: Points, destination: Points) -> dict[str, float]:
    """`dcr_of` what is closest to each point of the source in the destination."""
    return dcr_of(closest(source, destination))


def dcr_of(found: Closest) -> dict[str, float]:
    """Distance to the closest record: mean, fifth percentile, and share of distances that are 0."""
    distances = found.distances
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


def record_linkage(source: Points, destination: Points) -> dict[str, float]:
    """Share of rows that an intruder links to their own, and what linking at random would give.

    The intruder knows some fields of a person, the points' own, and takes the closest row released;
    where several are as close, any of them.
    """
    return {"rate": pscr(source, destination), "chance": 1.0 / len(source.numbers)}


class IntervalDisclosure:
    """Share of rows whose every value is near the one released, and that share field by field.

    Fields are given one after the other. A value that is missing in the source has nothing to disclose
    and is not counted; one that was there and is missing in the release is not near.

    Parameters
    ----------
    rows : int
    k : float
        Half the width of an interval, in standard deviations of the destination's field.
    """

    def __init__(self, rows: int, k: float) -> None:
        self.k = k
        self.by_field: list[float] = []
        self._near = np.ones(rows, np.bool_)
        self._known = np.zeros(rows, np.bool_)

    def add(self, source: Float64Array, destination: Float64Array) -> None:
        """Count one field; its numbers, NaN where missing, shape (rows,)."""
        known, released = ~np.isnan(source), destination[~np.isnan(destination)]
        width = self.k * released.std(ddof=1) if len(released) > 1 else 0.0
        near = np.abs(source - destination) <= width
        self.by_field.append(float(near[known].mean()) if known.any() else 0.0)
        self._near &= near | ~known
        self._known |= known

    @property
    def share(self) -> float:
        """Of the rows that have a value."""
        return float(self._near[self._known].mean()) if self._known.any() else 0.0


def interval_sd(source: Float64Array, destination: Float64Array, k: float = 1.0) -> dict[str, Any]:
    """`IntervalDisclosure` of numbers; shape (n, fields).

    ``k`` is 1 in the RWN paper, .05 in sdcMicro.
    """
    disclosure = IntervalDisclosure(len(source), k)
    for before, after in zip(source.T, destination.T, strict=True):
        disclosure.add(before, after)
    return {"share": disclosure.share, "by_field": disclosure.by_field}


PSCR = Measure(
    key="pscr",
    title="Share of rows whose own is the closest released",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="mean over i of [d(x_i, y_i) = m_i] / t_i, m_i the least distance to any y_j, attained t_i times",
    source="Perry, Matloff and Tendick 2024, 9.1.4",
    cost="O(n log n) in few fields, towards O(n^2) in many: on the sample, among whose rows the closest is "
    "sought; so PSCR and DCR are larger than they would be among all rows",
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
    cost="O(n log n) in few fields, towards O(n^2) in many: on the sample, among whose rows the closest is "
    "sought; so PSCR and DCR are larger than they would be among all rows",
    compute=dcr,
)

INTERVAL_SD = Measure(
    key="interval_sd",
    title="Interval disclosure by standard deviations",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="share of rows i with |x_if - y_if| <= k sd(y_f) for every field f, and field by field; k = 1, "
    "and narrow: k = .05",
    source="Perry, Matloff and Tendick 2024, 9.4; sdcMicro, dRisk (Mateo-Sanz, Sebe and Domingo-Ferrer 2004)",
    cost="O(n)",
    compute=interval_sd,
)

RECORD_LINKAGE = Measure(
    key="record_linkage",
    title="Record linkage",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="PSCR on the known fields alone: mean over i of [d(x_i, y_i) = m_i] / t_i; chance: 1 / n",
    source="Perry, Matloff and Tendick 2024, 9.1.3",
    cost="O(n log n) in few fields, towards O(n^2) in many: on the sample",
    compute=record_linkage,
)
