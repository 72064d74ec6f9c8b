"""Li and Shen's P: an intruder's guessing probability, from minimal bin depths.

References
----------
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
pp. 208-215: the pruning scheme (section 3.2), eq. 1 and lemmas 1 and 2 (section 4).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from providers.binning.grid import MOST_CELLS, axis_of_cells, fewest_cells, rows_by_cell
from providers.binning.values import FieldValues
from providers.progress import no_progress

# ------------------------------------------------------------------------------- minimal depths, N*

MOST_PARTITIONINGS = 64
"""Largest number of partitionings whose minimal depth is computed."""

FEWEST_PARTITIONINGS = 16
"""If the table is so large that fewer partitionings could be tried, none is."""

MOST_VALUES = 2**22
"""Largest number of values read for minimal depths, over all partitionings together."""


def depths_publishable(rows: int, fields: int) -> bool:
    """Whether a table is small enough for `minimal_depths`."""
    return MOST_VALUES // (rows * fields) >= FEWEST_PARTITIONINGS


def minimal_depths(fields: Sequence[FieldValues], widest: float) -> set[int] | None:
    """Find the minimal depths N*: the rows of the smallest bin of each admissible partitioning.

    Parameters
    ----------
    fields : sequence of FieldValues
    widest : float
        Upper bound t_ub of the cell width, as a share of each field's range.

    Returns
    -------
    set of int or None
        Depths of 2 or more; None for a table of more than `MOST_VALUES` / `FEWEST_PARTITIONINGS` values.

    Notes
    -----
    A partitioning cuts every field's range into m cells no wider than `widest` (step 1 of the pruning
    scheme), at most `MOST_CELLS`. Ascending m are tried up to the bounds above, since more cells almost
    always leave singletons. A partitioning with a singleton is not admissible (step 2), and equal depths
    count once (step 3). O(rows fields) for each m.
    """
    rows = len(fields[0].values)
    if not depths_publishable(rows, len(fields)):
        return None
    tried = min(MOST_PARTITIONINGS, MOST_VALUES // (rows * len(fields)))
    least = fewest_cells(widest)
    depths = set()
    for cells in range(least, min(least + tried, MOST_CELLS + 1)):
        _, starts = rows_by_cell(
            fields, [axis_of_cells(field, field.low, cells) for field in fields], no_progress
        )
        depths.add(int(np.diff(starts).min()))
    return depths - {1}


# ------------------------------------------------------------------------------------------ P, eqs. 1 to 3

_EXACT = 2**16  # largest number of terms that are summed one by one

_EULER = 0.57721566490153286061

P_PRIVACY_KEY = "p_privacy"
"""Key of the measure P."""


def p_of_depths(minimal_depths: Iterable[int]) -> float | None:
    """Return P by lemma 2 (eq. 3), each depth counted once; None if there is no depth.

    Parameters
    ----------
    minimal_depths : iterable of int
        Depths of 2 or more.
    """
    depths = set(minimal_depths)
    if not depths:
        return None
    return math.fsum(1.0 / (depth - 1) for depth in depths) / len(depths)


def p_meds(rows: int) -> float | None:
    """Return P of MEDS by lemma 1 (eq. 2) as printed; None if the rows cannot form two bins."""
    q = _meds_depths(rows)
    return (_harmonic(q // 2) + q / (2 * (q + 2))) / q if q > 0 else None


def p_meds_by_depths(rows: int) -> float | None:
    """Return P of MEDS by eq. 1: the mean of 1 / (k - 1) over the possible depths k.

    None if the rows cannot form two bins.
    """
    q = _meds_depths(rows)
    return _harmonic(q) / q if q > 0 else None


def _meds_depths(rows: int) -> int:
    """Return q_ed, the number of depths 2, 3, ..., floor(rows / 2) that give two bins or more."""
    return rows // 2 - 1


def _harmonic(count: int) -> float:
    """Return H_count, the sum of 1 / i for i from 1 to `count`."""
    if count <= _EXACT:
        return math.fsum(1.0 / i for i in range(1, count + 1))
    return math.log(count) + _EULER + 1 / (2 * count) - 1 / (12 * count**2)  # error below 1e-19


def chance_in_bins(minimal_depth: int) -> float | None:
    """Chance of an intruder who knows the bins, in the smallest one; None if it holds a single row."""
    return 1.0 / (minimal_depth - 1) if minimal_depth > 1 else None


def privacy_of_mews(depths: Iterable[int], minimal_depth: int) -> dict[str, Any]:
    """Return the value of the measure for MEWS.

    Parameters
    ----------
    depths : iterable of int
        Minimal depths, 2 or more, of the partitionings that the intruder considers possible.
    minimal_depth : int
        Rows of the smallest bin of the partition that was used.
    """
    return {
        "p": p_of_depths(depths),
        "minimal_depth": minimal_depth,
        "chance": chance_in_bins(minimal_depth),
    }


def privacy_of_meds(rows: int, minimal_depth: int) -> dict[str, Any]:
    """Return the value of the measure for MEDS: P by eq. 2 and by eq. 1, and the chance in the bins used."""
    return {
        "p": p_meds(rows),
        "p_eq1": p_meds_by_depths(rows),
        "minimal_depth": minimal_depth,
        "chance": chance_in_bins(minimal_depth),
    }
