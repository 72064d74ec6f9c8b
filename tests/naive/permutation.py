"""Permutation mechanism in plain Python: the algorithm of Bailie, Gong and Meng; its law by enumeration."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache

from tests.naive.draws import uniform
from tests.naive.pairing import RATE_LEVEL, Exchanged, Group, Words, random_order

LENGTH_LEVEL = RATE_LEVEL - 1


def selected_rows(size: int, rate: float, identity: int, words: Words) -> int:
    """Number of rows selected, each by its own two words; drawn again if it is exactly one."""
    address, first = (identity, RATE_LEVEL), 0
    while True:
        words.fetch([(address, first + 2 * size)])
        drawn = [
            uniform(words.word(address, first + 2 * row), words.word(address, first + 2 * row + 1))
            for row in range(size)
        ]
        count = sum(u < rate for u in drawn)
        if count != 1:
            return count
        first += 16 * math.ceil(2 * size / 16)  # the next attempt begins with a new block of 16 words


def cycle_lengths(moving: int, identity: int, words: Words) -> list[int]:
    """Cycle lengths of a uniform permutation without fixed points: each uniform on what is left, no 1."""
    address, number = (identity, LENGTH_LEVEL), 0
    lengths: list[int] = []
    while sum(lengths) < moving:
        bound = moving - sum(lengths)
        product = words.word(address, number) * bound  # Lemire 2019, algorithm 5
        number += 1
        if product & 0xFFFFFFFF < 2**32 % bound:
            continue
        length = 1 + (product >> 32)
        lengths = [] if length == 1 else [*lengths, length]
    return lengths


def sources_of(order: Sequence[int], lengths: Sequence[int]) -> dict[int, int]:
    """Row -> row that its value comes from: the one before it in its cycle."""
    source: dict[int, int] = {}
    start = 0
    for length in lengths:
        cycle = order[start : start + length]
        source |= {row: cycle[place - 1] for place, row in enumerate(cycle)}
        start += length
    return source


def permute_groups(
    groups: Iterable[Group], rows: int, key: Sequence[int], rate: float, min_group_size: int
) -> Exchanged:
    """Permute a random selection of every group's rows."""
    done = Exchanged(list(range(rows)), set(), set(), set(), set())
    words = Words(key)
    for group in groups:
        size = len(group.rows)
        if size == 1:
            done.alone |= set(group.rows)
        elif size < min_group_size:
            done.too_small |= set(group.rows)
        elif size:
            moving = selected_rows(size, rate, group.identity, words)
            order = random_order(group.rows, group.identity, words)
            source = sources_of(order, cycle_lengths(moving, group.identity, words))
            for row, origin in source.items():
                done.source[row] = origin
            done.took_part |= set(source)
            done.not_drawn |= set(group.rows) - set(source)
    return done


# -------------------------------------------------------------------------------------------- the law


@cache
def derangements(rows: int) -> int:
    """D_n by inclusion and exclusion: the sum over k of (-1)^k n! / k!."""
    return sum((-1) ** k * math.factorial(rows) // math.factorial(k) for k in range(rows + 1))


def probability(rows: int, moving: int, rate: Fraction) -> Fraction:
    """P(sigma) of one permutation that moves m of n rows."""
    if moving == 1:
        return Fraction(0)
    z = 1 - rows * rate * (1 - rate) ** (rows - 1)
    return rate**moving * (1 - rate) ** (rows - moving) / derangements(moving) / z


def epsilon(rows: int, rate: float) -> float:
    """Largest |ln P(m) - ln P(m')| over all numbers of moved rows that a transposition connects."""
    odds = math.log(rate) - math.log1p(-rate)
    found = 0.0
    for m in range(rows + 1):
        for other in (m - 1, m - 2):
            if other < 0 or 1 in (m, other) or (other == m - 1 and m < 3):
                continue
            ratio = math.log(derangements(m)) - math.log(derangements(other))
            found = max(found, abs((m - other) * odds - ratio))
    return found


def paper_bound(rows: int, rate: float) -> float:
    """Twice the paper's bound for one record."""
    odds = math.log(rate / (1 - rate))
    return 2 * (math.log(rows + 1) - odds if rate <= 0.5 else max(odds, math.log(rows + 1) - odds))


STEPS = 10**6


def smallest_rate(largest_groups: Sequence[int], target: float) -> float | None:
    """Smallest rate with six decimals whose epsilon, added up over the fields, meets the target; or None."""

    def total(step: int) -> float:
        return sum(epsilon(rows, step / STEPS) for rows in largest_groups)

    low, high = 1, STEPS - 1  # epsilon falls, then rises
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if total(middle) <= total(middle + 1) else (middle + 1, high)
    if total(low) > target:
        return None
    below, meets = 0, low
    while meets - below > 1:
        middle = (below + meets) // 2
        below, meets = (below, middle) if total(middle) <= target else (middle, meets)
    return meets / STEPS


@cache
def permutation_bits(rows: int, rate: float) -> float:
    """Mean over m of log2 of the number of permutations that move m of n rows."""
    p = Fraction(rate)
    ways = {m: math.comb(rows, m) * derangements(m) for m in range(rows + 1) if m != 1}
    return sum(float(number * probability(rows, m, p)) * math.log2(number) for m, number in ways.items())
