"""RWN in plain Python: every pair of rows is measured, as Perry, Matloff and Tendick 2024 describe it.

What the paper leaves open is as the service's page says; how draws are addressed, decision 0001.
"""

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from providers.rwn import RwnParams
from tests.naive.chacha20 import derive_key
from tests.naive.ddswap import sort_key
from tests.naive.pairing import Words, random_order
from tests.naive.swapping import Outcome, Table, is_nan, row_count, same

LISTED, COVER, LEAF, COUNTED = 1024, 64, 16, 10_000
TIE = 1 + 2e-9
MOMENT = datetime.timedelta(microseconds=1)


@dataclass
class Space:
    """The rows as points: each field a list of one value a row."""

    rows: int
    numbers: list[list[float]] = field(default_factory=list)
    nominals: list[list[int]] = field(default_factory=list)
    flags: list[list[int]] = field(default_factory=list)
    w: float = 1.0

    def d2(self, i: int, j: int) -> float:
        """The squared distance of two rows."""
        total = 0.0
        for x in self.numbers:
            total += (x[i] - x[j]) * (x[i] - x[j])
        mismatches = sum(x[i] != x[j] for x in self.nominals)
        flags = sum(x[i] != x[j] for x in self.flags)
        return total + (2.0 * self.w * self.w * mismatches + 2.0 * flags)


# ------------------------------------------------------------------------------------------ the space


