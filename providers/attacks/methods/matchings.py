"""Posterior of a random exchange within a group, given the true values of some of its rows.

The exchange puts some rows of a group into uniformly random pairs that trade their values; three rows form a
cycle if all rows of an odd group move (decision 1). An intruder sees the value that each row shows, and
knows the true values of some rows. The exchanges that agree with both are equally likely. In small groups
they are listed, and in larger ones the share of those that contain a given pair follows from belief
propagation over matchings.

References
----------
Zdeborova and Mezard 2006, J. Stat. Mech. P05003: cavity equations of matchings with unmatched vertices.
Chertkov and Yedidia 2013, JMLR 14: belief propagation for permanents, which is the same on matchings.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.methods.moving_chances import MovingChances, chance_of_sets, with_partners

MOST_LISTED = 20_000
"""Largest number of exchanges of a group that are listed one by one."""
_MOST_SELECTED = 8
"""Largest group with a selection by risk whose exchanges, 3,676 of any moving rows, are listed one by one."""
MOST_KINDS = 1_000
"""Largest number of kinds of rows in belief propagation; beyond, fewer known rows are used."""
_ROUNDS = 2_000
"""Rounds of message passing; they end sooner if messages no longer change."""
_DAMPING = 0.5
_CONVERGED = 1e-9
"""Largest change of a probability in the last round."""
_LEAST = 1e-12
"""Least sum of messages: a row with a single possible partner sends a message of 1 over nothing."""
_UNKNOWN = -1
"""Code of a true value that the intruder does not know."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Probability that each row of a group shows a given row's true value."""

    kind: Int64Array
    """Kind of each row; shape (rows,). The intruder cannot distinguish rows of one kind."""
    chance: Float64Array
    """``chance[a, b]``: probability that a given row of kind b shows the value of a given row of kind a."""
    own: Float64Array
    """Probability that a row of each kind shows its own value, since it took no part; shape (kinds,)."""
    exact: bool
    """Whether the exchanges were listed."""

    def of_row(self, row: int) -> Float64Array:
        """Return the probability of each row to show this row's value; shape (rows,)."""
        chances: Float64Array = self.chance[self.kind[row]][self.kind]
        chances[row] = self.own[self.kind[row]]
        return chances


