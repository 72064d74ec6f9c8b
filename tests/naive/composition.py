"""Attacks on several releases, value by value, written from their definitions."""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction

Value = Hashable


def majority(shown: Sequence[Value], own: Value) -> Fraction:
    """Chance that the most frequent value of one row is its own."""
    counts = Counter(shown)
    best = [value for value, times in counts.items() if times == max(counts.values())]
    return Fraction(own in best, len(best))


def exclusion(shown: Sequence[Value], own: Value, group: Sequence[Value], rate: Fraction) -> Fraction:
    """Chance that the most probable value of the group is the row's own, by Bayes' rule, exactly.

    `group`: all values of the rows of its group, each of which is the own value of one of them.
    """
    others = len(group) - 1
    if not others:
        return Fraction(group[0] == own)
    copies = Counter(group)

    def likelihood(candidate: Value) -> Fraction:
        product = Fraction(1)
        for value in shown:
            if value not in copies:
                continue  # such as a null by suppression: it speaks for no candidate
            received = rate * Fraction(copies[value] - (value == candidate), others)
            product *= received + (1 - rate) * (value == candidate)
        return product

    posterior = {value: copies[value] * likelihood(value) for value in copies}
    if not max(posterior.values()):
        return Fraction(0)
    best = [value for value, chance in posterior.items() if chance == max(posterior.values())]
    return Fraction(own in best, len(best))


def intersection(
    releases: Sequence[Sequence[tuple[Value, Value]]], known: Value, own: Value, values: Collection[Value]
) -> Fraction:
    """Chance that a common candidate of all releases is the row's own value.

    `releases`: pairs (known value, secret value) of each row. `values`: all values of the source.
    """
    times: Counter[Value] = Counter()
    shares: dict[Value, Fraction] = {}
    for release in releases:
        found = [secret for shows, secret in release if shows == known]
        for value, count in Counter(found).items():
            if value in values:
                times[value] += 1
                shares[value] = shares.get(value, Fraction(0)) + Fraction(count, len(found))
    if not times:
        return Fraction(0)
    most = [value for value, count in times.items() if count == max(times.values())]
    best = [value for value in most if shares[value] == max(shares[one] for one in most)]
    return Fraction(own in best, len(best))
