"""RWN, rank swapping and microaggregation compared on bodyfat: 9.4, Table 3, Figures 9 to 14."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.papers.experiments import Cell, Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.peers.mdav import microaggregate
from benchmarks.papers.peers.rank_swapping import rank_swap
from benchmarks.papers.runs import Matrix, matrix, swap, table_of
from benchmarks.papers.rwn import statistics
from benchmarks.papers.rwn.bodyfat import cleaned, regressors
from providers.measures.risk.interval_rmd import interval_rmd

INDICES = range(1, 16)
EPSILON = {index: round(0.20 + 0.05 * index, 2) for index in INDICES}
REACH = {index: round(0.09 + 0.03 * index, 2) for index in INDICES}
SIZE = {index: index + 1 for index in INDICES}
"""Table 3: RWN's epsilon, rank swapping's P and size of a cluster, by index of the tuning parameter."""
PARAMETERS: dict[str, Mapping[int, float]] = {
    "RWN": EPSILON, "rank swapping": REACH, "microaggregation": SIZE
}  # fmt: skip
RUNS = 100
"""Releases of RWN and of rank swapping for each index."""
ROBUST_RUNS = 5
"""Releases of which the robust intervals are measured."""
METHODS = ("RWN", "rank swapping", "microaggregation")
EQUAL = 0.15
"""Relative difference of DCR up to which methods count as comparable."""


class Measures(NamedTuple):
    """Measures of one release."""

    dcr: float
    dcr_ranks: float
    pscr: float
    pscr_ranks: float
    interval_sd: float
    interval_ranks: float
    il1: float
    signed: float
    il2_first: float
    il2_second: float
    il3: float
    r_squared: float


COLUMNS = (
    "DCR", "DCR of ranks", "PSCR", "PSCR of ranks", "SD interval", "rank interval", "IL1",
    "change of abs(correlation)", "IL2, PC1", "IL2, PC2", "IL3", "R squared",
)  # fmt: skip


def measured(source: Matrix, destination: Matrix, fields: list[str]) -> Measures:
    """Measure a release.

    PSCR takes distances of fields scaled by the source's ranges; DCR takes those of the values themselves,
    as 9.4 does; both again with each value replaced by its rank.
    """
    low, span = source.min(axis=0), np.ptp(source, axis=0)
    before, after = statistics.ranks(source, source), statistics.ranks(destination, source)
    correlations = statistics.upper_correlations(source)
    changed = statistics.upper_correlations(destination)
    fit = statistics.standardised_fit(*regressors(source, fields))
    again = statistics.standardised_fit(*regressors(destination, fields))
    first, second = statistics.loading_changes(source, destination)
    return Measures(
        float(statistics.closest_distances(source, destination).mean()),
        float(statistics.closest_distances(before, after).mean()),
        statistics.self_closest((source - low) / span, (destination - low) / span),
        statistics.self_closest(before, after),
        statistics.within_deviations(source, destination),
        statistics.within_ranks(source, destination),
        float(np.abs(correlations - changed).mean()),
        float((np.abs(changed) - np.abs(correlations)).mean()),
        first,
        second,
        float(np.abs(fit.coefficients - again.coefficients).mean()),
        again.r_squared,
    )


def releases(source: Matrix, fields: list[str]) -> dict[str, Callable[[int, int], Matrix]]:
    """Return method -> function of the index of its tuning parameter and a seed, which makes a release."""
    table = table_of(source, fields)
    return {
        "RWN": lambda index, seed: matrix(
            swap("RWN", table, {"k": 5, "epsilon": EPSILON[index]}, seed).table
        ),
        "rank swapping": lambda index, seed: rank_swap(
            source, np.random.default_rng([index, seed]), reach=REACH[index]
        ),
        "microaggregation": lambda index, _: microaggregate(source, SIZE[index]),
    }


@functools.cache
def run(data: Data) -> Figures:
    """Measure every method at every index."""
    table = cleaned(data)
    source, fields = matrix(table), table.column_names
    rows: list[list[Cell]] = []
    for method, release in releases(source, fields).items():
        random = method != "microaggregation"
        for index in INDICES:
            made = [release(index, seed) for seed in range(RUNS if random else 1)]
            means = np.mean([measured(source, each, fields) for each in made], axis=0)
            robust = [interval_rmd(source, each)["own"] for each in made[:ROBUST_RUNS]]
            parameter = float(PARAMETERS[method][index])
            rows.append([method, index, parameter, *map(float, means), float(np.mean(robust))])
    columns = ("method", "index", "parameter", *COLUMNS, "robust interval")
    figures = Table("comparison", "Means of the releases of each tuning parameter (Table 3).", columns, rows)
    charts = [
        _chart(figures, "dcr", "DCR", "Figure 9: mean distance to the closest record", "DCR"),
        _chart(figures, "interval-sd", "SD interval", "Figure 10: interval disclosure", "share of rows"),
        _chart(figures, "interval-ranks", "rank interval", "9.1.6: rank intervals", "share of values"),
        _chart(figures, "il1", "IL1", "Figure 11: change of the correlations", "IL1"),
        _chart(
            figures,
            "signed",
            "change of abs(correlation)",
            "Figure 12: change of the strength of correlations",
            "mean change of abs(correlation)",
        ),
        _chart(figures, "il2-first", "IL2, PC1", "Figure 13: change of the first component", "IL2"),
        _chart(figures, "il2-second", "IL2, PC2", "Figure 13: change of the second component", "IL2"),
        _chart(figures, "il3", "IL3", "Figure 14: change of the coefficients", "IL3"),
        _chart(figures, "r-squared", "R squared", "Figure 14: R squared of the regression", "R squared"),
    ]
    return Figures([figures], charts)


def _chart(figures: Table, name: str, column: str, title: str, label: str) -> Chart:
    series = []
    for method in METHODS:
        part = figures.where(method=method)
        series.append(Series(method, part.column("index"), part.numbers(column)))
    return Chart(name, "line", title, "index of the tuning parameter", label, series)


def _by_method(figures: Figures, column: str) -> dict[str, Matrix]:
    table = figures.table("comparison")
    return {method: np.array(table.where(method=method).numbers(column)) for method in METHODS}


def judge_risk(figures: Figures) -> tuple[Verdict, str]:
    """Judge: equal DCR at the indices 3 to 7, and there a lower risk of RWN by intervals of deviations."""
    dcr, near = _by_method(figures, "DCR"), _by_method(figures, "SD interval")
    middle = slice(2, 7)
    spread = max(float(np.abs(dcr[method][middle] / dcr["RWN"][middle] - 1).max()) for method in METHODS[1:])
    lower = all(bool((near["RWN"][middle] < near[method][middle]).all()) for method in METHODS[1:])
    robust = {method: float(values[middle].mean()) for method, values in
              _by_method(figures, "robust interval").items()}  # fmt: skip
    pscr = {method: float(values[middle].mean()) for method, values in _by_method(figures, "PSCR").items()}
    reason = (
        f"At the indices 3 to 7 the mean DCR of the other methods differs from that of RWN by at most "
        f"{100 * spread:.0f} %, and intervals of one deviation hold {_percents(near, middle)}. Robust "
        "intervals hold "
        f"{_list(robust)}, and the closest record is the row's own for {_list(pscr)}."
    )
    return ("reproduced" if spread <= EQUAL and lower else "differs"), reason


def _percents(values: dict[str, Matrix], part: slice) -> str:
    return _list({method: float(each[part].mean()) for method, each in values.items()})


def _list(shares: dict[str, float]) -> str:
    return ", ".join(f"{100 * share:.1f} % ({method})" for method, share in shares.items())


def at_equal_dcr(figures: Figures, column: str, dcr: Sequence[float] | Matrix) -> dict[str, Matrix]:
    """Return a measure of each method at given distances to the closest record, between its releases."""
    table = figures.table("comparison")
    found = {}
    for method in METHODS:
        part = table.where(method=method)
        order = np.argsort(part.numbers("DCR"))
        known, values = np.array(part.numbers("DCR"))[order], np.array(part.numbers(column))[order]
        found[method] = np.interp(dcr, known, values)
    return found


def judge_utility(figures: Figures) -> tuple[Verdict, str]:
    """Judge by the conclusions of 9.4 about correlations, loadings, coefficients and R squared.

    Methods are compared at equal DCR, as the paper does with horizontal lines through its Figure 9: in the
    lower and in the upper third of the range of DCR that all three methods reach.
    """
    reach = _by_method(figures, "DCR").values()
    low, high = max(min(each) for each in reach), min(max(each) for each in reach)
    thirds = np.linspace(low, high, 31)
    lower, upper = slice(0, 11), slice(20, 31)
    il1, first, second, r_squared = (
        at_equal_dcr(figures, column, thirds) for column in ("IL1", "IL2, PC1", "IL2, PC2", "R squared")
    )
    signed, il3 = _by_method(figures, "change of abs(correlation)"), _by_method(figures, "IL3")
    by_index = _by_method(figures, "R squared")
    rwn, ranked, clustered = METHODS
    apart = {
        name: float(np.mean(np.ptp(list(each.values()), axis=0)))
        for name, each in (("first", first), ("second", second))
    }
    held = {
        "at low DCR RWN and rank swapping change correlations less than microaggregation": max(
            il1[rwn][lower].mean(), il1[ranked][lower].mean()
        )
        < il1[clustered][lower].mean(),
        "at high DCR microaggregation changes them least": il1[clustered][upper].mean()
        < min(il1[rwn][upper].mean(), il1[ranked][upper].mean()),
        "RWN and rank swapping weaken correlations the more is perturbed, and microaggregation strengthens "
        "them": (
            signed[rwn][-1] < min(0, signed[rwn][0])
            and signed[ranked][-1] < min(0, signed[ranked][0])
            and signed[clustered][-1] > max(0, signed[clustered][0])
        ),
        "the methods change the first component alike (a fifth of the differences in the second)": apart[
            "first"
        ]
        < apart["second"] / 5,
        "at high DCR RWN changes the second component most": second[rwn][upper].mean()
        > max(second[ranked][upper].mean(), second[clustered][upper].mean()),
        "RWN and rank swapping change coefficients alike (within a quarter)": abs(
            il3[rwn].mean() / il3[ranked].mean() - 1
        )
        <= 0.25,
        "R squared falls with RWN and rank swapping, and rises with microaggregation": (
            by_index[rwn][-1] < by_index[rwn][0]
            and by_index[ranked][-1] < by_index[ranked][0]
            and by_index[clustered][-1] > by_index[clustered][0]
        ),
        "R squared is alike with RWN and rank swapping at low DCR (0.1), and lower with RWN at high": (
            abs(r_squared[rwn][lower].mean() - r_squared[ranked][lower].mean()) <= 0.1
            and r_squared[rwn][upper].mean() < r_squared[ranked][upper].mean()
        ),
    }
    kept, lost = ([text for text, holds in held.items() if bool(holds) is wanted] for wanted in (True, False))
    reason = f"Of {len(held)} conclusions {len(kept)} hold: {'; '.join(kept) or 'none'}."
    if lost:
        reason += f" Not so: {'; '.join(lost)}."
    reason += (
        f" All three methods reach a DCR of {low:.1f} to {high:.1f}. IL1 in the lower third of it: "
        f"{_means(il1, lower)}; in the upper third: {_means(il1, upper)}."
    )
    return ("differs" if lost else "reproduced"), reason


def _means(values: dict[str, Matrix], part: slice) -> str:
    return ", ".join(f"{each[part].mean():.3f} ({method})" for method, each in values.items())


_SETTING = (
    "bodyfat, 241 men; RWN with k = 5 and the epsilons of Table 3, rank swapping and MDAV microaggregation "
    "as "
    f"plain peers; {RUNS} releases of each random method, and {ROBUST_RUNS} for the robust intervals."
)


def risks(data: Data) -> Figures:
    """Measure the risks."""
    figures = run(data)
    columns = (*COLUMNS[:6], "robust interval")
    return Figures([_with_columns(figures.tables[0], columns)], figures.charts[:3])


def losses(data: Data) -> Figures:
    """Measure the losses of information, on the releases of `risks`."""
    figures = run(data)
    return Figures([_with_columns(figures.tables[0], ("DCR", *COLUMNS[6:]))], figures.charts[3:])


def _with_columns(table: Table, columns: Sequence[str]) -> Table:
    kept = ("method", "index", "parameter", *columns)
    rows = list(zip(*(table.column(name) for name in kept), strict=True))
    return Table(table.name, table.caption, kept, rows)


RISK = Experiment(
    "figure-9",
    "Figures 9 and 10, Table 3",
    "risk of RWN, rank swapping and microaggregation",
    ("RWN",),
    "at equal distances to the closest record RWN discloses fewer intervals than rank swapping and "
    "microaggregation",
    _SETTING,
    risks,
    judge_risk,
)
UTILITY = Experiment(
    "figure-11",
    "Figures 11 to 14",
    "information lost by RWN, rank swapping and microaggregation",
    ("RWN",),
    "RWN keeps correlations and coefficients about as well as rank swapping, and both better than "
    "microaggregation "
    "as long as little is perturbed",
    _SETTING,
    losses,
    judge_utility,
)
