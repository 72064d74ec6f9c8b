"""PABIDOT's kernels: which rotation and reflection to take, and the perturbation of all rows by it.

References
----------
Chamikara et al. 2019, Information Sciences 527, doi:10.1016/j.ins.2019.05.053, sections 3 and 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from providers.draws import normals, uniform
from providers.moments import BLOCK, FloatArray, Moments, slices
from providers.provider import Progress
from providers.radix import Int64Array
from providers.rng import LANES, Stream, stream_words
from providers.table import BoolArray

ANGLES = tuple(theta for theta in range(1, 180) if theta not in (30, 45, 60, 90, 120, 135, 150))
"""The angles to choose from, in degrees: 172 of them."""

_TIE = 1e-12
_KEPT = 64  # fields up to which rotation matrices are kept: 6 MB of them
_AT_ONCE = 4  # angles between two tellings of progress, beyond that


# ------------------------------------------------------------------------------- what may be chosen


@njit(cache=True, nogil=True, parallel=True)
def _rotate(cosines, sines, matrices):
    """Algorithm 1, an angle each: M = I; for i < j in their order, M <- M R_ij.

    R_ii = R_jj = cos, R_ji = sin, R_ij = -sin: two columns of M change, in O(n) instead of O(n**3).
    """
    fields = matrices.shape[1]
    for angle in prange(len(cosines)):
        cosine, sine = cosines[angle], sines[angle]
        columns = np.eye(fields)  # the transpose of M, so that a column lies together
        for i in range(fields):
            first = columns[i]
            for j in range(i + 1, fields):
                second = columns[j]
                for row in range(fields):
                    one, two = first[row], second[row]
                    first[row] = one * cosine + two * sine
                    second[row] = two * cosine - one * sine
        matrices[angle] = columns.T


def rotations(fields: int, angles: tuple[int, ...] = ANGLES) -> FloatArray:
    """M(theta) for each angle in degrees; shape (angles, fields, fields). O(fields**3) an angle."""
    radians = [math.radians(theta) for theta in angles]
    matrices = np.empty((len(angles), fields, fields))
    _rotate(np.array([math.cos(x) for x in radians]), np.array([math.sin(x) for x in radians]), matrices)
    return matrices


_kept_rotations = lru_cache(maxsize=4)(rotations)


@njit(cache=True, nogil=True, parallel=True)
def _least_variances(matrices, correlation, phi):
    """phi(theta, a) = min over i of the variance of the difference of field i, for all axes a at once.

    v_i(a) = C_ii + (M F C F M')_ii - 2 (C F M')_ii, F = diag(1, ..., -1 at a, ..., 1)     # eqs. 7, 22
           = C_ii + sum_j M_ij (M C)_ij - 2 sum_j C_ij M_ij + 4 M_ia (M_ia C_aa - (M C)_ia + C_ia)
    """
    fields = len(correlation)
    for angle in prange(len(matrices)):
        matrix = matrices[angle]
        product = np.empty(fields)  # row i of M C
        for i in range(fields):
            product[:] = 0.0
            for k in range(fields):
                for j in range(fields):
                    product[j] += matrix[i, k] * correlation[k, j]
            same = 0.0
            across = 0.0
            for j in range(fields):
                same += matrix[i, j] * product[j]
                across += correlation[i, j] * matrix[i, j]
            plain = correlation[i, i] + same - 2.0 * across
            for a in range(fields):
                entry = matrix[i, a]
                turned = 4.0 * entry * (entry * correlation[a, a] - product[a] + correlation[i, a])
                if i == 0 or plain + turned < phi[angle, a]:
                    phi[angle, a] = plain + turned


def least_variances(correlation: FloatArray, progress: Progress) -> FloatArray:
    """Phi for every angle and axis; shape (angles, fields)."""
    fields = len(correlation)
    phi = np.empty((len(ANGLES), fields))
    if fields <= _KEPT:
        _least_variances(_kept_rotations(fields), correlation, phi)
        return phi
    for first in range(0, len(ANGLES), _AT_ONCE):
        progress(first / len(ANGLES), "choosing")
        few = slice(first, first + _AT_ONCE)
        _least_variances(rotations(fields, ANGLES[few]), correlation, phi[few])
    return phi


@dataclass(frozen=True, slots=True)
class Choice:
    """The rotation and reflection of one run. A secret, but for `phi`: it must not reach a report."""

    theta: int
    """Degrees."""
    axis: int
    """The field, from 0, that is reflected."""
    phi: float
    matrix: FloatArray
    """M(theta)."""


def choose(correlation: FloatArray, selection: Literal["paper", "definition"], progress: Progress) -> Choice:
    """The angle and axis for a correlation matrix; ties within 1e-12 go to the lowest angle, then axis.

    ``paper``: the angle whose worst axis is best, and that worst axis (eqs. 16 and 17).
    ``definition``: the angle and axis of the largest phi (Definition 3.1, eq. 13).
    """
    phi = least_variances(correlation, progress)
    if selection == "paper":
        worst = phi.min(axis=1)
        angle = _first(worst >= worst.max() - _TIE)
        axis = _first(phi[angle] <= worst[angle] + _TIE)
    else:
        best = phi >= phi.max() - _TIE
        angle = _first(best.any(axis=1))
        axis = _first(best[angle])
    theta = ANGLES[angle]
    return Choice(theta, axis, float(phi[angle, axis]), rotations(len(correlation), (theta,))[0])


def _first(where: npt.NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(where)[0])


# ------------------------------------------------------------------------------------- perturbation


@njit(cache=True, nogil=True)
def _multiply(matrix, given, made):
    """``made = matrix @ given``, each sum from the first term to the last."""
    fields = len(matrix)
    for i in range(fields):
        mine = made[i]
        mine[:] = matrix[i, 0] * given[0]
        first = 1
        for j in range(1, fields - 3, 4):
            a, b, c, d = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            one, two, three, four = given[j], given[j + 1], given[j + 2], given[j + 3]
            for at in range(len(mine)):
                total = mine[at] + a * one[at] + b * two[at]
                mine[at] = total + c * three[at] + d * four[at]
            first = j + 4
        for j in range(first, fields):
            for at in range(len(mine)):
                mine[at] += matrix[i, j] * given[j, at]


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def _perturb(values, which, absent, before, first, mean, deviation, axis, translation, matrix, sigma, keys,
             smallest, largest, changed, outside):  # fmt: skip
    """Perturb the fields `which` in place, in the blocks from row `first` on; see `perturb`.

    `before` rows of the table come before row 0 of these.
    `changed` and `outside`, int64, shape (blocks, fields): cells that differ from the source's, and
    cells outside the source's range, of rows that are not absent.
    """
    fields, rows = len(which), values.shape[1]
    for block in prange(len(changed)):
        start = first + block * BLOCK
        count = min(BLOCK, rows - start)
        given = np.empty((fields, count))
        made = np.empty((fields, count))
        noise = np.empty(count)
        for field in range(fields):
            source = values[which[field], start : start + count]
            sign = -1.0 if field == axis else 1.0
            z = given[field]
            for at in range(count):
                z[at] = sign * ((source[at] - mean[field]) / deviation[field]) + translation[field]
        _multiply(matrix, given, made)
        for field in range(fields):
            y = made[field]
            if sigma > 0.0:  # randomised expansion: away from zero by |N(0, sigma)|; zeros stay
                normals(keys[field], np.uint64(0), np.uint32(0), before + start, noise)
                for at in range(count):
                    away = math.copysign(sigma * abs(noise[at]), y[at])
                    y[at] += away if y[at] != 0.0 else 0.0
            least, most = smallest[field], largest[field]
            target = values[which[field], start : start + count]
            for at in range(count):
                y[at] = y[at] * deviation[field] + mean[field]
            if len(absent) > 0:
                for at in range(count):
                    if absent[start + at]:
                        y[at] = target[at]
                    beyond = not absent[start + at] and (y[at] < least or y[at] > most)
                    outside[block, field] += beyond
                    changed[block, field] += y[at] != target[at] and not absent[start + at]
            else:
                differing = 0
                beyond = 0
                for at in range(count):
                    differing += int(y[at] != target[at])
                    beyond += int(y[at] < least) + int(y[at] > most)
                changed[block, field] = differing
                outside[block, field] = beyond
            target[:] = y


@njit(cache=True, nogil=True)
def _translate(keys, translation):
    """A uniform number for each field."""
    address = np.empty((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    words = np.empty(256, np.uint32)
    for field in range(len(translation)):
        stream_words(keys[field], np.uint64(0), np.uint32(0), np.uint32(0), address, block, words)
        translation[field] = uniform(words[0], words[1])


def perturb(
    values: FloatArray,
    absent: BoolArray | None,
    moments: Moments,
    varying: Sequence[int],
    names: Sequence[str],
    choice: Choice,
    sigma: float,
    stream: Stream,
    progress: Progress,
    before: int = 0,
) -> tuple[Int64Array, Int64Array]:
    """Perturb fields in place: Y = M (F Z + t), noise away from zero, and back to their units.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
        Rows that are absent stay as they are.
    absent : ndarray of bool, shape (rows,), or None
    moments : Moments
        Of all fields.
    varying : sequence of int
        The fields to perturb: all that are not constant.
    names : sequence of str
        Of the fields to perturb, for the purposes of their draws.
    choice : Choice
        For these fields.
    sigma : float
        Standard deviation of the noise, whose size is added to the size of each z-score.
    stream : Stream
        Purposes: ``translation/`` and ``noise/``, each with the field's name; draw r is row r's.
    progress : Progress
    before : int
        Rows of the table that come before these.

    Returns
    -------
    changed, outside : ndarray of int64, shape (varying fields,)
        Cells that differ from the source's, and cells outside the range of the source's.

    Notes
    -----
    O(fields**2 rows) with a small constant, and a normal number for each cell.
    """
    which = np.array(varying, np.int64)
    translation = np.empty(len(which))
    _translate(np.array([stream.key(f"translation/{name}") for name in names]), translation)
    keys = np.array([stream.key(f"noise/{name}") for name in names])
    rows = values.shape[1]
    missing = np.zeros(0, np.bool_) if absent is None else absent
    totals = np.zeros((2, len(which)), np.int64)
    starts = slices(len(which), rows)
    for start in starts:
        progress(start / rows, "perturbing")
        blocks = -(-min(starts.step, rows - start) // BLOCK)
        changed, outside = np.zeros((2, blocks, len(which)), np.int64)
        _perturb(
            values, which, missing, before, start, moments.mean[which], moments.deviation[which], choice.axis,
            translation, choice.matrix, sigma, keys, moments.smallest[which], moments.largest[which],
            changed, outside,
        )  # fmt: skip
        totals += changed.sum(axis=0), outside.sum(axis=0)
    return totals[0], totals[1]
