"""Law of the permutation mechanism: exact epsilon, the paper's bound, and the rate that meets a target.

A group of n rows is permuted by sigma, which moves m of them. With p the rate, D_m the number of derangements
of m rows, and Z = 1 - n p (1 - p)^(n - 1) the probability that not exactly one row is selected,

    P(sigma) = p^m (1 - p)^(n - m) / (D_m Z),  m = 0, 2, 3, ..., n.

Two tables that differ by the exchange of two rows' values give the same release by permutations that
differ by a transposition, which changes m by at most 2. With l = ln(p / (1 - p)), the logarithm of the ratio
of their probabilities is d l - ln(D_(m+d) / D_m) for a step of d = 1 or 2, in either direction. The last term
grows with m. Hence epsilon, the largest absolute value over all steps, is reached at the smallest or the
largest m. As the maximum of convex functions of l it is convex in l, and it never falls as n grows.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm and its bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from providers.arrays import Float64Array, Int64Array
from providers.errors import ParameterError

_EXACT = 20
"""Largest n for which numbers of derangements are summed exactly; beyond, D_n = n! / e to 1e-18."""


@lru_cache(maxsize=_EXACT + 2)
def derangements(rows: int) -> int:
    """Return the number of permutations of `rows` rows that leave none in its place, exactly."""
    numbers = [1, 0]
    while len(numbers) <= rows:
        numbers.append((len(numbers) - 1) * (numbers[-1] + numbers[-2]))
    return numbers[rows]


@lru_cache(maxsize=1024)
def _log_ratio(high: int, low: int) -> float:
    """Return ln(D_high / D_low) for `high` - `low` of 1 or 2, neither of them 1."""
    if high <= _EXACT:
        return math.log(derangements(high)) - math.log(derangements(low))
    return sum(math.log(rows) for rows in range(low + 1, high + 1))


def epsilon(rows: int, rate: float) -> float:
    """Return the exact epsilon of a group, for two rows of it whose values are exchanged.

    Parameters
    ----------
    rows : int
        Number of rows of the group, n; 0 for fewer than two.
    rate : float
        Probability p of a row to be selected, between 0 and 1, both excluded.
    """
    if rows < 2:
        return 0.0
    odds = math.log(rate) - math.log1p(-rate)
    found = abs(2 * odds)  # m: 0 to 2
    if rows >= 3:  # m: 2 to 3, and n - 1 to n
        found = max(found, abs(odds - math.log(2)), abs(odds - _log_ratio(rows, rows - 1)))
    if rows >= 4:  # m: n - 2 to n
        found = max(found, abs(2 * odds - _log_ratio(rows, rows - 2)))
    return found


def bound(rows: int, rate: float) -> float:
    """Return the paper's bound for an exchange: twice its bound for one record; 0 for fewer than two rows."""
    if rows < 2:
        return 0.0
    odds = math.log(rate) - math.log1p(-rate)
    one = math.log(rows + 1) - odds
    return 2 * (one if rate <= 0.5 else max(one, odds))


def composed(largest_groups: Sequence[int], rate: float) -> float:
    """Return epsilon over fields that are permuted independently: the sum over their largest groups."""
    return sum(epsilon(rows, rate) for rows in largest_groups)


@dataclass(frozen=True, slots=True)
class Least:
    """Smallest epsilon that any rate reaches."""

    epsilon: float
    rate: float


def least(largest_groups: Sequence[int]) -> Least:
    """Return the smallest epsilon over all rates, and its rate."""
    return _least(tuple(largest_groups))


@lru_cache(maxsize=1024)
def _least(largest_groups: tuple[int, ...]) -> Least:
    """Search in thirds, since epsilon is convex. Runs that differ in their seeds have the same groups."""
    low, high = -1.0, math.log(max([2, *largest_groups])) + 2
    for _ in range(200):
        third = (high - low) / 3
        one, two = low + third, high - third
        if composed(largest_groups, _rate_of(one)) <= composed(largest_groups, _rate_of(two)):
            high = two
        else:
            low = one
    rate = _rate_of((low + high) / 2)
    rounded = round(rate, _DECIMALS)
    if 0 < rounded < 1 and composed(largest_groups, rounded) <= composed(largest_groups, rate):
        rate = rounded
    return Least(composed(largest_groups, rate), rate)


