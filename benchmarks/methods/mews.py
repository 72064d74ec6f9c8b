"""MEWS in process, compared with the nearest operations of numpy and polars, and with a copy of the table.

Four of eight float64 fields move together within cells of a grid. The competitors find the same cells and
shuffle the rows of each, four fields together; singleton rows stay in place. The provider also merges
singletons, counts changes, reports the bins and keeps its randomness addressed, and is timed with all of
that.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from benchmarks.harness import Work, in_turn, table
from benchmarks.methods.kernels import swap_work

SWAPPED = ("a", "b", "c", "d")
CELLS = 10
GOAL = 0.5
"""Maximum fraction of the faster competitor's time."""


def people_table(rows: int) -> pa.Table:
    """Create eight float64 fields: two correlated normals, a third one, and uniforms."""
    random = np.random.default_rng(rows)
    first = random.normal(size=rows)
    columns = {"a": first, "b": 0.6 * first + 0.8 * random.normal(size=rows), "c": random.normal(size=rows)}
    return pa.table(columns | {name: random.random(rows) for name in "defgh"})


def _numpy_peer(columns: dict[str, npt.NDArray[Any]]) -> Work:
    random = np.random.default_rng(1)

    def work() -> object:
        cell = np.zeros(len(columns["a"]), np.int64)
        for name in SWAPPED:
            values = columns[name]
            low = values.min()
            width = (values.max() - low) / CELLS
            cell = cell * CELLS + np.minimum((values - low) // width, CELLS - 1).astype(np.int64)
        by_cell = np.argsort(cell, kind="stable")
        shuffled = np.lexsort((random.random(len(cell)), cell))
        moved = {}
        for name in SWAPPED:
            moved[name] = np.empty_like(columns[name])
            moved[name][by_cell] = columns[name][shuffled]
        return moved

    return work


def _polars_peer(frame: pl.DataFrame) -> Work:
    def cell(name: str) -> pl.Expr:
        field = pl.col(name)
        width = (field.max() - field.min()) / CELLS
        return ((field - field.min()) / width).floor().clip(upper_bound=CELLS - 1).cast(pl.Int64)

    number = cell(SWAPPED[0])
    for name in SWAPPED[1:]:
        number = number * CELLS + cell(name)

    def work() -> object:
        framed = frame.with_columns(number.alias("cell"))
        return framed.with_columns(pl.struct(SWAPPED).shuffle(seed=1).over("cell").alias("moved")).select(
            pl.col("moved").struct.unnest(), *"efgh"
        )

    return work


def measure(rows: int, rounds: int) -> str:
    """Return the comparison at one size as Markdown."""
    source = people_table(rows)
    columns = {name: source[name].to_numpy() for name in source.column_names}
    contenders: dict[str, Work] = {
        "rowveil, 10 cells a field": swap_work(source, "MEWS", {"swap_fields": SWAPPED, "bins": CELLS}),
        "polars, the same cells": _polars_peer(pl.DataFrame(columns)),
        "numpy, the same cells": _numpy_peer(columns),
        "rowveil, wanted degree 5000": swap_work(source, "MEWS", {"swap_fields": SWAPPED, "degree": 5000}),
        "copying the table": lambda: [values.copy() for values in columns.values()],
        "copying the swapped fields": lambda: [columns[name].copy() for name in SWAPPED],
    }
    timings = in_turn(contenders, rounds)
    ours, *others = timings.values()
    lines = [[ours.name, f"{ours.median:.3f}", ""]]
    lines += [[other.name, f"{other.median:.3f}", f"{ours.ratio_to(other):.2f}"] for other in others]
    faster = min(others[:2], key=lambda peer: peer.median)
    ratio = ours.ratio_to(faster)
    verdict = "met" if ratio <= GOAL else "MISSED"
    print(f"  MEWS: {ours.median:.3f} s, {ratio:.2f} of {faster.name}", flush=True)
    goal = f"\nGoal: {GOAL:g} of the faster peer's time; {ratio:.2f}, {verdict}.\n"
    return f"### MEWS, {rows:,} rows\n\n{table(['', 's', 'ours by it'], lines)}\n{goal}"
