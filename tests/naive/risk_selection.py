"""Selection by risk in plain Python: risks, systematic sampling with exact fractions, partners, deciles."""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from providers.params import RiskSelection
from tests.naive.draws import uniform
from tests.naive.pairing import Group, Words

Table = dict[str, list[Any]]
UNIT = 2**32


@dataclass
class Selected:
    """Rows selected in a table."""

    risk: list[float]
    required: set[int]
    selected: set[int]
    words: Words


def combination_key(value: Any) -> Any:
    """Value that is equal for equal values: floats by their bits, null equal to null."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return tuple(combination_key(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, combination_key(each)) for name, each in value.items())
    return type(value).__name__, value


def combinations(table: Table, names: Sequence[str]) -> list[Any]:
    """Combination of the key fields of each row."""
    return list(zip(*([combination_key(value) for value in table[name]] for name in names), strict=True))


def select(table: Table, risk: RiskSelection, rate: float, key: Sequence[int]) -> Selected:
    """Select the rows at risk, and others by systematic sampling in random order."""
    if risk.field is not None:
        risks = [float(value) for value in table[risk.field]]
        required = {row for row, value in enumerate(risks) if risk.k and value > 1 / risk.k}
    else:
        keys = combinations(table, risk.key_fields)
        population: dict[Any, float] = {}
        for row, found in enumerate(keys):
            weight = 1 if risk.weight is None else float(table[risk.weight][row])
            population[found] = population.get(found, 0) + weight
        risks = [1 / population[found] for found in keys]
        least = risk.k if risk.weight is None else risk.k * (1 - 1e-9)
        required = {row for row, found in enumerate(keys) if population[found] < least}
    rows = len(risks)
    others = [row for row in range(rows) if row not in required]
    wanted = min(max(Fraction(rate * rows) - len(required), Fraction(0)), Fraction(len(others)))
    chances = inclusion_probabilities([risks[row] for row in others], wanted)
    words = Words(key)
    words.fetch([((0, 0), 2 * rows)])
    order = sorted(
        zip(others, chances, strict=True),
        key=lambda entry: (words.word((0, 0), 2 * entry[0]), words.word((0, 0), 2 * entry[0] + 1), entry[0]),
    )
    selected, total = set(required), words.word((0, 1), 0)
    for row, chance in order:
        before, total = total, total + round(chance * UNIT)
        if total // UNIT > before // UNIT:
            selected.add(row)
    return Selected(risks, required, selected, words)


def inclusion_probabilities(risks: Sequence[float], wanted: Fraction) -> list[Fraction]:
    """min(1, c r) with the c at which they sum to the wanted number; what is left to rows without risk."""
    exact = [Fraction(risk) for risk in risks]
    positive = sum(risk > 0 for risk in exact)
    if wanted >= positive:
        rest = (wanted - positive) / (len(exact) - positive) if len(exact) > positive else Fraction(0)
        return [Fraction(1) if risk > 0 else rest for risk in exact]
    certain: set[int] = set()
    while True:  # cap, and share the rest again, until no probability exceeds 1
        left = sum((risk for row, risk in enumerate(exact) if row not in certain), Fraction(0))
        c = (wanted - len(certain)) / left
        over = {row for row, risk in enumerate(exact) if row not in certain and c * risk > 1}
        if not over:
            return [Fraction(1) if row in certain else c * risk for row, risk in enumerate(exact)]
        certain |= over


def chosen_rows(group: Group, selected: Selected) -> list[int]:
    """Selected rows of a group in listing order; a single one with a partner."""
    chosen = [row for row in group.rows if row in selected.selected]
    if len(chosen) != 1 or len(group.rows) < 2:
        return chosen
    others = [row for row in group.rows if row not in chosen]
    largest = max(selected.risk[row] for row in others)
    shares = [selected.risk[row] / largest if largest > 0 else 1.0 for row in others]
    address = (group.identity, 2)
    point = uniform(selected.words.word(address, 0), selected.words.word(address, 1))
    total = 0.0
    for share in shares:
        total += share
    passed = 0.0
    for row, share in zip(others, shares, strict=True):
        passed += share
        if passed > point * total:
            return [each for each in group.rows if each in (chosen[0], row)]
    raise AssertionError("the sum of the shares exceeds the point")


def expected_sizes(groups: Sequence[Group], required: set[int]) -> list[int]:
    """Rows of each group that move for certain, for someone who knows the rows at risk."""
    found = []
    for group in groups:
        count = sum(row in required for row in group.rows)
        if count == 1 and len(group.rows) in (2, 3):
            count = len(group.rows)
        if count > 1:
            found.append(count)
    return found


def unique_rows(table: Table, names: Sequence[str]) -> set[int]:
    """Rows whose combination occurs once."""
    keys = combinations(table, names)
    times = Counter(keys)
    return {row for row, found in enumerate(keys) if times[found] == 1}


def deciles(risks: Sequence[float], marks: dict[str, set[int]]) -> dict[str, dict[str, Any]]:
    """Rows and marked rows by decile: floor(10 (rows with less risk) / rows)."""
    of_row = [10 * sum(other < risk for other in risks) // len(risks) for risk in risks]
    return {
        str(number + 1): {
            "from_risk": min(risks[row] for row in inside),
            "to_risk": max(risks[row] for row in inside),
            "rows": len(inside),
            **{name: len(rows & inside) for name, rows in marks.items()},
        }
        for number in sorted(set(of_row))
        for inside in [{row for row, found in enumerate(of_row) if found == number}]
    }
