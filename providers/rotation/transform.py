"""Choose a rotation and a reflection, and perturb values by them.

References
----------
Chamikara et al. 2019, Information Sciences 527, doi:10.1016/j.ins.2019.05.053: sections 3 and 4,
algorithms 1 and 3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.kernels.decorators import within
from providers.kernels.parallel import parallel
from providers.numba import njit, prange
from providers.progress import Progress
from providers.randomness.chacha20 import LANES, Stream, stream_words
from providers.randomness.distributions import normals, uniform
from providers.rotation.moments import BLOCK, Moments, slices

ANGLES = tuple(theta for theta in range(1, 180) if theta not in (30, 45, 60, 90, 120, 135, 150))
"""Candidate angles in degrees: 172."""

_TIE = 1e-12
"""Largest difference of phi that counts as a tie."""

_CACHED_FIELDS = 64  # largest number of fields whose rotation matrices are cached: 6 MB

_AT_ONCE = 4  # with more fields, number of angles between two progress reports

# ------------------------------------------------- choice of angle and axis (algorithm 3, lines 9 to 23)


@parallel
def _rotate(cosines, sines, matrices):
    """Build the rotation matrix of each angle (algorithm 1): M = I; for i < j in their order, M <- M R_ij.

    R_ii = R_jj = cos, R_ji = sin, R_ij = -sin (eq. 8): two columns of M change, in O(n) instead of O(n**3).

    Parameters
    ----------
    cosines, sines : ndarrays of float64, shape (angles,)
    matrices : ndarray of float64, shape (angles, fields, fields)
        Written.
    """
    fields = matrices.shape[1]
    for angle in prange(len(cosines)):
        cosine, sine = cosines[angle], sines[angle]
        columns = np.eye(fields)  # the transpose of M, so that a column is contiguous
        for i in range(fields):
            first = columns[i]
            for j in range(i + 1, fields):
                second = columns[j]
                for row in range(fields):
                    one, two = first[row], second[row]
                    first[row] = one * cosine + two * sine
                    second[row] = two * cosine - one * sine
        matrices[angle] = columns.T


def rotations(fields: int, angles: tuple[int, ...] = ANGLES) -> Float64Array:
    """Return M(theta) for each angle in degrees; shape (angles, fields, fields). O(fields**3) per angle."""
    radians = [math.radians(theta) for theta in angles]
    matrices = np.empty((len(angles), fields, fields))
    _rotate(np.array([math.cos(x) for x in radians]), np.array([math.sin(x) for x in radians]), matrices)
    return matrices


_cached_rotations = lru_cache(maxsize=4)(rotations)


@parallel
def _least_variances(matrices, correlation, phi):
    """Compute phi(theta, a), the least variance of the difference of a field, for all axes a at once.

    v_i(a) = C_ii + (M F C F M')_ii - 2 (C F M')_ii, F = diag(1, ..., -1 at a, ..., 1)     # eqs. 7, 22
           = C_ii + sum_j M_ij (M C)_ij - 2 sum_j C_ij M_ij + 4 M_ia (M_ia C_aa - (M C)_ia + C_ia)

    Parameters
    ----------
    matrices : ndarray of float64, shape (angles, fields, fields)
        M of each angle.
    correlation : ndarray of float64, shape (fields, fields)
        C.
    phi : ndarray of float64, shape (angles, fields)
        Minimum of v_i(a) over the fields i. Written.
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


def least_variances(correlation: Float64Array, progress: Progress) -> Float64Array:
    """Return phi of every angle and axis (eq. 15); shape (angles, fields)."""
    fields = len(correlation)
    phi = np.empty((len(ANGLES), fields))
    if fields <= _CACHED_FIELDS:
        _least_variances(_cached_rotations(fields), correlation, phi)
        return phi
    for first in range(0, len(ANGLES), _AT_ONCE):
        progress(first / len(ANGLES), "choosing")
        batch = slice(first, first + _AT_ONCE)
        _least_variances(rotations(fields, ANGLES[batch]), correlation, phi[batch])
    return phi


