"""PABIDOT in plain Python, in the paper's notation: R_ij, M, F, C, phi, Z, t, Y (sections 3 and 4).

Sums have the documented order: within blocks of 1024 rows of the source, over the rows that take part,
centred on the block's mean; the blocks are then joined in their order.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from providers.services.pabidot import PabidotParams
from tests.naive.chacha20 import derive_key
from tests.naive.draws import normal, uniform
from tests.naive.pairing import Words, random_order
from tests.naive.swapping import Outcome, Table, row_count

Matrix = list[list[float]]

ANGLES = [theta for theta in range(1, 180) if theta not in {30, 45, 60, 90, 120, 135, 150}]
BLOCK = 1024


class CannotRotateError(Exception):
    """The source has nulls, too few rows or fields, or numbers that float64 cannot hold."""


@dataclass
class Rotated(Outcome):
    """Outcome with the provider's figures."""

    provider: dict[str, Any] = field(default_factory=dict)


def number(value: Any) -> float:
    """Convert a value to the nearest float, NaN for null."""
    return math.nan if value is None else float(value)


def identity(n: int) -> Matrix:
    return [[float(i == j) for j in range(n)] for i in range(n)]


def times(A: Matrix, B: Matrix) -> Matrix:
    """Matrix product, each sum from the first term to the last."""
    product = []
    for row in A:
        line = []
        for j in range(len(B[0])):
            total = row[0] * B[0][j]
            for k in range(1, len(B)):
                total = total + row[k] * B[k][j]
            line.append(total)
        product.append(line)
    return product


def transposed(A: Matrix) -> Matrix:
    return [list(column) for column in zip(*A, strict=True)]


@cache
def rotation(theta: int, n: int) -> Matrix:
    """Rotation matrix M(theta), algorithm 1."""
    M = identity(n)
    for i in range(n):
        for j in range(i + 1, n):
            R = identity(n)
            R[i][i] = R[j][j] = math.cos(math.radians(theta))
            R[j][i] = math.sin(math.radians(theta))
            R[i][j] = -math.sin(math.radians(theta))
            M = times(M, R)
    return M


def reflection(a: int, n: int) -> Matrix:
    """Reflection matrix F_a, eq. 7."""
    F = identity(n)
    F[a][a] = -1.0
    return F


def least_variance(C: Matrix, M: Matrix, a: int) -> float:
    """Compute phi(theta, a): the least over i of C_ii + (M F C F M^T)_ii - 2 sum_j (C F)_ij M_ij."""
    n = len(C)
    F = reflection(a, n)
    MF, CF = times(M, F), times(C, F)
    turned = times(times(MF, C), transposed(MF))
    return min(C[i][i] + turned[i][i] - 2 * sum(CF[i][j] * M[i][j] for j in range(n)) for i in range(n))


def choose(C: Matrix, selection: str) -> tuple[int, int, float]:
    """Return angle, axis (from 0) and phi; ties within 1e-12 go to the lowest angle, then the lowest axis."""
    phi = {theta: [least_variance(C, rotation(theta, len(C)), a) for a in range(len(C))] for theta in ANGLES}
    if selection == "paper":
        best = max(min(values) for values in phi.values())
        theta = next(theta for theta in ANGLES if min(phi[theta]) >= best - 1e-12)
        a = next(a for a, value in enumerate(phi[theta]) if value <= min(phi[theta]) + 1e-12)
    else:
        best = max(max(values) for values in phi.values())
        theta = next(theta for theta in ANGLES if max(phi[theta]) >= best - 1e-12)
        a = next(a for a, value in enumerate(phi[theta]) if value >= best - 1e-12)
    return theta, a, phi[theta][a]


def moments(D: Matrix, present: list[bool]) -> tuple[list[float], Matrix]:
    """Means and sums of products of deviations over the rows that are present; D is a list of rows."""
    n = len(D[0])
    count, mean, P = 0, [0.0] * n, [[0.0] * n for _ in range(n)]
    for start in range(0, len(D), BLOCK):
        block = [D[row] for row in range(start, min(start + BLOCK, len(D))) if present[row]]
        if not block:
            continue
        mean_b = [0.0] * n
        for row in block:
            mean_b = [total + x for total, x in zip(mean_b, row, strict=True)]
        mean_b = [total / len(block) for total in mean_b]
        P_b = [[0.0] * n for _ in range(n)]
        for row in block:
            d = [x - m for x, m in zip(row, mean_b, strict=True)]
            for i in range(n):
                for j in range(n):
                    P_b[i][j] += d[i] * d[j]
        # Join the block to the rows before (Chan, Golub, LeVeque 1983).
        before, count = count, count + len(block)
        share = len(block) / count
        shift = [m - all_ for m, all_ in zip(mean_b, mean, strict=True)]
        mean = [all_ + s * share for all_, s in zip(mean, shift, strict=True)]
        for i in range(n):
            for j in range(n):
                P[i][j] += P_b[i][j] + shift[i] * shift[j] * (before * share)
    return mean, P


