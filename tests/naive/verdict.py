"""Verdict on attacks in plain Python, from its definition on the page about attacks."""

import math
from collections.abc import Sequence

from tests.naive.attacks import is_right, wilson

ORDER = ("low", "elevated", "high")


def state(
    value: float, low: float, high: float, elevated_above: float, high_above: float, singles_out: bool
) -> str:
    """State of one attack with this risk and interval.

    High must be shown: the interval excludes 0. So must low: the interval does not reach what is high. An
    attack that only singles out is elevated at most.
    """
    shown = low > 0
    if shown and value > high_above:
        return "elevated" if singles_out else "high"
    if value > elevated_above or high > high_above:
        return "elevated"
    return "low"


def worst(states: Sequence[str]) -> str:
    """State of a release whose attacks have these states; without any, nothing is shown."""
    return max(states, key=ORDER.index) if states else "elevated"


def unknown(attack: tuple[int, int], other: tuple[int, int], confidence: float) -> tuple[float, float, float]:
    """Risk and interval where every attack on the other rows succeeds; pairs of successes and tries.

    The ratio of failures is not known from above, so that the risk may be 0. From below it is the ratio R at
    which the lower limit of x - R y reaches 0 (Donner and Zou), found by bisection; x and y are the shares of
    failures, and y is 0.
    """
    assert other[0] == other[1]
    _, high = wilson(*attack, confidence)
    x, least = 1 - attack[0] / attack[1], max(0.0, 1 - high)
    most = 1 - wilson(*other, confidence)[0]
    start, end = 0.0, 1e12
    for _ in range(400):
        ratio = (start + end) / 2
        above = x - math.sqrt((x - least) ** 2 + (ratio * most) ** 2) > 0
        start, end = (ratio, end) if above else (start, ratio)
    return 0.0, 0.0, max(0.0, 1 - start)


def every_guess_is_right(
    released: Sequence[float | str | None], truths: Sequence[float | str | None], tolerance: float
) -> bool:
    """Whether the released value that is right for most released rows is right for every truth."""
    counts = [sum(is_right(guess, value, tolerance) for value in released) for guess in released]
    best = released[counts.index(max(counts))]
    return all(is_right(best, truth, tolerance) for truth in truths)
