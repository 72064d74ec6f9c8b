"""Options for rows at risk, survey weights, households and checks on two public tables, over several seeds.

``python -m benchmarks.choosing FOLDER`` prints the tables of docs/choosing.md; the folder has adult.csv and
testdata.csv. Each figure is the mean of ten seeds and their standard deviation.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.harness import table as markdown
from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.params import RiskSelection
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.swapping.row_risk import row_risk

SEEDS = 10

Figures = dict[str, float]
Case = tuple[str, str, dict[str, Any]]
"""Words, service and parameters."""


def run(service: str, table: pa.Table, parameters: dict[str, Any], seed: int) -> SwapResult:
    """Run a service on a table."""
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    stream = provider.stream(seed.to_bytes(32, "big"))
    return provider.swap(table, params, stream, no_progress)


def spread(values: list[float], digits: int) -> str:
    """Return mean and standard deviation of some values."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def rows_of(
    name: str, table: pa.Table, cases: list[Case], find: Callable[[SwapResult], Figures], digits: int
) -> Iterator[list[str]]:
    """Yield one line for each case: its figures over the seeds."""
    for words, service, parameters in cases:
        found = [find(run(service, table, parameters, seed)) for seed in range(SEEDS)]
        yield [name, words, *(spread([each[key] for each in found], digits) for key in found[0])]


def correlations(table: pa.Table, field: str) -> np.ndarray:
    """Correlations of a field with the other numeric fields."""
    numbers = sorted(
        each.name for each in table.schema if pa.types.is_primitive(each.type) and each.name != field
    )
    values = [table.column(name).to_numpy().astype(float) for name in [field, *numbers]]
    varied = [each for each in values if np.std(each) > 0]
    found: np.ndarray = np.corrcoef(varied)[0, 1:]
    return found


def moved_correlations(before: pa.Table, after: pa.Table, field: str) -> float:
    """Largest change of a correlation of the field."""
    return float(np.abs(correlations(after, field) - correlations(before, field)).max())


def differs(before: pa.Table, after: pa.Table, field: str) -> np.ndarray:
    """Mask of the rows whose value of a field differs."""
    found: np.ndarray = before.column(field).to_numpy() != after.column(field).to_numpy()
    return found


# ---------------------------------------------------------------------- rows at risk

KEYS = {"adult": ("age", "sex", "race", "marital-status"), "testdata": ("age", "sex", "relat", "urbrur")}
SECRET = {"adult": "hours-per-week", "testdata": "income"}


def by_risk(name: str, table: pa.Table) -> Iterator[list[str]]:
    """Selection by chance and by risk at one rate."""
    field, keys = SECRET[name], list(KEYS[name])
    required = row_risk(table, RiskSelection(key_fields=KEYS[name], k=3)).required
    risk = {"risk": {"key_fields": keys, "k": 3}}
    swap: dict[str, Any] = {"swap_fields": [field]}
    cases: list[Case] = [
        ("`rate` 0.1", "DSWAP", {**swap, "rate": 0.1}),
        ("`rate` 0.1, `risk`", "DSWAP", {**swap, "rate": 0.1, **risk}),
        ("`rate` 0.5", "DSWAP", {**swap, "rate": 0.5}),
        ("`rate` 1", "DSWAP", swap),
    ]

    def find(result: SwapResult) -> Figures:
        changed = differs(table, result.table, field)
        return {
            "kept at risk": 1 - changed[required].mean(),
            "changed": changed.mean(),
            "correlations": moved_correlations(table, result.table, field),
        }

    yield from rows_of(f"{name}, {required.mean():.1%} at risk", table, cases, find, 3)


# ---------------------------------------------------------------------- survey weights

WEIGHTED = {
    "adult": ("fnlwgt", "education", "hours-per-week"),
    "testdata": ("household_weights", "urbrur", "income"),
}
"""Table -> weight, domain and swap field."""


def by_weight(name: str, table: pa.Table) -> Iterator[list[str]]:
    """Swaps that ignore weights, respect them, or carry them along."""
    weight, domain, field = WEIGHTED[name]
    swap: dict[str, Any] = {"swap_fields": [field], "suppression": {"policy": "keep"}}
    quintiles = {"quantiles": 5}
    cases: list[Case] = [
        ("DSWAP", "DSWAP", swap),
        ("CDSWAP, weight classes", "CDSWAP", {**swap, "control_field": weight, "classifier": quintiles}),
        ("CDSWAP, domains", "CDSWAP", {**swap, "control_field": domain}),
        (
            "CDSWAP, both",
            "CDSWAP",
            {**swap, "control_field": [domain, weight], "classifier": ["identity", quintiles]},
        ),
        ("DDSWAP, blocks of 20 by weight", "DDSWAP", {**swap, "control_field": weight, "block_size": 20}),
        ("DSWAP, weights along", "DSWAP", {**swap, "swap_fields": [field, weight], "locked": True}),
    ]
    names = [weight, domain, field]
    options = MeasureOptions(weight_fields=(weight,), domain_fields=(domain,), only=("domain_totals",))

    def find(result: SwapResult) -> Figures:
        release = Release(table.select(names), result.table.select(names))
        totals = assess(release, options, Stream(bytes(32), "measures", 1)).measures["domain_totals"]["value"]
        return {
            "percent": totals["percent"],
            "errors": totals["change_in_errors"],
            "correlations": moved_correlations(table, result.table, field),
        }

    yield from rows_of(name, table, cases, find, 3)


