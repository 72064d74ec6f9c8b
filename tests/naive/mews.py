"""MEWS in plain Python: algorithm 2 of Li and Shen 2010, which cuts attributes into intervals of width t."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from providers.params import Suppression
from providers.services.mews import MewsParams
from tests.naive.bins import Bins, BinsOutcome, swap_in_bins
from tests.naive.swapping import Table

Cell = tuple[int, ...]
Cut = tuple[float, float, int]
"""Origin, width t (0 for a constant attribute), and the last interval m - 1."""


def cut_in(xs: list[float], m: int, origin: float) -> Cut:
    """Cut m intervals from the origin to the maximum."""
    if min(xs) == max(xs):
        return origin, 0.0, 0
    return origin, (max(xs) - origin) / m or 5e-324, m - 1


def interval(x: float, cut: Cut) -> int:
    """Interval of x: floor((x - lo) / t), clipped to m - 1."""
    lo, t, last = cut
    return 0 if t == 0 else min(math.floor((x - lo) / t), last)


def cell_of_rows(columns: list[list[float]], cuts: list[Cut]) -> list[Cell]:
    """Cell of every row."""
    intervals = []
    for xs, cut in zip(columns, cuts, strict=True):
        interval_of = {x: interval(x, cut) for x in set(xs)}
        intervals.append([interval_of[x] for x in xs])
    return list(zip(*intervals, strict=True))


def cells(columns: list[list[float]], cuts: list[Cut]) -> dict[Cell, list[int]]:
    """Rows of every cell that is not empty."""
    rows: dict[Cell, list[int]] = defaultdict(list)
    for row, cell in enumerate(cell_of_rows(columns, cuts)):
        rows[cell].append(row)
    return dict(sorted(rows.items()))


def m_of_degree(columns: list[list[float]], origins: list[float], d: int) -> int:
    """Try m = 1, 2, ... until d cells or more hold rows, or different rows are in different cells."""
    distinct = len(set(zip(*columns, strict=True)))
    best: tuple[int, int] | None = None
    m = 0
    while True:
        m += 1
        cuts = [cut_in(xs, m, lo) for xs, lo in zip(columns, origins, strict=True)]
        count = len(set(cell_of_rows(columns, cuts)))
        best = min(best or (abs(count - d), m), (abs(count - d), m))
        if count >= d or count == distinct:
            return best[1]


def standard_deviation(xs: list[float]) -> float:
    """Population standard deviation of values scaled to [0, 1], summed in blocks of 1024."""
    lo, hi = min(xs), max(xs)
    blocks = [xs[start : start + 1024] for start in range(0, len(xs), 1024)]

    def total(centre: float, power: int) -> float:
        sums = []
        for block in blocks:
            block_sum = 0.0
            for x in block:
                term = (x - lo) / (hi - lo) - centre
                block_sum += term * term if power == 2 else term
            sums.append(block_sum)
        return math.fsum(sums)

    mean = total(0.0, 1) / len(xs)
    return math.sqrt(total(mean, 2) / len(xs)) * (hi - lo)


def cuts_of(params: MewsParams, columns: list[list[float]]) -> list[Cut]:
    """Cut every attribute (line 1 of algorithm 2)."""

    def entry(given: Any, index: int) -> Any:
        return given[index] if isinstance(given, tuple) else given

    mins = [min(xs) for xs in columns]
    origins = (
        mins if params.origin is None else [entry(params.origin, index) for index in range(len(columns))]
    )
    if params.degree is not None:
        m = m_of_degree(columns, origins, params.degree)
        return [cut_in(xs, m, lo) for xs, lo in zip(columns, origins, strict=True)]
    if params.bins is not None:
        return [cut_in(xs, entry(params.bins, index), origins[index]) for index, xs in enumerate(columns)]
    cuts = []
    for index, xs in enumerate(columns):
        if min(xs) == max(xs):
            cuts.append((origins[index], 0.0, 0))
            continue
        t = entry(params.width, index)
        if params.scale == "range":
            t *= max(xs) - min(xs)
        elif params.scale == "sd":
            t *= standard_deviation(xs)
        cuts.append((origins[index], t, math.ceil((max(xs) - origins[index]) / t) - 1))
    return cuts


def merged(rows_of: dict[Cell, list[int]], columns: list[list[float]], cuts: list[Cut]) -> list[list[int]]:
    """Merge every singleton into the cell of two or more rows with the nearest mean."""
    in_widths = [[(x - lo) / t for x in xs] for xs, (lo, t, _) in zip(columns, cuts, strict=True) if t]
    large = {cell: rows for cell, rows in rows_of.items() if len(rows) > 1}
    means: dict[Cell, list[float]] = {}
    for cell, rows in large.items():
        means[cell] = []
        for us in in_widths:
            total = 0.0
            for row in rows:
                total += us[row]
            means[cell].append(total / len(rows))
    bins = {cell: list(rows) for cell, rows in large.items()}
    for rows in rows_of.values():
        if len(rows) == 1:
            distances = []
            for cell, mean in means.items():
                squared = 0.0
                for us, centre in zip(in_widths, mean, strict=True):
                    squared += (us[rows[0]] - centre) * (us[rows[0]] - centre)
                distances.append((squared, cell))
            bins[min(distances)[1]].append(rows[0])
    return list(bins.values())


def step(values: list[Any]) -> float:
    """Difference of adjacent values of a type with more digits than float64: 1, or 10^-scale; else 0."""
    known = next(value for value in values if value is not None)
    if isinstance(known, Decimal):
        exponent = known.as_tuple().exponent
        assert isinstance(exponent, int)
        return float(10.0**exponent)
    return float(isinstance(known, int))


def is_coarse(xs: list[float], t: float, difference: float) -> bool:
    """Whether float64 joins adjacent values, and its own step is above a thousandth of an interval."""
    ulp = math.ulp(max(map(abs, xs)))
    return 0 < difference < ulp and ulp > t / 1000


def make_bins(
    params: MewsParams, names: list[str], columns: list[list[float]], steps: Sequence[float] = ()
) -> Bins:
    """Allocate rows to cells (line 2 of algorithm 2), and merge singletons if the parameters say so."""
    cuts = cuts_of(params, columns)
    rows_of = cells(columns, cuts)
    singletons = sum(len(rows) == 1 for rows in rows_of.values())
    bins = list(rows_of.values())
    events = []
    if singletons and params.singletons == "merge":
        if singletons < len(rows_of):
            bins = merged(rows_of, columns, cuts)
        else:
            events.append("nothing_to_merge_into")
    coarse = map(is_coarse, columns, [cut[1] for cut in cuts], steps)
    events += ["coarse_numbers"] * sum(coarse)
    numbers = [[interval(x, cut) for x in (min(xs), max(xs))] for xs, cut in zip(columns, cuts, strict=True)]
    figures = {
        "partition_degree": len(rows_of),
        "minimal_depth": min(map(len, bins)),
        "singletons": singletons,
        "merged": sum(map(len, bins)) - sum(len(rows) for rows in rows_of.values() if len(rows) > 1)
        if len(bins) < len(rows_of)
        else 0,
        "cells": {
            name: cut[2] - first + 1 if cut[1] else 1
            for name, cut, (first, _) in zip(names, cuts, numbers, strict=True)
        },
        "widths": {name: cut[1] for name, cut in zip(names, cuts, strict=True)},
    }
    return Bins(bins, figures, events)


def swap(table: Table, params: MewsParams, seed: bytes, revision: int) -> BinsOutcome:
    """Exchange the attributes of S together within every cell."""
    return swap_in_bins(
        table,
        params,
        lambda names, columns: make_bins(params, names, columns, [step(table[name]) for name in names]),
        seed,
        "MEWS",
        revision,
        Suppression(policy="keep") if params.singletons == "keep" else params.suppression,
    )


def p_of(columns: list[list[float]], partitionings: int, widest: float) -> float | None:
    """P (lemma 2): the mean of 1/(N* - 1) over the minimal depths N* of the admissible partitionings.

    Partitionings with singletons, or cells wider than the share `widest` of the range, are not admissible.
    """
    depths = set()
    admissible = [m for m in range(1, 2 * partitionings + 1) if 1 / m <= widest][:partitionings]
    for m in admissible:
        cell_of_row = cell_of_rows(columns, [cut_in(xs, m, min(xs)) for xs in columns])
        depths.add(min(Counter(cell_of_row).values()))
    depths -= {1}
    return math.fsum(1 / (depth - 1) for depth in depths) / len(depths) if depths else None
