"""Estimators of population uniques in plain Python: sums over outcomes, products of steps, and a search."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction


def negative_binomial(frequency: int, success: float) -> Iterator[tuple[int, float]]:
    """Population frequency F >= f and its probability, if F - f misses come before the f-th success."""
    logarithm = frequency * math.log(success)  # the probability itself may be below the least float
    for population in range(frequency, 200_000):
        yield population, math.exp(logarithm)
        if success == 1:
            return
        logarithm += math.log1p(-success) + math.log(population / (population - frequency + 1))


def expected_inverse(frequency: int, success: float) -> float:
    """E(1 / F | f) of Benedetti and Franconi."""
    return math.fsum(share / population for population, share in negative_binomial(frequency, success))


def one_sampled(size: int, rows: int, population: int) -> Fraction:
    """Probability that exactly one of `size` persons is among `rows` drawn from the population."""
    return Fraction(size * math.comb(population - size, rows - 1), math.comb(population, rows))


def zayatz(sizes: Sequence[int], population: int) -> float:
    """P(unique in the population | unique in the table), by Bayes over the sizes of the table's classes."""
    rows = sum(sizes)
    shares = {size: Fraction(sizes.count(size), len(sizes)) for size in sizes}
    every = sum(share * one_sampled(size, rows, population) for size, share in shares.items())
    return float(shares[1] * one_sampled(1, rows, population) / every)


def probability(sizes: Sequence[int], theta: float, alpha: float) -> float:
    """Probability that persons who come one by one form exactly these classes, class by class.

    The next person joins a class of f persons with the probability (f - alpha) / (theta + i), and starts a
    new one, after u others, with (theta + u alpha) / (theta + i), i the persons so far (Pitman 1995).
    """
    persons, result = 0, 1.0
    for classes, size in enumerate(sizes):
        for members in range(size):
            if persons:
                weight = members - alpha if members else theta + classes * alpha
                result *= weight / (theta + persons)
            persons += 1
    return result


def stays_unique(theta: float, alpha: float, rows: int, population: int) -> float:
    """Probability that none of the persons `rows` + 1 to `population` joins a class of one."""
    result = 1.0
    for persons in range(rows, population):
        result *= 1 - (1 - alpha) / (theta + persons)
    return result


def best_fit(sizes: Sequence[int], thetas: Sequence[float], alphas: Sequence[float]) -> tuple[float, float]:
    """Pair (theta, alpha) of the lists that makes the classes most probable."""
    pairs = [(theta, alpha) for theta in thetas for alpha in alphas]
    return max(pairs, key=lambda pair: probability(sizes, *pair))
