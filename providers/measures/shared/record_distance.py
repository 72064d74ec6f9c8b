"""Figures of the distance to the closest record that several measures share."""

import numpy as np

from providers.neighbours.closest_record import Closest

COST = "O(n log n) in few fields, towards O(n^2) in many: on the sample"

COST_AMONG_SAMPLE = (
    f"{COST}: the closest row is sought in the sample only, so that PSCR and DCR are larger than among "
    "all rows"
)


def share_linked(closest: Closest) -> float:
    """Expected share of rows that an intruder links to their own by taking a closest row at random.

    Parameters
    ----------
    closest : Closest
        Row i of the source became row i of the destination; at least one row. With units, each row of the
        same unit is the row of the person.
    """
    return float(np.mean(closest.own / closest.ties))
