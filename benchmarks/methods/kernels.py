"""DSWAP, CDSWAP and DDSWAP in process, compared with the nearest operation of polars, numpy and pandas.

Two of four float64 fields move. The other libraries only shuffle; the providers are timed including their
change counts, group report and addressed randomness. The one-liners are also not equivalent: polars'
``shuffle(seed).over(group)`` applies one permutation to every group of the same size, and moves two fields of
one seed together; `tests/property/test_invariance.py` shows both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa

from benchmarks.harness import Work, in_turn, table
from providers import PROVIDERS
from providers.grouping.groups import Groups
from providers.grouping.shuffle import shuffle_groups
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.swapping.exchange import exchange

SWAPPED = ("a", "b")
SEED = bytes(31) + b"\x07"
_TOUCHED = 4
"""Memory to touch, relative to the source's bytes: about the maximum use of any contender."""


@dataclass(frozen=True, slots=True)
class Case:
    """One provider with one set of parameters, its competitors, and the goal relative to polars."""

    name: str
    service: str
    parameters: dict[str, Any]
    goal: float
    peers: dict[str, Work]


def people_table(rows: int) -> pa.Table:
    """Create four float64 fields, class fields of 100 and 10 000 classes, and a float64 control field."""
    generator = np.random.default_rng(rows)
    columns: dict[str, npt.NDArray[Any]] = {name: generator.random(rows) for name in "abcd"}
    columns["class100"] = generator.integers(0, 100, rows)
    columns["class10000"] = generator.integers(0, 10_000, rows)
    columns["age"] = generator.random(rows) * 80
    return pa.table(columns)


