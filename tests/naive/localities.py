"""Localities in plain Python, from their definition: every triple, every pair compared."""

import itertools
import math
from fractions import Fraction
from typing import Any

from tests.naive.chacha20 import block
from tests.naive.draws import normal

Constraint = tuple[int, int, int, int]
"""i, j, k, and the sense of x_i + x_k - 2 x_j: -1 for <= 0, 0 for = 0, 1 for >= 0."""
Vector = list[float]
Matrix = list[list[float]]


class Draws:
    """Words of the random stream (identity, level)."""

    def __init__(self, key: list[int], identity: int, level: int) -> None:
        self.key, self.nonce, self.drawn = key, [identity & 0xFFFFFFFF, identity >> 32, level], 0
        self.words: list[int] = []

    def word(self) -> int:
        if self.drawn % 16 == 0:
            self.words = block(self.key, self.drawn // 16, self.nonce)
        self.drawn += 1
        return self.words[(self.drawn - 1) % 16]

    def below(self, bound: int) -> int:
        """Return a uniform integer below the bound, by Lemire's multiplication with rejection."""
        while True:
            product = self.word() * bound
            if product % 2**32 >= 2**32 % bound:
                return product >> 32

    def uniform(self) -> float:
        high = self.word()
        return (high << 21 | self.word() >> 11) * 2.0**-53


def gaussian(key: list[int], identity: int, step: int, count: int) -> Vector:
    """Normal draws of a step; each step has a multiple of eight addresses."""
    first = step * (-(-count // 8) * 8)
    out = []
    for draw in range(first, first + count):
        words = block(key, draw // 8, [identity & 0xFFFFFFFF, identity >> 32, 3])
        out.append(normal(words[2 * (draw % 8)], words[2 * (draw % 8) + 1]))
    return out


# ------------------------------------------------------------------------------------ localities


def localities(d: list[Any], ties: str) -> list[Constraint]:
    """Definition 2 on sorted distinct values (exact numbers), by j, then i; `<=` and `=` before `>=`."""
    found: list[Constraint] = []
    n = len(d)
    for j in range(n):
        for i in range(j):
            mu = 2 * d[j] - d[i]
            nearer = [k for k in range(j + 1, n) if d[k] < mu]
            level = [k for k in range(j + 1, n) if d[k] == mu]
            farther = [k for k in range(j + 1, n) if d[k] > mu]
            if level and ties == "equal":
                found.append((i, j, level[0], 0))
                continue
            if level and ties == "one_sided":
                farther = level + farther
            if nearer:
                found.append((i, j, nearer[-1], -1))
            if farther:
                found.append((i, j, farther[0], 1))
    return found


def choose(found: list[Constraint], sigma: float, draws: Draws) -> list[Constraint]:
    """ceil(sigma |P|) without replacement: Knuth's selection sampling."""
    missing = min(len(found), math.ceil(sigma * len(found) - 1e-9))
    chosen = []
    for at, relation in enumerate(found):
        left = len(found) - at
        if missing == left or (missing > 0 and draws.below(left) < missing):
            chosen.append(relation)
            missing -= 1
    return chosen


def select(
    found: list[Constraint], d: list[Any], sigma: float, selection: str, draws: Draws
) -> list[Constraint]:
    """A random sample, or the relations of the least or greatest reach d_k - d_i, in their order."""
    if selection == "uniform":
        return choose(found, sigma, draws)
    wanted = min(len(found), math.ceil(sigma * len(found) - 1e-9))
    sign = 1 if selection == "nearest" else -1
    ordered = sorted(range(len(found)), key=lambda at: sign * (d[found[at][2]] - d[found[at][0]]))
    return [found[at] for at in sorted(ordered[:wanted])]


def pruned(chosen: list[Constraint]) -> list[Constraint]:
    """The relations that no other one of the same j and sense implies with the order."""

    def implies(one: Constraint, two: Constraint) -> bool:
        if one == two or one[1] != two[1] or one[3] != two[3] or one[3] == 0:
            return False
        if one[3] < 0:
            return one[0] >= two[0] and one[2] >= two[2]
        return one[0] <= two[0] and one[2] <= two[2]

    left = [relation for relation in chosen if not any(implies(other, relation) for other in chosen)]
    ordered = sorted(left, key=lambda one: (one[1], one[3] < 0))  # by j, `<=` last
    return [one for one in ordered if one[3]] + [one for one in ordered if not one[3]]


def of_copies(relation: Constraint, runs: list[list[int]]) -> Constraint:
    """The binding relation of the variables: last copies of i and k and first of j, or the opposite."""
    i, j, k, sense = relation
    if sense < 0:
        return runs[i][-1], runs[j][0], runs[k][-1], sense
    return runs[i][0], runs[j][-1], runs[k][0], sense


def holds(x: list[Any], relation: Constraint) -> bool:
    """Whether the relation holds in exact arithmetic."""
    i, j, k, sense = relation
    value = Fraction(x[i]) + Fraction(x[k]) - 2 * Fraction(x[j])
    return value == 0 if sense == 0 else sense * value >= 0


def all_hold(x: list[Any], relations: list[Constraint]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(x)) and all(holds(x, relation) for relation in relations)