# ---------------------------------------------------------------------- households, checks


def by_household(name: str, table: pa.Table) -> Iterator[list[str]]:
    """Swaps of the areas of a tenth of the rows, or of the households."""
    house, area = "ori_hid", "urbrur"
    _, place, counts = np.unique(table.column(house).to_numpy(), return_inverse=True, return_counts=True)
    table = table.append_column("size", pa.array(counts[place]))
    swap: dict[str, Any] = {"swap_fields": [area], "rate": 0.1, "suppression": {"policy": "keep"}}
    share = {"hierarchy": [area], "similar": [["size"]], "household": house, "swap_rate": 0.1}
    cases: list[Case] = [
        ("DSWAP of rows", "DSWAP", swap),
        ("CDSWAP of rows, by `sex` and `relat`", "CDSWAP", {**swap, "control_field": ["sex", "relat"]}),
        ("DSWAP, `household`", "DSWAP", {**swap, "household": house}),
        ("RSWAP, no obligations", "RSWAP", {**share, "k_anonymity": 0}),
        ("RSWAP, `k_anonymity` 2", "RSWAP", {**share, "risk_fields": ["sex", "age"], "k_anonymity": 2}),
    ]
    ids = table.column(house).to_numpy()

    def find(result: SwapResult) -> Figures:
        values = result.table.column(area).to_numpy().astype(float)
        households = np.unique(np.stack([ids, values]), axis=1)[0]  # once for each area of its members
        return {
            "changed": differs(table, result.table, area).mean(),
            "torn": (np.unique(households, return_counts=True)[1] > 1).mean(),
        }

    yield from rows_of(name, table, cases, find, 3)


CHECKED = {
    "adult": (
        "relationship",
        'sex == "Male" and relationship != "Wife" or sex == "Female" and relationship != "Husband"',
        "sex",
    ),
    "testdata": ("hhcivil", "age >= 18 or hhcivil == 1", "relat"),
}
"""Table -> swap field, check, and control field of classes within which the check mostly holds."""


def by_check(name: str, table: pa.Table) -> Iterator[list[str]]:
    """Rows that break a check after a swap, with and without a repair."""
    field, check, control = CHECKED[name]
    swap: dict[str, Any] = {"swap_fields": [field], "checks": [check]}
    cases: list[Case] = [
        ("DSWAP", "DSWAP", swap),
        ("DSWAP, `repair`", "DSWAP", {**swap, "on_broken": "repair"}),
        (f"CDSWAP by `{control}`", "CDSWAP", {**swap, "control_field": control}),
        (
            f"CDSWAP by `{control}`, `repair`",
            "CDSWAP",
            {**swap, "control_field": control, "on_broken": "repair"},
        ),
    ]
    broken = []

    def find(result: SwapResult) -> Figures:
        (found,) = result.provider["checks"]["by_check"].values()
        broken.append(found["before"] / table.num_rows)
        return {
            "broken": found["after"] / table.num_rows,
            "took part": result.summary.took_part / table.num_rows,
            "changed": differs(table, result.table, field).mean(),
        }

    lines = list(rows_of(name, table, cases, find, 4))
    for line in lines:
        yield [f"{name}, {broken[0]:.4f} broken in the source", *line[1:]]


TABLES: dict[str, tuple[list[str], Callable[[str, pa.Table], Iterator[list[str]]], tuple[str, ...]]] = {
    "risk": (
        ["table", "DSWAP", "kept at risk", "rows changed", "change of correlations"],
        by_risk,
        ("adult", "testdata"),
    ),
    "weights": (
        ["table", "swap", "totals, percent", "totals, in errors", "change of correlations"],
        by_weight,
        ("adult", "testdata"),
    ),
    "households": (["table", "swap", "rows changed", "households torn"], by_household, ("testdata",)),
    "checks": (
        ["table", "swap", "break the check", "took part", "rows changed"],
        by_check,
        ("adult", "testdata"),
    ),
}
"""Name -> header, figures, and tables."""


def tables(folder: Path, name: str, only: str = "") -> str:
    """Return one of the tables in Markdown; ``only``: the lines of this file alone."""
    header, find, files = TABLES[name]
    chosen = [file for file in files if only in ("", file)]
    lines = [line for file in chosen for line in find(file, pyarrow.csv.read_csv(folder / f"{file}.csv"))]
    return markdown(header, lines)


if __name__ == "__main__":
    for each in sys.argv[2:] or TABLES:
        print(f"{tables(Path(sys.argv[1]), each)}\n", flush=True)
