"""RWN in process, compared with three libraries' trees in the same search for donors.

Every field is replaced, k = 10. The competitors scale, search, draw one of the neighbours for each field, and
gather; the provider also detects ties, excludes a row from its own neighbours by its index, counts changes,
and keeps its draws addressed. scipy and pykdtree are asked for k + 1 neighbours without the first, which
among equal rows need not be the row itself: `tests/property/test_rwn.py` has the case.

A second line has the search for donors alone, on points that are already scaled. The competitors build a tree
and query it; the provider builds one, searches, detects ties and draws a donor for every field. That excludes
the scaling, the gathers and, for the provider, the counts of the report.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
from pykdtree.kdtree import KDTree
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from benchmarks.harness import Work, in_turn, table
from providers import PROVIDERS
from providers.neighbours.candidates import CandidateRows, OrderKeys, draw_from_candidates
from providers.neighbours.donors import MOST_COVER_NODES, MOST_LISTED, NeighbourRule
from providers.neighbours.points import encode
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream

K = 10
GOAL = 0.5
"""Maximum fraction of the fastest competitor's time."""
SIZES = ((100_000, 6), (1_000_000, 4))
_MORE_OFTEN = 4  # rounds of svcensus, which takes hundredths of a second

Matrix = npt.NDArray[np.float64]


def points_table(rows: int, fields: int) -> pa.Table:
    """Create numbers like a census: some correlated, some skewed, some integers."""
    generator = np.random.default_rng(rows)
    age = generator.integers(18, 70, rows) + generator.random(rows)
    columns = {
        "age": age,
        "wage": np.maximum(0, generator.normal(1500 * age, 30_000)),
        "weeks": np.minimum(52, generator.poisson(45, rows)) + generator.random(rows),
        "hours": generator.normal(40, 8, rows),
        "wealth": generator.lognormal(10, 1, rows),
        "height": generator.normal(170, 10, rows),
    }
    return pa.table(dict(list(columns.items())[:fields]))


def census() -> pa.Table | None:
    """Return svcensus with its categories as numbers for the competitors; None if it is not available."""
    path = Path(os.environ.get("ROWVEIL_DATA", "../shared/data")) / "svcensus.csv"
    if not path.is_file():
        return None
    source = pyarrow.csv.read_csv(path)
    for at, name in enumerate(source.column_names):
        if name in ("educ", "gender"):
            codes = source[name].combine_chunks().dictionary_encode().indices
            source = source.set_column(at, name, codes.cast(pa.int64()))
    return source


def _matrix(source: pa.Table) -> Matrix:
    return np.column_stack([column.to_numpy().astype(np.float64) for column in source.columns])


def _scaled(values: Matrix) -> Matrix:
    low = values.min(axis=0)
    points: Matrix = (values - low) / (values.max(axis=0) - low)
    return points


def _searches() -> dict[str, Callable[[Matrix], npt.NDArray[Any]]]:
    """Return the competitors' searches for the k nearest neighbours of some points."""

    def scipy(points: Matrix) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = cKDTree(points).query(points, k=K + 1, workers=-1)[1][:, 1:]
        return found

    def scikit_learn(points: Matrix) -> npt.NDArray[Any]:
        search = NearestNeighbors(n_neighbors=K, algorithm="kd_tree", n_jobs=-1).fit(points)
        found: npt.NDArray[Any] = search.kneighbors(return_distance=False)
        return found

    def pykdtree(points: Matrix) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = KDTree(points, leafsize=16).query(points, k=K + 1)[1][:, 1:]
        return found

    return {"scipy": scipy, "scikit-learn": scikit_learn, "pykdtree": pykdtree}


def _peers(source: pa.Table) -> dict[str, Work]:
    values = _matrix(source)
    rows, fields = values.shape
    generator = np.random.default_rng(1)

    def moved(neighbours: npt.NDArray[Any]) -> object:
        everyone = np.arange(rows)
        return [values[neighbours[everyone, generator.integers(0, K, rows)], at] for at in range(fields)]

    def work(search: Callable[[Matrix], npt.NDArray[Any]]) -> Work:
        return lambda: moved(search(_scaled(values)))

    return {name: work(search) for name, search in _searches().items()}


def _donor_searches(source: pa.Table) -> dict[str, Work]:
    """Return the search for donors alone: the provider's and the competitors'."""
    values = _scaled(_matrix(source))
    points = encode(source, source.column_names)
    rule = NeighbourRule(K, 0.0, True, 1, MOST_LISTED, MOST_COVER_NODES)
    keys = [_stream().key(f"donor/{name}") for name in source.column_names]

    def work(search: Callable[[Matrix], npt.NDArray[Any]]) -> Work:
        return lambda: search(values)

    exact, order = CandidateRows("exact", 0), OrderKeys.of(_stream())
    mine = {"rowveil": lambda: draw_from_candidates(points, exact, order, rule, keys, no_progress)}
    return mine | {name: work(search) for name, search in _searches().items()}


def _stream() -> Stream:
    return PROVIDERS["RWN"].stream(bytes(31) + b"\x07")


def swap_work(source: pa.Table, **parameters: Any) -> Work:
    """Return the provider's complete work on the table, as in a job."""
    provider = PROVIDERS["RWN"]
    params = provider.check(provider.params.model_validate({"k": K, **parameters}), source.schema)
    return lambda: provider.swap(source, params, _stream(), no_progress)


def measure(rounds: int = 5) -> str:
    """Return the comparison at each size as Markdown."""
    sources = {f"{rows:,} x {fields}": points_table(rows, fields) for rows, fields in SIZES}
    people = census()
    if people is not None:
        sources = {f"svcensus, {people.num_rows:,} x {people.num_columns}": people} | sources
    lines = []
    contests: dict[str, Callable[[], dict[str, Work]]] = {}
    for name, source in sources.items():
        contests[name] = partial(lambda table: {"rowveil": swap_work(table), **_peers(table)}, source)
        contests[f"{name}, donors alone"] = partial(_donor_searches, source)
    for name, contenders in contests.items():
        timings = in_turn(contenders(), _MORE_OFTEN * rounds if name.startswith("svcensus") else rounds)
        mine = timings.pop("rowveil")
        line = [name, f"{mine.median:.3f}"]
        for timing in timings.values():
            line += [f"{timing.median:.3f}", f"{mine.ratio_to(timing):.2f}"]
        worst = max(mine.ratio_to(timing) for timing in timings.values())
        line += [f"{GOAL:g}", "met" if worst <= GOAL else "MISSED"]
        lines.append(line)
        print(f"  RWN {name}: {mine.median:.3f} s, {worst:.2f} of the fastest peer", flush=True)
    header = ["RWN, k = 10", "rowveil s", "scipy s", "ratio", "scikit-learn s", "ratio", "pykdtree s"]
    values = _matrix(sources[next(reversed(sources))])
    floor = in_turn({"copy": lambda: values.copy()}, rounds)["copy"].median
    note = f"Copying the largest table's values, which no method can undercut, takes {floor:.3f} s."
    return f"### RWN\n\n{table([*header, 'ratio', 'goal', ''], lines)}\n\n{note}\n"
