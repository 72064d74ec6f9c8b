"""Donor inference on RWN: which of the values shown near a person is the person's own.

RWN gives each value to rows of whose neighbourhoods its row is a member. An intruder who knows where a person
is among the released rows finds the rows that may have received the person's value: those at most as far
away as their own k-th nearest row. The person's value is shown there with probability q / k a row, whatever
else is shown there by chance. Bayes' rule chooses among the values shown nearby; a rare value that two such
rows show has most likely one donor.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, risk_of, successes
from providers.attacks.methods.groups import checked_params, joint_codes
from providers.attacks.tables import LEAST_ATTACKS, AttackTables, Rows
from providers.errors import ProviderError
from providers.measures.shared.columns import in_one_type
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.neighbours.points import Points, encode
from providers.services.rwn import RwnParams

_NEARBY = 20
"""Least number of released rows near a person whose values are candidates."""
_LOCAL = 0.9
"""Weight of the nearby rows in the chance that a value is shown for another reason."""
MOST_PAIRS = 400_000_000
"""Most pairs of released rows that are compared for neighbourhoods; larger tables are attacked less often."""
_CELLS = 1 << 17
"""Distances that are held at a time: they fit into a core's cache."""
_SAME = 1e-9
"""Squared distance up to which two rows agree in all known fields, in squared ranges of a field."""
_TIE = 1 + 1e-6
"""Factor within which a row as far away as the k-th nearest is a neighbour, squared."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Released rows near one attacked person."""

    rows: Int64Array
    """Nearest released rows in ascending order of distance; shape (nearby,)."""
    squared: Float64Array
    """Their squared distances; shape (nearby,)."""
    radii: Float64Array
    """Squared distance of each to its own k-th nearest other released row; shape (nearby,)."""


def choose_value(
    near: Neighbourhood, shown: Int64Array, frequency: Float64Array, k: int, q: float
) -> tuple[int, int]:
    """Return the code of the value that is most likely the person's own, and the rows that may show it.

    Parameters
    ----------
    near : Neighbourhood
    shown : ndarray of int64, shape (rows,)
        Code of the value that each released row shows.
    frequency : ndarray of float64, shape (codes,)
        Share of the released rows that show each value.
    k : int
        Rows of a neighbourhood.
    q : float
        Probability with which a value is replaced.

    Notes
    -----
    Let b be the chance that a row nearby shows a value v for another reason: nine tenths from the rows
    nearby, one tenth from all rows. A row that may have received the person's value shows it with
    probability q / k, so that each such row with v multiplies the odds of v by 1 + q / ((k - q) b). A single
    row that agrees in all known fields is taken for the person's own: at q = 1 it never shows the own value,
    and below it does so with probability 1 - q.
    """
    values, local = np.unique(shown[near.rows], return_counts=True)
    other = _LOCAL * local / len(near.rows) + (1 - _LOCAL) * frequency[values]
    own = near.squared <= _SAME
    may = near.squared <= near.radii * _TIE
    score = np.log(other)
    if np.count_nonzero(own) == 1:
        may &= ~own
        if q < 1:
            mine = values == shown[near.rows[own]][0]
            score = score + mine * np.log1p((1 - q) / (q * other))
    count = (shown[near.rows[may]][:, None] == values).sum(axis=0)
    score = score + count * np.log1p(q / (max(k - q, 1e-9) * other))
    return int(values[score.argmax()]), int(np.count_nonzero(may))


def squared_distances(points: Points, others: Points) -> Float64Array:
    """Return the squared distances of RWN between all pairs; shape (points, others)."""
    # Field by field: a matrix product rounds as the processor does, and would decide ties by that.
    squared = np.zeros((len(points.numbers), len(others.numbers)))
    for one, two in zip(points.numbers.T, others.numbers.T.copy(), strict=True):
        difference = one[:, None] - two
        squared += np.multiply(difference, difference, out=difference)
    for first, last, weight in ((0, points.flags, points.weight), (points.flags, None, 2.0)):
        mine, theirs = points.codes[:, first:last], others.codes[:, first:last]
        if mine.shape[1]:
            mismatches = np.zeros(squared.shape, np.uint16)  # counted first: floats take longer to add
            for index in range(mine.shape[1]):
                mismatches += mine[:, index][:, None] != theirs[:, index]
            squared += weight * mismatches
    return squared


def take(points: Points, rows: Int64Array) -> Points:
    """Return some of the points."""
    return Points(points.numbers[rows], points.codes[rows], points.flags, points.weight)


def nearest_first(distances: Float64Array, wanted: int) -> Int64Array:
    """Return the places of the least distances in ascending order; the first of equal ones."""
    limit = np.partition(distances, wanted - 1)[wanted - 1]
    within = np.flatnonzero(distances <= limit)  # `argpartition` takes other equal ones on other processors
    return within[distances[within].argsort(kind="stable")[:wanted]].astype(np.int64)


