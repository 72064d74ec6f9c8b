"""Record linkage: share of rows that an intruder who knows some fields links to their own."""

from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.record_distance import COST, share_linked
from providers.measures.shared.repeats import share_interval
from providers.neighbours.closest_record import closest
from providers.neighbours.points import Points


def record_linkage(source: Points, destination: Points) -> dict[str, float]:
    """Share of rows that an intruder links to their own, and the share by linking at random.

    The intruder knows the fields of the points and takes the closest released row, or any of several rows
    at the least distance.
    """
    return {"rate": share_linked(closest(source, destination)), "chance": 1.0 / len(source.numbers)}


def _find(comparison: Comparison) -> Finding:
    fields = comparison.options.known_fields or comparison.options.key_fields
    if not fields:
        raise NotApplicable("name what an intruder may know in 'known_fields' or 'key_fields'")
    comparison.need_aligned()
    comparison.need_rows()
    known = [name for name in fields if name in comparison.compared]
    if not known:
        raise NotApplicable("none of the known fields can be compared")
    value, rows = record_linkage(*comparison.points(known)), comparison.sample.size
    notes = {} if rows is None else {"interval": {"rate": share_interval(value["rate"], rows)}}
    return Finding(value, known, rows, notes)


MEASURE = Measure(
    key="record_linkage",
    title="Record linkage",
    concerns="risk",
    goal="low",
    range="0 to 1",
    formula="PSCR on the known fields alone: mean over i of [d(x_i, y_i) = m_i] / t_i; chance: 1 / n",
    source="Perry, Matloff and Tendick 2024, 9.1.3",
    cost=COST,
    find=_find,
    parts=(Part("rate", guessing=True, share_of_rows=True),),
    needs=("known_fields", "key_fields"),
    words={"rate": "re-identified", "chance": "by chance alone"},
)
