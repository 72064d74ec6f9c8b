"""Attacks that use a method's rule, in plain Python, written from the rule."""

import itertools
import math
from collections.abc import Iterator, Sequence

Exchange = tuple[int, ...]
"""Source row of the value that each row shows."""


def exchanges(rows: int) -> Iterator[Exchange]:
    """Every exchange of all rows of a group: only pairs, and one cycle of three if the number is odd."""
    for sources in itertools.permutations(range(rows)):
        lengths = []
        left = set(range(rows))
        while left:
            start = row = left.pop()
            length = 1
            while (row := sources[row]) != start:
                left.remove(row)
                length += 1
            lengths.append(length)
        if sorted(lengths) == [2] * (rows // 2 - rows % 2) + [3] * (rows % 2):
            yield sources


def distribution(rows: int, rate: float) -> dict[Exchange, float]:
    """Every exchange of a group with its probability, as the services draw it.

    x = rate n rows move on average: floor(x / 2 + u) pairs with a uniform u. Only in an odd group with
    x > n - 1 all rows move, with probability x - (n - 1), or else n - 1.
    """
    wanted = rate * rows
    even = rows - rows % 2
    if wanted > even:
        numbers = {rows: wanted - even, even: 1 - (wanted - even)}
    else:
        pairs = math.floor(wanted / 2)
        numbers = {2 * pairs: 1 - (wanted / 2 - pairs)}
        more = min(2 * pairs + 2, even)
        numbers[more] = numbers.get(more, 0.0) + wanted / 2 - pairs
    found: dict[Exchange, float] = {}
    for moving, share in numbers.items():
        subsets = list(itertools.combinations(range(rows), moving))
        each = list(exchanges(moving)) if moving else [()]
        for subset in subsets:
            for exchange in each:
                sources = list(range(rows))
                for place, source in enumerate(exchange):
                    sources[subset[place]] = subset[source]
                key = tuple(sources)
                found[key] = found.get(key, 0.0) + share / len(subsets) / len(each)
    return {key: share for key, share in found.items() if share > 0}


def selected_distribution(selected: Sequence[float], risk: Sequence[float]) -> dict[Exchange, float]:
    """Every exchange of a group whose rows are selected independently with these chances, all of which move.

    A row that is selected alone draws a partner, with a chance in proportion to the risks of the others.
    """
    rows = range(len(selected))
    sets: dict[tuple[int, ...], float] = {}
    for drawn in itertools.product((False, True), repeat=len(selected)):
        share = math.prod(
            chance if is_in else 1 - chance for chance, is_in in zip(selected, drawn, strict=True)
        )
        moving = [row for row in rows if drawn[row]]
        partners = [row for row in rows if row not in moving] if len(moving) == 1 else []
        total = sum(risk[row] for row in partners)
        for partner in partners:
            key = tuple(sorted([*moving, partner]))
            part = risk[partner] / total if total else 1 / len(partners)
            sets[key] = sets.get(key, 0.0) + share * part
        if not partners:
            sets[tuple(moving)] = sets.get(tuple(moving), 0.0) + share
    found: dict[Exchange, float] = {}
    for chosen, share in sets.items():
        each = list(exchanges(len(chosen))) if chosen else [()]
        for exchange in each:
            sources = list(rows)
            for place, source in enumerate(exchange):
                sources[chosen[place]] = chosen[source]
            found[tuple(sources)] = share / len(each)
    return {key: share for key, share in found.items() if share > 0}


def posterior(
    shown: Sequence[int], known: dict[int, int], rate: float | dict[Exchange, float]
) -> list[list[float]] | None:
    """Chance [i][j] that row j shows row i's value, if these rows have these values; None if impossible.

    ``rate``: share of the rows that take part, or every exchange with its probability.
    """
    rows = len(shown)
    mass = [[0.0] * rows for _ in range(rows)]
    total = 0.0
    law = rate if isinstance(rate, dict) else distribution(rows, rate)
    for sources, share in law.items():
        if all(known.get(source, shown[row]) == shown[row] for row, source in enumerate(sources)):
            total += share
            for row, source in enumerate(sources):
                mass[source][row] += share
    return [[each / total for each in line] for line in mass] if total > 0 else None


def belief_propagation(
    shown: Sequence[int], known: dict[int, int], staying: float, rounds: int = 5000
) -> list[list[float]]:
    """Chance [i][j] that rows i and j are a pair, by messages between rows (Zdeborova and Mezard 2006).

    ``staying``: weight of a row that may keep its value. The diagonal is the chance that it does.
    """
    rows = range(len(shown))
    edges = {
        (i, j)
        for i, j in itertools.permutations(rows, 2)
        if known.get(i, shown[j]) == shown[j] and known.get(j, shown[i]) == shown[i]
    }
    may_stay = [known.get(i, shown[i]) == shown[i] for i in rows]
    message = dict.fromkeys(edges, 1 / math.sqrt(len(shown)))
    for _ in range(rounds):
        fresh = {}
        for i, j in edges:
            free = staying * may_stay[i] + sum(message[k, i] for k in rows if (k, i) in edges and k != j)
            fresh[i, j] = math.sqrt(message[i, j] / max(free, 1e-12))
        message = fresh
    found = [[0.0] * len(shown) for _ in rows]
    for i in rows:
        for j in rows:
            if (i, j) in edges:
                product = message[i, j] * message[j, i]
                found[i][j] = product / (1 + product)
        weight = staying * may_stay[i]
        received = sum(message[k, i] for k in rows if (k, i) in edges)
        found[i][i] = weight / (weight + received) if weight else 0.0
        rest = sum(found[i]) - found[i][i]
        for j in rows:
            if j != i and rest:
                found[i][j] *= (1 - found[i][i]) / rest
        if not rest:
            found[i][i] = 1.0
    return found


def link_weights(
    fixed: tuple[Sequence[int], int] | None,
    moved: Sequence[tuple[Sequence[int], int, Sequence[int], Sequence[float]]],
    rows: int,
) -> list[float]:
    """Weight of each row of the release to be the person's, by the rule of a swap (Nin et al. 2008).

    ``fixed``: shown codes of the unmoved known fields, and the person's. ``moved``: for each set of fields
    shown codes, the person's code, the group of each row (-1: none), and its chance to have moved.
    """
    weight = [1.0] * rows
    if fixed is not None and any(code == fixed[1] for code in fixed[0]):
        weight = [float(code == fixed[1]) for code in fixed[0]]
    for shown, value, group, rate in moved:
        factor = []
        for row in range(rows):
            if group[row] == -1:
                factor.append(float(shown[row] == value))
                continue
            mates = [other for other in range(rows) if group[other] == group[row] and other != row]
            chance = (1 - rate[row]) * (shown[row] == value)
            total = sum(rate[other] for other in mates)
            chance += sum(
                rate[row] * rate[other] / total for other in mates if total and shown[other] == value
            )
            factor.append(chance)
        product = [one * two for one, two in zip(weight, factor, strict=True)]
        if any(product):
            weight = product
    return weight


def area_weights(
    shown: Sequence[int], value: int, area: Sequence[int], group: Sequence[int], rate: Sequence[float]
) -> list[float]:
    """Weight of each row of a release of RSWAP to come from the area that shows a value.

    A row that was swapped comes from a row of its group in another area, each as probable as any other.
    """
    weight = []
    for row in range(len(shown)):
        partners = [
            other for other in range(len(shown)) if group[other] == group[row] and area[other] != area[row]
        ]
        chance = (1 - rate[row]) * (shown[row] == value)
        for partner in partners:
            chance += rate[row] / len(partners) * (shown[partner] == value)
        weight.append(chance)
    return weight


def donor_score(
    person: Sequence[float], released: Sequence[Sequence[float]], shown: Sequence[int], k: int, q: float
) -> dict[int, float]:
    """Log odds of each value shown near a person to be the person's own, by Bayes' rule on RWN."""

    def squared(one: Sequence[float], two: Sequence[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(one, two, strict=True))

    rows = range(len(released))
    k = min(k, len(released) - 1)
    near = sorted(rows, key=lambda row: (squared(person, released[row]), row))[: max(20, 4 * k)]
    own = [row for row in near if squared(person, released[row]) <= 1e-9]
    radii = {
        row: sorted(squared(released[row], released[each]) for each in rows if each != row)[k - 1]
        for row in near
        if [row] != own
    }
    scores = {}
    for value in {shown[row] for row in near}:
        other = 0.9 * sum(shown[row] == value for row in near) / len(near)
        other += 0.1 * sum(each == value for each in shown) / len(shown)
        score = math.log(other)
        for row in near:
            if len(own) == 1 and row == own[0]:
                if q < 1 and shown[row] == value:
                    score += math.log(1 + (1 - q) / (q * other))
                continue
            if squared(person, released[row]) <= radii[row] * (1 + 1e-6) and shown[row] == value:
                score += math.log(1 + q / ((k - q) * other))
        scores[value] = score
    return scores


def kept_relations(values: Sequence[float]) -> list[tuple[int, int, int, int]]:
    """Every strict locality of ascending values: i < j < k and the sign of d_i + d_k - 2 d_j."""
    found = []
    for i, j, k in itertools.combinations(range(len(values)), 3):
        difference = values[i] + values[k] - 2 * values[j]
        if difference:
            found.append((i, j, k, 1 if difference > 0 else -1))
    return found


def r_squared(guesses: Sequence[float], truth: Sequence[float]) -> float:
    """Share of the variance that guesses explain."""
    mean = sum(truth) / len(truth)
    left = sum((guess - true) ** 2 for guess, true in zip(guesses, truth, strict=True))
    return 1 - left / sum((true - mean) ** 2 for true in truth)