@dataclass(frozen=True, slots=True)
class Choice:
    """Rotation and reflection of one run. All but `phi` is secret and must not appear in a report."""

    theta: int
    """Angle in degrees."""
    axis: int
    """Index of the reflected field."""
    phi: float
    """Minimum privacy guarantee."""
    matrix: Float64Array
    """M(theta), shape (fields, fields)."""


def choose(
    correlation: Float64Array, selection: Literal["paper", "definition"], progress: Progress
) -> Choice:
    """Choose angle and axis for a correlation matrix; ties within 1e-12 go to the lowest angle, then axis.

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


def _first(mask: npt.NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(mask)[0])


# --------------------------------------------------------- perturbation (algorithm 3, lines 8 and 24 to 26)


@within
def _multiply(matrix, operand, product):
    """Compute ``product = matrix @ operand``, each sum from the first term to the last.

    Parameters
    ----------
    matrix : ndarray of float64, shape (fields, fields)
    operand : ndarray of float64, shape (fields, rows)
    product : ndarray of float64, shape (fields, rows)
        Written.
    """
    fields = len(matrix)
    for i in range(fields):
        result = product[i]
        result[:] = matrix[i, 0] * operand[0]
        first = 1
        for j in range(1, fields - 3, 4):
            a, b, c, d = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            one, two, three, four = operand[j], operand[j + 1], operand[j + 2], operand[j + 3]
            for row in range(len(result)):
                total = result[row] + a * one[row] + b * two[row]
                result[row] = total + c * three[row] + d * four[row]
            first = j + 4
        for j in range(first, fields):
            for row in range(len(result)):
                result[row] += matrix[i, j] * operand[j, row]


class Transform(NamedTuple):
    """Perturbation of the fields of one run, in the form that kernels take; arrays have a value per field."""

    mean: Float64Array
    """Means of the source; shape (fields,)."""
    deviation: Float64Array
    """Standard deviations of the source; shape (fields,)."""
    axis: int
    """Field to reflect."""
    translation: Float64Array
    """Translation t; shape (fields,)."""
    matrix: Float64Array
    """Rotation M; shape (fields, fields)."""
    sigma: float
    """Standard deviation of the noise."""
    smallest: Float64Array
    """Smallest value of the source; shape (fields,)."""
    largest: Float64Array
    """Largest value of the source; shape (fields,)."""


@parallel(error_model="numpy")
def _perturb(values, which, absent, before, first, transform, keys, changed, outside):
    """Perturb fields in place, in the blocks from row `first` on; see `perturb`.

    Parameters
    ----------
    values : ndarray of float64, shape (all fields, rows)
        Changed in place.
    which : ndarray of int64, shape (fields,)
        Indices of the fields to perturb.
    absent : ndarray of bool, shape (rows,) or (0,)
        Rows that stay as they are; of length 0 for none.
    before : int
        Number of rows of the table before row 0 of `values`.
    first : int
        First row of the first block.
    transform : Transform
    keys : ndarray of uint32, shape (fields, key words)
        Key of each field's noise.
    changed, outside : ndarrays of int64, shape (blocks, fields)
        Number of cells that differ from the source's, and of cells outside the source's range, over the
        rows that are not absent. Written.
    """
    fields, rows, sigma = len(which), values.shape[1], transform.sigma
    mean, deviation, translation = transform.mean, transform.deviation, transform.translation
    for block in prange(len(changed)):
        start = first + block * BLOCK
        count = min(BLOCK, rows - start)
        translated = np.empty((fields, count))
        rotated = np.empty((fields, count))
        noise = np.empty(count)
        for field in range(fields):
            source = values[which[field], start : start + count]
            sign = -1.0 if field == transform.axis else 1.0
            z = translated[field]
            for row in range(count):  # standardise, reflect and translate: lines 6, 8 and 24
                z[row] = sign * ((source[row] - mean[field]) / deviation[field]) + translation[field]
        _multiply(transform.matrix, translated, rotated)  # rotate: line 24, eq. 18
        for field in range(fields):
            y = rotated[field]
            if sigma > 0.0:  # randomised expansion (line 25, eq. 19): away from zero by |N(0, sigma)|
                normals(keys[field], np.uint64(0), np.uint32(0), before + start, noise)
                for row in range(count):
                    away = math.copysign(sigma * abs(noise[row]), y[row])
                    y[row] += away if y[row] != 0.0 else 0.0  # zeros stay
            least, most = transform.smallest[field], transform.largest[field]
            target = values[which[field], start : start + count]
            for row in range(count):  # reverse the standardisation: line 26
                y[row] = y[row] * deviation[field] + mean[field]
            if len(absent) > 0:
                for row in range(count):
                    if absent[start + row]:
                        y[row] = target[row]
                    beyond = not absent[start + row] and (y[row] < least or y[row] > most)
                    outside[block, field] += beyond
                    changed[block, field] += y[row] != target[row] and not absent[start + row]
            else:
                differing = 0
                beyond = 0
                for row in range(count):
                    differing += int(y[row] != target[row])
                    beyond += int(y[row] < least) + int(y[row] > most)
                changed[block, field] = differing
                outside[block, field] = beyond
            target[:] = y


@njit(cache=True, nogil=True)
def _translate(keys, translation):
    """Draw a uniform number for each field.

    Parameters
    ----------
    keys : ndarray of uint32, shape (fields, key words)
        Key of each field's translation.
    translation : ndarray of float64, shape (fields,)
        Written.
    """
    address = np.empty((4, LANES), np.uint32)
    block = np.empty((LANES, LANES), np.uint32)
    words = np.empty(256, np.uint32)
    for field in range(len(translation)):
        stream_words(keys[field], np.uint64(0), np.uint32(0), np.uint32(0), address, block, words)
        translation[field] = uniform(words[0], words[1])


def perturb(
    values: Float64Array,
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
    """Perturb fields in place: Y = M (F Z + t), randomised expansion, and back to the fields' units.

    Parameters
    ----------
    values : ndarray of float64, shape (fields, rows)
        Values of the source; perturbed in place.
    absent : ndarray of bool, shape (rows,), or None
        Mask of the rows that stay as they are.
    moments : Moments
        Moments of all fields.
    varying : sequence of int
        Indices of the fields to perturb: all that are not constant.
    names : sequence of str
        Names of the fields to perturb, which are part of the purposes of their draws.
    choice : Choice
        Angle and axis, chosen for these fields.
    sigma : float
        Standard deviation of the noise, whose absolute value is added to that of each perturbed z-score.
    stream : Stream
        Purposes: ``translation/`` and ``noise/``, each with the field's name; noise r is for row r.
    progress : Progress
    before : int
        Number of rows of the table before these.

    Returns
    -------
    changed, outside : ndarray of int64, shape (varying fields,)
        Cells that differ from the source's, and cells outside the range of the source's.

    Notes
    -----
    O(fields**2 rows) with a small constant, and one normal draw for each cell.
    """
    which = np.array(varying, np.int64)
    translation = np.empty(len(which))
    _translate(np.array([stream.key(f"translation/{name}") for name in names]), translation)
    keys = np.array([stream.key(f"noise/{name}") for name in names])
    rows = values.shape[1]
    missing = np.zeros(0, np.bool_) if absent is None else absent
    transform = Transform(
        moments.mean[which], moments.deviation[which], choice.axis, translation, choice.matrix, sigma,
        moments.smallest[which], moments.largest[which],
    )  # fmt: skip
    totals = np.zeros((2, len(which)), np.int64)
    starts = slices(len(which), rows)
    for start in starts:
        progress(start / rows, "perturbing")
        blocks = -(-min(starts.step, rows - start) // BLOCK)
        changed, outside = np.zeros((2, blocks, len(which)), np.int64)
        _perturb(values, which, missing, before, start, transform, keys, changed, outside)
        totals += changed.sum(axis=0), outside.sum(axis=0)
    return totals[0], totals[1]
