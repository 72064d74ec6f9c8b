"""Verdict on attacks in plain Python, from its definition on the page about attacks."""

from collections.abc import Sequence

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