def nearby(
    people: Points, released: Points, k: int, wanted: int, radii: dict[int, float]
) -> list[Neighbourhood]:
    """Return the released rows near each person.

    Parameters
    ----------
    people, released : Points
        Known fields of attacked and of released rows, in one space.
    k : int
        Rows of a neighbourhood.
    wanted : int
        Number of nearest rows, at most those of the release.
    radii : dict
        Released row -> squared distance to its k-th nearest other row, as far as computed; extended.
    """
    count = len(released.numbers)
    block = max(1, _CELLS // count)
    found: list[tuple[Int64Array, Float64Array]] = []
    for start in range(0, len(people.numbers), block):
        squared = squared_distances(people.slice(start, start + block), released)
        for row in squared:
            rows = nearest_first(row, wanted)
            found.append((rows, row[rows]))
    missing = sorted({int(row) for rows, _ in found for row in rows} - radii.keys())
    place = min(k, count - 1)  # the row itself is at distance 0, at place 0
    for start in range(0, len(missing), block):
        rows = np.array(missing[start : start + block])
        squared = squared_distances(take(released, rows), released)
        squared[np.arange(len(rows)), rows] = -1.0
        limits = np.partition(squared, place, axis=1)[:, place]
        radii.update(zip(rows.tolist(), limits.tolist(), strict=True))
    return [
        Neighbourhood(rows, squared, np.array([radii[int(row)] for row in rows])) for rows, squared in found
    ]


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    params = checked_params(tables)
    tables.need_rows(3)
    known = [
        name for name in tables.need_known() if name in params.distance_fields and name in tables.columns
    ]
    if not known:
        raise NotApplicable("no known field is among the fields by which RWN chose neighbours")
    secrets = [name for name in tables.options.secret if name in params.perturb_fields]
    if not secrets:
        raise NotApplicable("name a perturbed field in 'secret'")
    sides: tuple[Rows, ...] = (
        ("release", "source") if tables.control is None else ("release", "source", "control")
    )
    released, attacked = _points(tables, known, params)
    rows = tables.release.num_rows
    k = min(params.k, rows - 1)
    wanted = min(max(_NEARBY, 4 * k), rows)
    targets = {}
    most = max(LEAST_ATTACKS, MOST_PAIRS // (wanted * rows * (len(sides) - 1)))
    for side, every in (("source", tables.targets), ("control", tables.control_targets)):
        targets[side] = every[sample_rows(len(every), most, tables.stream, f"people near {side} rows")]
    first = {"source": 0, "control": tables.source.num_rows}
    radii: dict[int, float] = {}
    near = {}
    for index, side in enumerate(sides[1:]):
        tables.progress(0.4 * index, "searching neighbours")
        near[side] = nearby(take(attacked, first[side] + targets[side]), released, k, wanted, radii)
    found = {}
    for index, secret in enumerate(secrets):
        tables.progress(0.8 + 0.2 * index / len(secrets), f"guessing {secret}")
        codes = dict(zip(sides, joint_codes(tables, [secret], sides), strict=True))
        frequency = np.bincount(codes["release"], minlength=max(c.max(initial=0) for c in codes.values()) + 1)
        share = frequency / rows
        counts: dict[str, int] = {}
        receivers: list[int] = []
        for side in sides[1:]:
            guesses = [choose_value(each, codes["release"], share, k, params.q) for each in near[side]]
            truth = codes[side][targets[side]]
            counts[side] = sum(
                guess == value for (guess, _), value in zip(guesses, truth.tolist(), strict=True)
            )
            if side == "source":
                receivers = [count for _, count in guesses]
        tries, confidence = len(targets["source"]), tables.options.confidence
        attack = successes(counts["source"], tries, confidence)
        controls = len(targets["control"])
        control = successes(counts["control"], controls, confidence) if controls else None
        commonest = int((codes["source"][targets["source"]] == share.argmax()).sum())
        found[secret] = AttackResult(
            attack,
            successes(commonest, tries, confidence),
            control,
            risk_of(attack, control),
            details={"known": known, "k": k, "q": params.q, "mean_receivers": float(np.mean(receivers))},
        )
    return found


def _points(tables: AttackTables, known: list[str], params: RwnParams) -> tuple[Points, Points]:
    """Return the known fields of the release and of the attacked rows as points of one space.

    Numbers are scaled by their range in the release. The rows of the source come before the control rows.

    Raises
    ------
    NotApplicable
        A field has values that have no distance.
    """
    columns = {}
    for name in known:
        by_side = tables.columns[name].tables
        attacked, released = in_one_type(by_side["source"], by_side["destination"])
        columns[name] = pa.chunked_array([*released.chunks, *attacked.chunks], released.type)
    categorical = [name for name in params.categorical_fields if name in known]
    ordinal = {name: levels for name, levels in params.ordinal_fields.items() if name in known}
    rows = tables.release.num_rows
    try:
        points = encode(pa.table(columns), known, categorical, ordinal, params.categorical_weight, rows)
    except ProviderError as error:
        raise NotApplicable(str(error)) from error
    return points.slice(0, rows), points.slice(rows, len(points.numbers))


ATTACK = Attack(
    name="donor_inference",
    title="Donor inference of exact values",
    meaning="A person's exact value is chosen among those that the rows near the person have received.",
    source="Rowveil; the method of Perry, Matloff and Tendick 2024, arXiv:2210.06687, section 4.1",
    run=_run,
    services=("RWN",),
    cost="O(a n d) for the rows near a person, and O(a k n d) for their neighbourhoods",
)
