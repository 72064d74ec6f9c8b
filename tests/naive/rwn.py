"""RWN in plain Python: all distances are computed, as Perry, Matloff and Tendick 2024 describe it.

What the paper leaves open is as the service's page says; how draws are addressed, decision 0001.
"""

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from providers.services.rwn import RwnParams
from tests.naive.chacha20 import derive_key
from tests.naive.ddswap import sort_key
from tests.naive.pairing import Words, random_order
from tests.naive.swapping import Outcome, Table, differing, is_nan, row_count

MOST_LISTED, MOST_COVER_NODES, LEAF, COUNTED_ROWS = 1024, 64, 16, 10_000
TIE = 1 + 2e-9
MOMENT = datetime.timedelta(microseconds=1)


@dataclass
class Space:
    """Rows as points: each field is a list of one value for each row."""

    rows: int
    numbers: list[list[float]] = field(default_factory=list)
    nominals: list[list[int]] = field(default_factory=list)
    flags: list[list[int]] = field(default_factory=list)
    w: float = 1.0

    def d2(self, i: int, others: list[int]) -> list[float]:
        """Return the squared distances of a row from others, field by field."""
        total = [0.0] * len(others)
        for x in self.numbers:
            total = [so_far + (x[i] - x[j]) * (x[i] - x[j]) for so_far, j in zip(total, others, strict=True)]
        mismatches, flags = (
            [sum(pairs) for pairs in zip(*([x[i] != x[j] for j in others] for x in columns), strict=True)]
            or [0] * len(others)
            for columns in (self.nominals, self.flags)
        )
        return [
            distance + (2.0 * self.w * self.w * m + 2.0 * f)
            for distance, m, f in zip(total, mismatches, flags, strict=True)
        ]


# ------------------------------------------------------------------------------------------ the space


def counted(values: list[Any]) -> list[float | None]:
    """Return values as numbers; integers, dates and times relative to the smallest; None if missing."""
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
    """Return (x - min) / (max - min), with the median for missing values, and the missing flags."""
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
    """Return the rows of a table as points."""
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
    """Return the squared distances of row i from all others."""
    others = [j for j in candidates if j != i]
    return dict(zip(others, space.d2(i, others), strict=True))


def neighbourhood(d2: dict[int, float], params: RwnParams) -> list[int]:
    """Return the neighbourhood S_i in the order of rows."""
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


def squared_radius(d2: dict[int, float], params: RwnParams) -> float:
    """Return the squared radius that the cover of a row's neighbourhood must contain."""
    if len(d2) <= params.k:
        return math.inf
    kth = sorted(d2.values())[params.k - 1]
    ball = params.epsilon * params.epsilon
    if params.ties == "include":
        return max(ball, kth) * TIE
    return max(kth, ball * TIE) if params.epsilon > 0 else kth


class Node:
    """Node of the tree: its rows in tree order, its halves, and the box of its points."""

    def __init__(self, space: Space, rows: list[int], halves: tuple["Node", ...]) -> None:
        self.rows = rows
        self.halves = halves
        self.boxes = [
            [(min(x[j] for j in rows), max(x[j] for j in rows)) for x in fields]
            for fields in (space.numbers, space.nominals, space.flags)
        ]


def tree(space: Space, rows: list[int]) -> Node:
    """Build the tree of some rows."""
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
    """Return the least and largest squared distance between row i and the node's box."""
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


def cover(space: Space, root: Node, i: int, squared_radius: float) -> list[int]:
    """Return the rows of the cover of row i's neighbourhood, in tree order."""
    nodes = [root]
    while True:
        finer: list[Node] = []
        for node in nodes:
            if not node.halves or bounds(space, node, i)[1] <= squared_radius:
                finer.append(node)
            else:
                finer += [half for half in node.halves if bounds(space, half, i)[0] <= squared_radius]
        if len(finer) > MOST_COVER_NODES or finer == nodes:
            return [j for node in nodes for j in node.rows]
        nodes = finer


# -------------------------------------------------------------------------------------------- draws


def bounded(bound: int, first: int | None, words: Words, i: int, used: list[int]) -> int:
    """Return a uniform integer below `bound` (Lemire 2019, algorithm 5), from `first` and stream (i, 2)."""

    def next_word() -> int:
        used[0] += 1
        return words.word((i, 2), used[0] - 1)

    product = (next_word() if first is None else first) * bound
    while product % 2**32 < (2**32 - bound) % bound:
        product = next_word() * bound
    return product >> 32


def own_sample(n: int, i: int, m: int, words: Words, identity: int) -> list[int]:
    """Draw m of n rows other than i, one by one; or the rows to leave out, if they are fewer."""
    others = [j for j in range(n) if j != i]
    is_taken = 2 * m <= len(others)
    used = [0]
    drawn: set[int] = set()
    while len(drawn) < (m if is_taken else len(others) - m):
        drawn.add(others[bounded(len(others), None, words, identity, used)])
    return sorted(drawn if is_taken else set(others) - drawn)