def counted(values: list[Any]) -> list[float | None]:
    """The values as numbers, integers, dates and times from the smallest; None for what is missing."""
    present = [value for value in values if value is not None and not is_nan(value)]
    if not present:
        return [None] * len(values)
    smallest = min(present)

    def number(value: Any) -> float | None:
        if value is None or is_nan(value):
            return None
        if isinstance(value, datetime.time):
            first = datetime.datetime.combine(datetime.date.min, smallest)
            return float((datetime.datetime.combine(datetime.date.min, value) - first) // MOMENT)
        if isinstance(value, datetime.date | datetime.timedelta):  # a datetime is a date
            return float((value - smallest) // MOMENT)
        if isinstance(value, int):
            return float(value - smallest)
        return float(value)

    return [number(value) for value in values]


def scaled(numbers: list[float | None]) -> tuple[list[float], list[int]]:
    """(x - min) / (max - min), the median for what is missing; and the flags that say what is missing."""
    missing = [int(x is None) for x in numbers]
    present = [x for x in numbers if x is not None]
    if not present:
        return [0.0] * len(numbers), missing
    low, high = min(present), max(present)
    half = 0.5 if math.isinf(high - low) else 1.0
    low, high = low * half, high * half

    def scale(x: float) -> float:
        return 0.0 if high == low else (x * half - low) / (high - low)

    middle = median(scale(x) for x in present)
    return [middle if x is None else scale(x) for x in numbers], missing


def space(table: Table, params: RwnParams) -> Space:
    """The rows of the table as points."""
    out = Space(row_count(table), w=params.categorical_weight)
    for name in params.distance_fields:
        values = table[name]
        if name in params.ordinal_fields:
            levels = list(params.ordinal_fields[name])
            places = [None if value is None else float(levels.index(value)) for value in values]
        elif name in params.categorical_fields or is_nominal(values):
            if params.categorical_weight:
                keys = [sort_key(value) for value in values]
                out.nominals.append([sorted(set(keys)).index(key) for key in keys])
            continue
        else:
            places = counted(values)
        numbers, missing = scaled(places)
        out.numbers.append(numbers)
        out.flags.append(missing)
    return out


# ------------------------------------------------------------------------------------- neighbourhoods


def distances(space: Space, i: int, candidates: Iterable[int]) -> dict[int, float]:
    """The squared distances of row i from all others."""
    return {j: space.d2(i, j) for j in candidates if j != i}


def neighbourhood(d2: dict[int, float], params: RwnParams) -> list[int]:
    """N_i in the order of rows."""
    if len(d2) <= params.k:
        return sorted(d2)
    nearest = sorted(d2, key=lambda j: (d2[j], j))
    kth = d2[nearest[params.k - 1]]
    ball = params.epsilon * params.epsilon
    if params.ties == "include":
        return sorted(j for j in d2 if d2[j] <= max(ball, kth) * TIE)
    chosen = set(nearest[: params.k])
    if params.epsilon > 0:
        chosen |= {j for j in d2 if d2[j] <= ball * TIE}
    return sorted(chosen)


def reach(d2: dict[int, float], params: RwnParams) -> float:
    """The squared distance that the cover of a row's neighbourhood has to reach."""
    if len(d2) <= params.k:
        return math.inf
    kth = sorted(d2.values())[params.k - 1]
    ball = params.epsilon * params.epsilon
    if params.ties == "include":
        return max(ball, kth) * TIE
    return max(kth, ball * TIE) if params.epsilon > 0 else kth


class Node:
    """A node of the tree: its rows in the tree's order, its halves, and the box that holds its points."""

    def __init__(self, space: Space, rows: list[int], halves: tuple["Node", ...]) -> None:
        self.rows = rows
        self.halves = halves
        self.boxes = [
            [(min(x[j] for j in rows), max(x[j] for j in rows)) for x in fields]
            for fields in (space.numbers, space.nominals, space.flags)
        ]


def tree(space: Space, rows: list[int]) -> Node:
    """The tree over these rows."""
    n = len(rows)
    full = -(-n // LEAF)
    weights = [math.sqrt(2.0 * space.w * space.w)] * len(space.nominals) + [math.sqrt(2.0)] * len(space.flags)
    codes = space.nominals + space.flags
    fields: list[list[float]] = [*space.numbers, *([float(code) for code in x] for x in codes)]

    def grown(rows: list[int], level: int, b: int) -> Node:
        widths = [max(x[i] for i in rows) - min(x[i] for i in rows) for x in space.numbers]
        widths += [w if len({x[i] for i in rows}) > 1 else 0.0 for x, w in zip(codes, weights, strict=True)]
        first, stop = -(-full * b // 2**level), -(-full * (b + 1) // 2**level)
        if max(widths, default=0.0) == 0.0:
            rows = sorted(rows)
        elif stop - first > 1:
            wide = sorted((x for x in range(len(fields)) if widths[x]), key=lambda x: (-widths[x], x))
            rows = sorted(rows, key=lambda i: ([fields[x][i] for x in wide], i))
        if stop - first == 1:
            return Node(space, sorted(rows), ())
        cut = -(-full * (2 * b + 1) // 2 ** (level + 1))
        middle = n * cut // full - n * first // full
        halves = grown(rows[:middle], level + 1, 2 * b), grown(rows[middle:], level + 1, 2 * b + 1)
        return Node(space, halves[0].rows + halves[1].rows, halves)

    return grown(rows, 0, 0)


def bounds(space: Space, node: Node, i: int) -> tuple[float, float]:
    """Least and largest squared distance from row i that the node's box allows."""
    least = largest = 0.0
    numbers, nominals, flags = node.boxes
    for x, (low, high) in zip(space.numbers, numbers, strict=True):
        gap = max(low - x[i], x[i] - high, 0.0)
        far = max(x[i] - low, high - x[i])
        least += gap * gap
        largest += far * far
    counts = []
    for codes, boxes in ((space.nominals, nominals), (space.flags, flags)):
        ranges = [(x[i], *box) for x, box in zip(codes, boxes, strict=True)]
        counts.append(sum(not low <= code <= high for code, low, high in ranges))
        counts.append(sum(not low == code == high for code, low, high in ranges))
    least += 2.0 * space.w * space.w * counts[0] + 2.0 * counts[2]
    largest += 2.0 * space.w * space.w * counts[1] + 2.0 * counts[3]
    return least, largest


def cover(space: Space, root: Node, i: int, reach: float) -> list[int]:
    """The rows of the nodes within reach of row i, in the tree's order."""
    nodes = [root]
    while True:
        finer: list[Node] = []
        for node in nodes:
            if not node.halves or bounds(space, node, i)[1] <= reach:
                finer.append(node)
            else:
                finer += [half for half in node.halves if bounds(space, half, i)[0] <= reach]
        if len(finer) > COVER or finer == nodes:
            return [j for node in nodes for j in node.rows]
        nodes = finer


# -------------------------------------------------------------------------------------------- draws


def bounded(bound: int, first: int | None, words: Words, i: int, used: list[int]) -> int:
    """A uniform integer below `bound` (Lemire 2019, algorithm 5), from `first` and the stream (i, 2)."""

    def next_word() -> int:
        used[0] += 1
        return words.word((i, 2), used[0] - 1)

    product = (next_word() if first is None else first) * bound
    while product % 2**32 < (2**32 - bound) % bound:
        product = next_word() * bound
    return product >> 32


def own_sample(n: int, i: int, m: int, words: Words) -> list[int]:
    """m of the rows but i, drawn one by one; or those that are left out, where they are fewer."""
    others = [j for j in range(n) if j != i]
    is_taken = 2 * m <= len(others)
    used = [0]
    drawn: set[int] = set()
    while len(drawn) < (m if is_taken else len(others) - m):
        drawn.add(others[bounded(len(others), None, words, i, used)])
    return sorted(drawn if is_taken else set(others) - drawn)


def parts(n: int, params: RwnParams, seed: bytes, revision: int) -> list[tuple[list[int], list[int]]]:
    """Rows, and among which rows their neighbours are."""
    everyone = list(range(n))
    if params.neighbours == "exact" or (params.neighbours == "sample" and params.sample_size >= n):
        return [(everyone, everyone)]
    if params.neighbours == "own_sample" and params.sample_size >= n - 1:
        return [(everyone, everyone)]
    words = Words(derive_key(seed, "RWN", revision, "neighbours"))
    if params.neighbours == "own_sample":
        return [([i], own_sample(n, i, params.sample_size, words)) for i in everyone]
    order = random_order(everyone, 0, words)
    if params.neighbours == "sample":
        return [(everyone, sorted(order[: params.sample_size]))]
    u = params.parts
    cut = [sorted(order[n * part // u : n * (part + 1) // u]) for part in range(u)]
    return [(part, part) for part in cut]


def swap(table: Table, params: RwnParams, seed: bytes, revision: int) -> Outcome:
    """Replace values by those of random neighbours."""
    n = row_count(table)
    out = Outcome({name: list(values) for name, values in table.items()})
    points = space(table, params)
    keys = {name: derive_key(seed, "RWN", revision, f"donor/{name}") for name in params.perturb_fields}
    words = {name: Words(key) for name, key in keys.items()}
    donors = {name: list(range(n)) for name in params.perturb_fields}
    sizes = [0] * n
    own = params.neighbours == "own_sample" and params.sample_size < n - 1
    listed = n if own else LISTED
    for queried, candidates in parts(n, params, seed, revision) if n else []:
        root = tree(points, candidates)
        for i in queried:
            d2 = distances(points, i, candidates)
            N = neighbourhood(d2, params)
            sizes[i] = len(N)
            covering: list[int] = []
            if len(N) > listed:
                covering = cover(points, root, i, reach(d2, params))
            for name in params.perturb_fields:
                used = [0]
                if len(N) <= listed:
                    t = bounded(len(N), words[name].word((0, 0), i), words[name], i, used)
                    donors[name][i] = N[t]
                    continue
                members = set(N)
                while True:
                    j = covering[bounded(len(covering), None, words[name], i, used)]
                    if j in members:
                        break
                donors[name][i] = j

    changed_rows: set[int] = set()
    drew: set[int] = set()
    kept: set[int] = set()
    for name in params.perturb_fields:
        stays = set()
        if params.q < 1:
            for i in range(n):
                high, low = words[name].word((0, 1), 2 * i), words[name].word((0, 1), 2 * i + 1)
                if not (high * 2**21 + (low >> 11)) * 2.0**-53 < params.q:
                    stays.add(i)
                    donors[name][i] = i
        out.table[name] = [table[name][j] for j in donors[name]]
        changed = {i for i in range(n) if not same(table[name][i], out.table[name][i])}
        out.took_part_by_field[name] = n - len(stays)
        out.changed[name] = len(changed)
        changed_rows |= changed
        kept |= stays
        drew |= set(range(n)) - stays
        nominal = name in params.distance_fields and name not in params.ordinal_fields
        nominal = nominal and params.categorical_weight > 0
        nominal = nominal and (name in params.categorical_fields or is_nominal(table[name]))
        nominal = nominal and len({sort_key(value) for value in table[name]}) > 1
        if n > len(stays) and nominal and len(changed) < 0.01 * (n - len(stays)):
            out.events["category_kept"] += 1
        elif n > len(stays) and not changed:
            out.events["nothing_changed"] += 1
    if n > len(changed_rows):
        out.events["rows_unchanged"] += 1
    out.sources = donors
    every = max(1, -(-n // COUNTED)) if params.epsilon > 0 else 1
    shown = sizes[::every]
    out.groups = n
    out.group_size = (min(shown), float(median(shown)), max(shown)) if n else (0, 0.0, 0)
    out.took_part = len(drew)
    out.unswapped = len(kept)
    out.unswapped_reasons = {"rate": len(kept)} if kept else {}
    bits = sum(math.log2(size + (params.q < 1)) for size in shown) / max(1, len(shown))
    out.provider = {
        "unchanged_rows": n - len(changed_rows),
        "neighbourhood_size": sum(shown) / max(1, len(shown)),
        "matching_bits": bits * n * len(params.perturb_fields),
    }
    return out


def is_nominal(values: list[Any]) -> bool:
    """Whether values like these have no order: text, bytes, truth values, or none at all."""
    present = [value for value in values if value is not None]
    return not present or isinstance(present[0], str | bytes | bool)