def swap(table: Table, params: PabidotParams, seed: bytes, revision: int) -> Rotated:
    """Rotate, reflect, translate, add noise, shuffle."""
    rows = row_count(table)
    fields = list(params.fields)
    X = [[number(table[name][row]) for name in fields] for row in range(rows)]
    present = [all(map(math.isfinite, row)) for row in X]
    if not all(present) and params.nulls == "fail":
        raise CannotRotateError
    kept = [row for row in range(rows) if present[row]]
    if len(kept) < 2:
        raise CannotRotateError
    smallest = [min(X[row][f] for row in kept) for f in range(len(fields))]
    largest = [max(X[row][f] for row in kept) for f in range(len(fields))]
    varying = [f for f in range(len(fields)) if smallest[f] != largest[f]]
    n = len(varying)
    if n < 2:
        raise CannotRotateError
    D = [[X[row][f] for f in varying] for row in range(rows)]
    mean, P = moments(D, present)
    variance = [P[i][i] / (len(kept) - 1) for i in range(n)]
    if not all(1e-280 <= v < math.inf for v in variance):
        raise CannotRotateError
    sd = [math.sqrt(v) for v in variance]
    C = [[P[i][j] / (len(kept) - 1) / (sd[i] * sd[j]) if i != j else 1.0 for j in range(n)] for i in range(n)]
    theta, a, phi = choose(C, params.selection)
    M = rotation(theta, n)

    def words(purpose: str) -> Words:
        return Words(derive_key(seed, "PABIDOT", revision, purpose))

    t, streams = [], []
    for f in varying:
        of_field = words(f"translation/{fields[f]}")
        t.append(uniform(of_field.word((0, 0), 0), of_field.word((0, 0), 1)))
        streams.append(words(f"noise/{fields[f]}"))
        streams[-1].fetch([((0, 0), 2 * rows)])
    out = Rotated({name: list(values) for name, values in table.items()})
    perturbed: list[list[float | None]] = [
        [X[row][f] if table[name][row] is not None else None for f, name in enumerate(fields)]
        for row in range(rows)
    ]
    changed, outside = [0] * n, [0] * n
    for row in kept:
        Z = [(D[row][i] - mean[i]) / sd[i] for i in range(n)]
        FZ = [-z if i == a else z for i, z in enumerate(Z)]
        Y = [line[0] for line in times(M, [[z + s] for z, s in zip(FZ, t, strict=True)])]
        for i, f in enumerate(varying):
            if Y[i] != 0:  # randomised expansion
                size = abs(params.sigma * normal(*(streams[i].word((0, 0), 2 * row + w) for w in (0, 1))))
                Y[i] = math.copysign(abs(Y[i]) + size, Y[i])
            value = Y[i] * sd[i] + mean[i]
            changed[i] += value != X[row][f]
            outside[i] += value < smallest[f] or value > largest[f]
            perturbed[row][f] = value
    for f, name in enumerate(fields):
        out.table[name] = [row[f] for row in perturbed]
    if params.shuffle:
        order = random_order(list(range(rows)), 0, words("shuffle"))
        out.table = {name: [values[row] for row in order] for name, values in out.table.items()}
    out.groups, out.group_size = 1, (rows, float(rows), rows)
    out.took_part = len(kept)
    out.took_part_by_field = {name: len(kept) if f in varying else 0 for f, name in enumerate(fields)}
    out.changed = dict.fromkeys(fields, 0) | {fields[f]: changed[i] for i, f in enumerate(varying)}
    out.unswapped = out.unswappable = rows - len(kept)
    out.unswapped_reasons = {"null": out.unswapped} if out.unswapped else {}
    out.events = +Counter({"constant": len(fields) - n, "unperturbed": out.unswapped})
    out.provider = {
        "phi": phi,
        "selection": params.selection,
        "transforms": 172 * n,
        "outside_range": {fields[f]: outside[i] / len(kept) for i, f in enumerate(varying)},
    }
    return out