def _numpy_peers(columns: dict[str, npt.NDArray[Any]]) -> dict[str, Work]:
    rows = len(columns["a"])
    generator = np.random.default_rng(1)

    def unlocked() -> object:
        return [columns[name][generator.permutation(rows)] for name in SWAPPED]

    def locked() -> object:
        order = generator.permutation(rows)
        return [columns[name][order] for name in SWAPPED]

    def within(groups: npt.NDArray[Any]) -> object:
        moved = []
        by_group = np.argsort(groups, kind="stable")
        for name in SWAPPED:
            shuffled = np.lexsort((generator.random(rows), groups))
            out = np.empty_like(columns[name])
            out[by_group] = columns[name][shuffled]
            moved.append(out)
        return moved

    def blocks(size: int) -> object:
        ranks = np.empty(rows, np.int64)
        ranks[np.argsort(columns["age"], kind="stable")] = np.arange(rows)
        return within(ranks // size)

    return {
        "unlocked": unlocked,
        "locked": locked,
        "class100": lambda: within(columns["class100"]),
        "class10000": lambda: within(columns["class10000"]),
        "10": lambda: blocks(10),
        "100": lambda: blocks(100),
    }


def _polars_peers(frame: pl.DataFrame) -> dict[str, Work]:
    shuffled = [pl.col(name).shuffle(seed=seed) for seed, name in enumerate(SWAPPED)]

    def within(group: str) -> object:
        return frame.with_columns(expression.over(group) for expression in shuffled)

    def blocks(size: int) -> object:
        block = ((pl.col("age").rank("ordinal") - 1) // size).alias("block")
        return frame.with_columns(block).with_columns(expression.over("block") for expression in shuffled)

    def locked() -> object:
        moved = frame.select(SWAPPED).sample(fraction=1.0, shuffle=True, seed=1)
        return frame.with_columns(moved.get_columns())

    return {
        "unlocked": lambda: frame.with_columns(shuffled),
        "locked": locked,
        "class100": lambda: within("class100"),
        "class10000": lambda: within("class10000"),
        "10": lambda: blocks(10),
        "100": lambda: blocks(100),
    }


def _pandas_peers(frame: pd.DataFrame) -> dict[str, Work]:
    fields = list(SWAPPED)

    def within(groups: "pd.Series[Any]") -> object:
        moved = []
        for seed, name in enumerate(fields):
            sampled = frame[name].groupby(groups).sample(frac=1, random_state=seed)
            moved.append((groups.sort_values(kind="stable").index, sampled.to_numpy()))
        return moved

    def blocks(size: int) -> object:
        return within((frame["age"].rank(method="first").astype("int64") - 1) // size)

    return {
        "unlocked": lambda: [frame[name].sample(frac=1, random_state=1).to_numpy() for name in fields],
        "locked": lambda: frame[fields].sample(frac=1, random_state=1).to_numpy(),
        "class100": lambda: within(frame["class100"]),
        "class10000": lambda: within(frame["class10000"]),
        "10": lambda: blocks(10),
        "100": lambda: blocks(100),
    }


def cases(source: pa.Table) -> Iterator[Case]:
    """Yield the comparisons."""
    columns = {name: source[name].to_numpy() for name in source.column_names}
    peers = {
        "polars": _polars_peers(pl.DataFrame(columns)),
        "numpy": _numpy_peers(columns),
    }
    peers["pandas"] = _pandas_peers(pd.DataFrame(columns, copy=False))

    def case(name: str, service: str, goal: float, key: str, **parameters: Any) -> Case:
        against = {peer: works[key] for peer, works in peers.items()}
        return Case(name, service, {"swap_fields": SWAPPED, **parameters}, goal, against)

    yield case("DSWAP unlocked", "DSWAP", 0.5, "unlocked")
    yield case("DSWAP locked", "DSWAP", 1.0, "locked", locked=True)
    for classes in ("class100", "class10000"):
        yield case(f"CDSWAP {classes[5:]} classes", "CDSWAP", 0.5, classes, control_field=classes)
    for size in (10, 100):
        yield case(
            f"DDSWAP blocks of {size}", "DDSWAP", 0.25, str(size), control_field="age", block_size=size
        )


def swap_work(source: pa.Table, service: str, parameters: dict[str, Any]) -> Work:
    """Return the provider's complete work on the table, as in a job: swap, counts and report."""
    provider = PROVIDERS[service]
    checked = provider.check(provider.params.model_validate(parameters), source.schema)
    stream = provider.stream(SEED)
    return lambda: provider.swap(source, checked, stream, no_progress)


def _floors(source: pa.Table) -> dict[str, Work]:
    """Return lower bounds of any swap: copying, and reading in random order."""
    values = source["a"].to_numpy()
    rows = len(values)
    order = np.random.default_rng(3).permutation(rows).astype(np.int32)
    whole = Groups(
        rows, np.arange(rows, dtype=np.int32), np.array([0, rows], np.int64), np.zeros(1, np.uint64)
    )
    key = Stream(SEED, "DSWAP", 1).key("benchmark")
    pairing = shuffle_groups(whole, key, 1.0)
    return {
        "copy a field": lambda: values.copy(),
        "gather a field (numpy, one core)": lambda: values[order],
        "our random order of all rows": lambda: shuffle_groups(whole, key, 1.0),
        "our exchange of a field": lambda: exchange(values, pairing),
    }


def measure(rows: int, rounds: int, wanted: Sequence[str] = ("",)) -> str:
    """Return the comparison at one size as Markdown, for cases whose names contain one of `wanted`."""
    source = people_table(rows)
    lines = []
    for case in cases(source):
        if not any(word in case.name for word in wanted):
            continue
        ours = swap_work(source, case.service, case.parameters)
        timings = in_turn({"rowveil": ours, **case.peers}, rounds, memory=_TOUCHED * source.nbytes)
        mine = timings["rowveil"]
        ratio = mine.ratio_to(timings["polars"])
        line = [case.name, f"{mine.median:.3f}"]
        for peer in ("polars", "numpy", "pandas"):
            there = peer in timings
            line.append(f"{timings[peer].median:.3f}" if there else "-")
            line.append(f"{mine.ratio_to(timings[peer]):.2f}" if there else "-")
        line += [f"{case.goal:g}", "met" if ratio <= case.goal else "MISSED"]
        lines.append(line)
        print(f"  {case.name}: {mine.median:.3f} s, {ratio:.2f} of polars", flush=True)
    header = ["", "rowveil s", "polars s", "ratio", "numpy s", "ratio", "pandas s", "ratio"]
    comparison = table([*header, "goal", "polars goal"], lines)
    floors = in_turn(_floors(source), rounds)
    floor = table(["floor", "s"], [[name, f"{timing.median:.4f}"] for name, timing in floors.items()])
    return f"### {rows:,} rows\n\n{comparison}\n\n{floor}\n"
