"""Recovery of LOCALITY's source by linear programming from some known values.

The values of a segment have the order of the source. At sigma 1 each locality is that of the source, too:
which of the outer two of three values is nearer to the middle one. Known values of the segment turn these
relations into bounds of the others. Between known values, the intruder assumes that the published values
moved linearly, and interpolates. The guess is the feasible point that is nearest to this, in the sum of
absolute differences.

References
----------
Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM: the relations.
"""

import numpy as np

from providers.arrays import BoolArray, Float64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult
from providers.attacks.methods.segments import attacked_rows, judge, known_rows, redrawn_values, segments_of
from providers.attacks.tables import AttackTables

MOST_RELATIONS = 20_000
"""Most localities of a segment that are made constraints; a segment with more has the order alone."""

Relation = tuple[int, int, int, float]
"""Indices i < j < k of published values, and the sign of d_i + d_k - 2 d_j."""


def localities(published: Float64Array) -> list[Relation]:
    """Return the localities of distinct ascending values that imply all others, given the order.

    For i < j with the mirror image 2 d_j - d_i, these are the last value before it and the first after it.
    """
    found: list[Relation] = []
    count = len(published)
    for i in range(count - 2):
        for j in range(i + 1, count - 1):
            mirror = 2 * published[j] - published[i]
            before = int(np.searchsorted(published, mirror, side="left")) - 1
            after = int(np.searchsorted(published, mirror, side="right"))
            if before > j:
                found.append((i, j, before, -1.0))
            if j < after < count:
                found.append((i, j, after, 1.0))
    return found


def interpolate(published: Float64Array, at: Float64Array, known: Float64Array) -> Float64Array:
    """Interpolate between known points; outside of them, values keep their distance from the outermost.

    Parameters
    ----------
    published : ndarray of float64, shape (n,)
        Values to map.
    at : ndarray of float64, shape (m,)
        Published values of the known rows.
    known : ndarray of float64, shape (m,)
        Their true values.
    """
    if not len(at):
        return published.copy()
    at, first = np.unique(at, return_index=True)
    true = known[first]
    inside = np.interp(published, at, true)
    below, above = published < at[0], published > at[-1]
    inside[below] = true[0] - (at[0] - published[below])
    inside[above] = true[-1] + (published[above] - at[-1])
    return inside


def recover_segment(
    published: Float64Array, true: Float64Array, known: BoolArray, all_kept: bool
) -> tuple[Float64Array, str]:
    """Guess the true values of a segment; return them with ``solved``, ``interpolated`` or ``copied``.

    Parameters
    ----------
    published : ndarray of float64, shape (n,)
        Finite values of the segment.
    true : ndarray of float64, shape (n,)
        True values; only those of known rows are read.
    known : ndarray of bool, shape (n,)
    all_kept : bool
        Whether every locality is kept, as at sigma 1.

    Notes
    -----
    Over x and e: minimise sum e_i subject to |x_i - g_i| <= e_i with the interpolated g, x_i <= x_(i+1), the
    localities, and x_i at its value where that is known. Infeasible after rounding to a grid: g itself.
    """
    from scipy import sparse  # takes longer to import than small attacks
    from scipy.optimize import linprog

    guesses = interpolate(published, published[known], true[known])
    if not known.any():
        return guesses, "copied"
    values, variable = np.unique(published, return_inverse=True)
    count = len(values)
    target = interpolate(values, published[known], true[known])
    relations = localities(values) if all_kept and count * count <= MOST_RELATIONS else []
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * count
    for row in np.flatnonzero(known):
        bounds[variable[row]] = (float(true[row]), float(true[row]))
    order = sparse.diags_array(
        [np.ones(count - 1), -np.ones(count - 1)], offsets=[0, 1], shape=(count - 1, count)
    )
    rows = [order] if count > 1 else []
    if relations:
        i, j, k, sign = (np.array(column) for column in zip(*relations, strict=True))
        number = np.arange(len(relations))
        data = np.concatenate([-sign, 2 * sign, -sign])  # sign (d_i + d_k - 2 d_j) >= 0
        places = (np.tile(number, 3), np.concatenate([i, j, k]).astype(np.int64))
        rows.append(sparse.csr_array((data, places), shape=(len(relations), count)))
    identity = sparse.eye_array(count)
    limits = [np.zeros(part.shape[0]) for part in rows]
    blocks = [[part, None] for part in rows] + [[identity, -identity], [-identity, -identity]]
    solution = linprog(
        np.concatenate([np.zeros(count), np.ones(count)]),
        A_ub=sparse.block_array(blocks, format="csr"),
        b_ub=np.concatenate([*limits, target, -target]),
        bounds=bounds + [(0, None)] * count,
        method="highs",
    )
    if solution.status != 0:
        return guesses, "interpolated"
    return np.asarray(solution.x[:count][variable], np.float64), "solved"


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    params, fields = redrawn_values(tables)
    known = known_rows(tables)
    found = {}
    for index, values in enumerate(fields):
        targets = attacked_rows(tables, known, values)
        is_target = np.zeros(len(known), np.bool_)
        is_target[targets] = True
        guesses = values.release.copy()
        ways = {"solved": 0, "interpolated": 0, "copied": 0}
        present = np.isfinite(values.source) & np.isfinite(values.release)
        for segment in segments_of(len(known), params.segment_size):
            rows = np.arange(segment.start, segment.stop)[present[segment]]
            if not is_target[rows].any():
                continue
            guesses[rows], way = recover_segment(
                values.release[rows], values.source[rows], known[rows], params.sigma == 1.0
            )
            ways[way] += 1
            tables.progress((index + segment.stop / len(known)) / len(fields), f"solving {values.name}")
        details = {"known_rows": int(known.sum()), "segments": ways}
        found[values.name] = judge(tables, values, values.rounded(guesses[targets]), targets, known, details)
    return found


ATTACK = Attack(
    name="linear_programming",
    title="Recovery by linear programming",
    meaning="Known values of a segment and the relations that LOCALITY keeps give the values of other rows.",
    source="Rowveil; the relations of Xue, Karras, Raissi and Pung 2011, CIKM, section 4",
    run=_run,
    services=("LOCALITY",),
    cost="One linear programme for each attacked segment",
)