_DECIMALS = 6
"""Decimals to which a rate is rounded up, so that the last bit of a logarithm cannot change a release."""


def _rate_of(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def smallest_rate(largest_groups: Sequence[int], target: float) -> float:
    """Return the smallest rate whose composed epsilon is at most the target, rounded up to six decimals.

    Parameters
    ----------
    largest_groups : sequence of int
        Rows of the largest group, for each field that is permuted on its own.
    target : float

    Raises
    ------
    ParameterError
        No rate reaches the target; the message names the least epsilon and its rate.

    Notes
    -----
    The rates that meet a target form an interval around the rate of the least epsilon, since epsilon is
    convex in the log-odds of the rate. Its lower end changes the fewest values.
    """
    best = least(largest_groups)
    if best.epsilon > target:
        reachable = math.ceil(best.epsilon * 1e6) / 1e6  # with all its digits: as a target it is accepted
        raise ParameterError(
            f"no rate reaches target_epsilon {target:.12g}: the least epsilon for these groups is "
            f"{reachable:.12g}, at rate {best.rate:.6g}; make groups smaller, lock the "
            "swap fields, or raise the target",
            "/parameters/target_epsilon",
        )
    low, high = 0.0, best.rate
    while low < (middle := (low + high) / 2) < high:
        if composed(largest_groups, middle) <= target:
            high = middle
        else:
            low = middle
    rounded = math.ceil(high * 1e6) / 1e6  # `_DECIMALS`
    if rounded < 1 and composed(largest_groups, rounded) <= target:
        return rounded
    return high


# ------------------------------------------------------------------------------------------ possible outcomes


def moving_share(rows: int, rate: float) -> float:
    """Return the expected share of a group's rows that move: E[m] / n."""
    if rows < 2:
        return 0.0
    alone = math.exp((rows - 1) * math.log1p(-rate))  # (1 - p)^(n - 1)
    return float(rate * (1 - alone) / (1 - rows * rate * alone))


def guess_chance(rows: int, rate: float) -> float:
    """Return the probability of the most probable permutation of a group of two or three rows."""
    kept = 1 - rate
    if rows == 2:
        return float(max(rate**2, kept**2) / (rate**2 + kept**2))
    return float(max(rate**3 / 2, rate**2 * kept, kept**3) / (1 - 3 * rate * kept**2))


@lru_cache(maxsize=2**14)
def outcome_bits(rows: int, rate: float) -> float:
    """Return log2 of the number of permutations that move m rows, as the mean over the law of m.

    This is the entropy of the permutation for someone who knows how many rows of the group moved. For over
    10,000 rows the sum covers 12 standard deviations of m.
    """
    if rows < 2:
        return 0.0
    spread = 12 * math.sqrt(rows * rate * (1 - rate)) + 12 if rows > _SUMMED else rows
    low, high = max(0, math.floor(rows * rate - spread)), min(rows, math.ceil(rows * rate + spread))
    moving = np.arange(low, high + 1)
    moving = moving[moving != 1]
    choices = _log_factorial(rows) - _log_factorials(moving) - _log_factorials(rows - moving)
    log_weights = choices + moving * math.log(rate) + (rows - moving) * math.log1p(-rate)
    weights = np.exp(log_weights - log_weights.max())
    few = [math.log(derangements(m)) for m in moving[moving <= _EXACT].tolist()]
    arrangements = np.concatenate([few, _log_factorials(moving[moving > _EXACT]) - 1])
    return float((weights * (choices + arrangements)).sum() / weights.sum() / math.log(2))


_SUMMED = 10_000


def _log_factorial(number: int) -> float:
    return math.lgamma(number + 1)


def _log_factorials(numbers: Int64Array) -> Float64Array:
    """Return ln(n!) of integers, shape (n,), relative error below 1e-12 (Stirling's series beyond 20)."""
    x = np.maximum(numbers, 1).astype(np.float64)
    series = x * np.log(x) - x + 0.5 * np.log(2 * np.pi * x) + 1 / (12 * x) - 1 / (360 * x**3)
    series += 1 / (1260 * x**5)
    small = np.array([math.lgamma(number + 1) for number in range(_EXACT + 1)])
    found: Float64Array = np.where(numbers <= _EXACT, small[np.minimum(numbers, _EXACT)], series)
    return found
