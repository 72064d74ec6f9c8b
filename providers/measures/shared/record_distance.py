"""Figures of the distance to the closest record that several measures share."""

from providers.arrays import Float64Array
from providers.measures.shared.measure import Extremes
from providers.neighbours.closest_record import Closest

COST = "O(n log n) in few fields, towards O(n^2) in many: on the sample"

COST_AMONG_SAMPLE = (
    f"{COST}: the closest row is sought in the sample only, so that PSCR and DCR are larger than among "
    "all rows"
)

SCALED_BY_RANGE = Extremes("range", sides=("source",), instead="`interval_sd.robust`")
"""Distances are scaled by the source's range, so that one extreme value makes all others equal."""


def chances_of_link(closest: Closest) -> Float64Array:
    """Chance of each row to be linked to its own by an intruder who takes a closest row at random.

    Parameters
    ----------
    closest : Closest
        Row i of the source became row i of the destination; at least one row. With units, each row of the
        same unit is the row of the person.
    """
    found: Float64Array = closest.own / closest.ties
    return found


def share_linked(closest: Closest) -> float:
    """Expected share of rows that are linked to their own; see `chances_of_link`."""
    return float(chances_of_link(closest).mean())