def moving_rows(size: int, rate: float) -> dict[int, float]:
    """Return the possible numbers of moving rows of a group, with their probabilities, as services draw them.

    Parameters
    ----------
    size : int
        Rows of the group.
    rate : float
        Share of the rows that take part, in (0, 1].
    """
    if size < 2:
        return {0: 1.0}
    wanted, in_pairs = rate * size, size - size % 2
    if rate == 1.0 or size == 1:
        return {size: 1.0}
    if wanted > in_pairs:
        return {size: wanted - in_pairs, in_pairs: 1.0 - (wanted - in_pairs)}
    fewer = 2 * int(wanted // 2)
    more = wanted / 2 - wanted // 2
    drawn = {min(fewer + 2, in_pairs): more, fewer: 1.0 - more}
    return {moving: share for moving, share in drawn.items() if share > 0}


def beliefs(shown: Int64Array, true: Int64Array, rate: float | MovingChances) -> Beliefs:
    """Return who shows whose value in one group, as far as known values say.

    Parameters
    ----------
    shown : ndarray of int64, shape (rows,)
        Code of the value that each row of the release shows.
    true : ndarray of int64, shape (rows,)
        Code of the true value of each row; -1 where the intruder does not know it.
    rate : float or MovingChances
        Share of the rows that take part, or the selection of each row by its risk.

    Notes
    -----
    A known value that no exchange explains, such as that of a suppressed row, is ignored.
    """
    moving = _moving(len(shown), rate)
    true = explained(shown, true, moving)
    listed = _listed(len(shown), rate)
    return _propagate(shown, true, moving) if listed is None else listed_beliefs(shown, true, *listed)


def listed_beliefs(
    shown: Int64Array, true: Int64Array, sources: Int64Array, weights: Float64Array
) -> Beliefs:
    """Return who shows whose value, from a list of all possible exchanges of a group.

    Parameters
    ----------
    shown, true
        As for `beliefs`; known values are `explained`.
    sources : ndarray of int64, shape (exchanges, rows)
        Row whose value each row shows.
    weights : ndarray of float64, shape (exchanges,)
        Probability of each exchange.
    """
    found = _enumerate(shown, true, sources, weights)
    if found is None:  # no exchange agrees with all known values at once
        found = _enumerate(shown, np.full_like(true, _UNKNOWN), sources, weights)
    assert found is not None  # noqa: S101 - every exchange agrees with nothing known
    return Beliefs(np.arange(len(shown)), found, np.diag(found).copy(), True)


def _moving(size: int, rate: float | MovingChances) -> Float64Array:
    """Return the probability of each row of a group to have moved; shape (rows,)."""
    if isinstance(rate, MovingChances):
        return with_partners(rate, np.zeros(size, np.int64))
    return np.full(size, rate)


def explained(shown: Int64Array, true: Int64Array, moving: Float64Array) -> Int64Array:
    """Forget known values that no other row of the group shows, nor the row itself if it may keep it.

    Parameters
    ----------
    shown, true
        As for `beliefs`.
    moving : ndarray of float64, shape (rows,)
        Probability of each row to have moved.
    """
    known = true != _UNKNOWN
    codes, counts = np.unique(shown, return_counts=True)
    position = np.minimum(np.searchsorted(codes, true), len(codes) - 1)
    count = np.where(codes[position] == true, counts[position], 0)
    others = count - ((shown == true) & (moving == 1.0))
    return np.where(known & (others > 0), true, _UNKNOWN)


# --------------------------------------------------------------------------------------- listed exchanges


def _listed(size: int, rate: float | MovingChances) -> tuple[Int64Array, Float64Array] | None:
    """Return all exchanges of a group with their probabilities; None if they are too many."""
    if isinstance(rate, MovingChances):
        if size > _MOST_SELECTED:
            return None
        sources, sets, of_set, count = _listed_by_set(size)
        return sources, (chance_of_sets(rate, sets) / count)[of_set]
    return _listed_of(size, rate) if size <= 12 and _how_many(size, rate) <= MOST_LISTED else None


def _how_many(size: int, rate: float) -> int:
    total = 0
    for moving in moving_rows(size, rate):
        chosen = 1
        for i in range(moving):  # size choose moving
            chosen = chosen * (size - i) // (i + 1)
        total += chosen * _matchings(moving)
    return total


def _matchings(moving: int) -> int:
    """Return the number of exchanges in which all of these rows move."""
    if moving % 2:
        cycles = moving * (moving - 1) * (moving - 2) // 3 if moving > 1 else 0
        return cycles * _matchings(moving - 3)
    return 1 if moving < 2 else (moving - 1) * _matchings(moving - 2)


@lru_cache(maxsize=64)
def _listed_of(size: int, rate: float) -> tuple[Int64Array, Float64Array]:
    """Return source rows of every exchange, shape (exchanges, rows), and the exchanges' probabilities."""
    rows: list[list[int]] = []
    weights: list[float] = []
    for moving, share in moving_rows(size, rate).items():
        listed = [
            exchange
            for chosen in combinations(range(size), moving)
            for exchange in _exchanges(list(chosen), list(range(size)))
        ]
        rows += listed
        weights += [share / len(listed)] * len(listed)
    return np.array(rows, np.int64).reshape(len(rows), size), np.array(weights)


@lru_cache(maxsize=_MOST_SELECTED)
def _listed_by_set(size: int) -> tuple[Int64Array, BoolArray, Int64Array, Int64Array]:
    """Return source rows of every exchange; sets of moving rows; the set of each exchange; exchanges of each.

    Arrays of shapes (exchanges, rows), (sets, rows), (exchanges,) and (sets,).
    """
    rows: list[list[int]] = []
    sets: list[BoolArray] = []
    counts: list[int] = []
    for moving in (0, *range(2, size + 1)):
        for chosen in combinations(range(size), moving):
            listed = _exchanges(list(chosen), list(range(size)))
            rows += listed
            counts.append(len(listed))
            sets.append(np.isin(np.arange(size), chosen))
    count = np.array(counts)
    return np.array(rows, np.int64), np.array(sets), np.repeat(np.arange(len(sets)), count), count


def _exchanges(moving: list[int], source: list[int]) -> list[list[int]]:
    """List the exchanges of the moving rows: the source row of the value that each row shows."""
    if not moving:
        return [source]
    found: list[list[int]] = []
    if len(moving) % 2:
        if len(moving) < 3:
            return []
        for a, b, c in combinations(moving, 3):
            left = [row for row in moving if row not in (a, b, c)]
            for x, y, z in ((a, b, c), (a, c, b)):
                cycle = list(source)
                cycle[x], cycle[y], cycle[z] = y, z, x
                found += _exchanges(left, cycle)
        return found
    first, *others = moving
    for partner in others:
        pair = list(source)
        pair[first], pair[partner] = partner, first
        found += _exchanges([row for row in others if row != partner], pair)
    return found


def _enumerate(
    shown: Int64Array, true: Int64Array, sources: Int64Array, weights: Float64Array
) -> Float64Array | None:
    """Return ``chance[i, j]``, the probability that row j shows the value of row i; None if impossible."""
    known = np.flatnonzero(true != _UNKNOWN)
    # In an exchange with sources s, row j shows the true value of row s[j]: shown[j] = true[s[j]].
    of_source = true[sources]
    agrees = ((of_source == _UNKNOWN) | (of_source == shown)).all(axis=1) if len(known) else slice(None)
    kept, mass = sources[agrees], weights[agrees]
    if not mass.sum() > 0:
        return None
    size = len(shown)
    chance = np.zeros((size, size))
    for j in range(size):
        chance[:, j] = np.bincount(kept[:, j], mass, minlength=size)
    found: Float64Array = chance / mass.sum()
    return found


# ------------------------------------------------------------------------------------- belief propagation


def _propagate(shown: Int64Array, true: Int64Array, moving: Float64Array) -> Beliefs:
    """Return beliefs by message passing between kinds of rows; a cycle of three is neglected."""
    level = _levels(moving)
    kind, first = _kinds(shown, true, level)
    while len(first) > MOST_KINDS:  # forget some of the known values, which are more than can be used
        known = np.flatnonzero(true != _UNKNOWN)
        true = true.copy()
        true[known[len(known) // 2 :]] = _UNKNOWN
        kind, first = _kinds(shown, true, level)
    sizes = np.bincount(kind, minlength=len(first)).astype(np.float64)
    x, y = true[first], shown[first]
    # Rows i and j may be a pair if each shows the other's value, where that is known.
    fits: BoolArray = (x[:, None] == _UNKNOWN) | (x[:, None] == y[None, :])
    fits = fits & fits.T
    many = sizes[None, :] - np.eye(len(first))  # rows of kind b that differ from a given row of kind a
    edges = fits & (many > 0)
    uneven = (moving != moving[0]).any()
    chances = np.bincount(kind, moving) / sizes if uneven else moving[first]
    staying = _weights_of_staying(chances, sizes)
    stays = np.where((x == _UNKNOWN) | (x == y), staying, 0.0)
    message = np.where(edges, 1.0 / np.sqrt(max(len(shown), 2)), 0.0)  # from row kind, to column kind
    weighted = np.where(edges, many, 0.0)
    chance = np.zeros(edges.shape)
    for _ in range(_ROUNDS):
        received = stays + (weighted * message.T).sum(axis=1)
        free = received[:, None] - np.where(edges, message.T, 0.0)
        updated = np.where(edges, 1.0 / np.maximum(free, _LEAST), 0.0)
        message = np.where(edges, message ** (1 - _DAMPING) * updated**_DAMPING, 0.0)
        product = message * message.T
        before, chance = chance, product / (1 + product)
        if np.abs(chance - before).max(initial=0.0) < _CONVERGED:
            break
    total = (np.where(edges, many, 0.0) * chance).sum(axis=1)
    own = np.where(stays > 0, stays / (stays + (weighted * message.T).sum(axis=1)), 0.0)
    scale = np.where(total > 0, (1 - own) / np.where(total > 0, total, 1.0), 0.0)
    return Beliefs(kind, chance * scale[:, None], np.where(total > 0, own, 1.0), False)


def _levels(moving: Float64Array) -> Int64Array:
    """Return a number of each row's probability to move, equal where these differ by a fifth or less.

    Certain rows have a number of their own, as have rows that cannot move.
    """
    with np.errstate(divide="ignore"):
        level = np.round(4 * np.log2(np.maximum(moving, 2.0**-64)))
    return np.where(moving >= 1.0, 1, level).astype(np.int64)


def _kinds(shown: Int64Array, true: Int64Array, level: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the kind of each row, and the first row of each kind.

    Rows with the same shown and known value, and about the same probability to move, are of one kind. Values
    that are not the true value of any known row count as one, because no known value rules out their rows.
    """
    wanted = np.isin(shown, true[true != _UNKNOWN])
    label = np.where((true == _UNKNOWN) & ~wanted, np.int64(-1), shown)
    _, first, kind = np.unique(
        np.stack([label, true, level], axis=1), axis=0, return_index=True, return_inverse=True
    )
    return kind.reshape(-1).astype(np.int64), first.astype(np.int64)


def _weights_of_staying(chances: Float64Array, sizes: Float64Array) -> Float64Array:
    """Weights of unmatched rows with which, if nothing is known, rows are matched with given probabilities.

    Parameters
    ----------
    chances : ndarray of float64, shape (kinds,)
        Probability of a row of each kind to be matched.
    sizes : ndarray of float64, shape (kinds,)
        Number of rows of each kind.

    Notes
    -----
    With equal chances and messages m on the complete graph, p = m^2 / (1 + m^2) = rate / (size - 1) is the
    chance of a pair, and 1 / m = weight + (size - 2) m. With unequal ones, and in a large group, a row of
    chance q sends m = q / sqrt(Q) for the sum Q of all chances, which gives the weight sqrt(Q) (1 / q - 1).
    """
    if len(np.unique(chances)) > 1:
        total = float((sizes * chances).sum())
        found: Float64Array = np.sqrt(total) * (1.0 / np.maximum(chances, _LEAST) - 1.0)
        return found
    rate, size = float(chances[0]), float(sizes.sum())
    if rate == 1.0:
        return np.zeros(len(chances))
    p = rate / (size - 1)
    m = np.sqrt(p / (1 - p))
    return np.full(len(chances), 1 / m - (size - 2) * m)