def pairs(members: list[int], m: int, part: int, words: Words) -> dict[int, list[int]]:
    """Draw floor(n m / 2) distinct pairs one by one, or those to leave out; return each row's candidates."""
    n = len(members)
    all_pairs = n * (n - 1) // 2
    wanted = min(n * m // 2, all_pairs)
    is_taken = 2 * wanted <= all_pairs
    drawn: set[tuple[int, int]] = set()
    draw = 0
    while len(drawn) < (wanted if is_taken else all_pairs - wanted):
        one, other = (
            words.word((part, 3), 2 * draw + place) * bound for place, bound in enumerate((n, n - 1))
        )
        draw += 1
        if one % 2**32 >= 2**32 % n and other % 2**32 >= 2**32 % (n - 1):  # neither is rejected
            one, other = one >> 32, other >> 32
            other += other >= one
            drawn.add((min(one, other), max(one, other)))
    return {
        members[i]: [members[j] for j in range(n) if j != i and ((min(i, j), max(i, j)) in drawn) == is_taken]
        for i in range(n)
    }


Searched = tuple[list[int], list[int], bool]
"""Rows, their candidates, and whether neighbourhoods are listed whatever their size."""


def sampled(
    members: list[int], params: RwnParams, method: str, part: int, words: Words, short: list[int]
) -> list[Searched]:
    """Return the rows of a part, or of the table; rows with few or no candidates are added to `short`."""
    n, m, k = len(members), params.sample_size, params.k
    if method == "sample" and m < n:
        order = random_order(list(range(n)), part, words)
        return [(members, [members[place] for place in sorted(order[:m])], False)]
    if method == "own_sample" and m < n - 1:
        return [
            ([i], [members[j] for j in own_sample(n, place, m, words, i)], True)
            for place, i in enumerate(members)
        ]
    if method == "pairs" and m < n - 1:
        candidates = pairs(members, m, part, words)
        for place, i in enumerate(members):
            if not candidates[i]:
                short[1] += 1
                own = own_sample(n, place, min(k, n - 1), words, i)
                candidates[i] = [members[j] for j in own]
            elif len(candidates[i]) < k:
                short[0] += 1
        return [([i], candidates[i], True) for i in members]
    if method == "pairs" and n - 1 < k:
        short[0] += n
    return [(members, members, False)]


def parts(
    n: int, params: RwnParams, seed: bytes, revision: int, short: list[int] | None = None
) -> list[Searched]:
    """Return all rows of the table, part by part."""
    short = [0, 0] if short is None else short
    everyone = list(range(n))
    words = Words(derive_key(seed, "RWN", revision, "neighbours"))
    if params.neighbours != "partition":
        return sampled(everyone, params, params.neighbours, 0, words, short)
    order = random_order(everyone, 0, words)
    u = params.parts
    cut = [sorted(order[n * part // u : n * (part + 1) // u]) for part in range(u)]
    within = Words(derive_key(seed, "RWN", revision, "within"))
    return [
        searched
        for part, members in enumerate(cut)
        for searched in sampled(members, params, params.within, part, within, short)
    ]


def swap(table: Table, params: RwnParams, seed: bytes, revision: int) -> Outcome:
    """Replace values by those of random neighbours."""
    n = row_count(table)
    out = Outcome({name: list(values) for name, values in table.items()})
    points = space(table, params)
    keys = {name: derive_key(seed, "RWN", revision, f"donor/{name}") for name in params.perturb_fields}
    words = {name: Words(key) for name, key in keys.items()}
    donors = {name: list(range(n)) for name in params.perturb_fields}
    sizes = [0] * n
    short = [0, 0]
    for queried, candidates, is_listed in parts(n, params, seed, revision, short) if n else []:
        listed = n if is_listed else MOST_LISTED
        root = None if is_listed else tree(points, candidates)
        for i in queried:
            d2 = distances(points, i, candidates)
            N = neighbourhood(d2, params)
            sizes[i] = len(N)
            cover_rows: list[int] = []
            if root is not None and len(N) > listed:
                cover_rows = cover(points, root, i, squared_radius(d2, params))
            for name in params.perturb_fields:
                used = [0]
                if len(N) <= listed:
                    t = bounded(len(N), words[name].word((0, 0), i), words[name], i, used)
                    donors[name][i] = N[t]
                    continue
                members = set(N)
                while True:
                    j = cover_rows[bounded(len(cover_rows), None, words[name], i, used)]
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
        changed = set(differing(table[name], out.table[name]))
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
    count_every = max(1, -(-n // COUNTED_ROWS)) if params.epsilon > 0 else 1
    shown = sizes[::count_every]
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
    if "pairs" in (params.neighbours, params.within):
        out.provider |= {"rows_below_k": short[0], "rows_without_pair": short[1]}
    return out


def is_nominal(values: list[Any]) -> bool:
    """Whether values are nominal: text, bytes, booleans, or all missing."""
    present = [value for value in values if value is not None]
    return not present or isinstance(present[0], str | bytes | bool)
