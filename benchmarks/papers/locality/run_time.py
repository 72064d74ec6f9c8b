"""Run time of LOCALITY: section 5.1, Figure 3."""

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.methods.locality import plain_walks
from benchmarks.papers.experiments import Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.locality.tables import census, synthetic
from benchmarks.papers.runs import matrix
from providers import PROVIDERS
from providers.localities.redraw import Batch
from providers.localities.segment_arrays import FOUND
from providers.localities.segments import batches_of
from providers.numba import get_num_threads
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.services.locality import LocalityParams, check, segmentation_of

SIZES = tuple(range(100, 1000, 100))
SHARES = tuple(share / 10 for share in range(1, 11))
ROWS = 9_000
STEPS = 4000
WALKED_SEGMENTS = 10
Floats = npt.NDArray[np.float64]


def extraction(table: pa.Table, size: int) -> tuple[int, float]:
    """Return the number of localities of a table and the processor seconds that their extraction takes."""
    params = check(
        LocalityParams(fields=tuple(table.column_names), profile="paper", segment_size=size, sigma=0.01),
        table.schema,
    )
    segmentation = segmentation_of(params, table.schema, Stream(bytes(32), "LOCALITY", 1))
    count, seconds = 0, 0.0
    with ThreadPoolExecutor(get_num_threads()) as pool:
        for ranges in batches_of(segmentation.of_table(table)):
            batch = Batch(ranges, segmentation.settings, no_progress, pool)
            started = time.process_time()
            batch.extract_localities()
            seconds += time.process_time() - started
            count += int(batch.segments.counts[:, FOUND].sum())
    return count, seconds


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the values over the sizes, both as logarithms, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def linearity(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the share of the variance of y that a line over x explains."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def sorted_segments(values: Floats, size: int, count: int) -> Floats:
    """Return the first segments of a field, each sorted and within [0.05, 0.95]; shape (count, size)."""
    segments = np.sort(values[: size * count].reshape(count, size), axis=1)
    low, high = segments.min(axis=1, keepdims=True), segments.max(axis=1, keepdims=True)
    scaled: Floats = (segments - low) / (high - low) * 0.9 + 0.05
    return scaled


def walk_seconds(table: pa.Table, share: float) -> float:
    """Return the processor seconds of the service's run of the paper's walk in segments of 100."""
    params = check(
        LocalityParams(fields=tuple(table.column_names), profile="paper", sigma=share), table.schema
    )
    started = time.process_time()
    PROVIDERS["LOCALITY"].swap(table, params, Stream(bytes(32), "LOCALITY", 1), no_progress)
    return time.process_time() - started


def run(data: Data) -> Figures:
    """Measure extraction by segment size, and the walk by the share of kept localities."""
    tables = {"census": census(data).slice(0, ROWS), "synthetic": synthetic(ROWS)}
    extraction(tables["synthetic"].slice(0, 300), 100)  # excludes compiled code
    found = []
    for (name, table), size in itertools.product(tables.items(), SIZES):
        localities, seconds = extraction(table, size)
        segments = 3 * (ROWS // size)
        found.append([name, size, localities / segments, 1000 * seconds / segments])
    walks = []
    plain = sorted_segments(matrix(tables["synthetic"])[:, 0], 100, WALKED_SEGMENTS)
    part = tables["synthetic"].slice(0, 100 * WALKED_SEGMENTS).select(["x1"])
    for timed in (lambda share: plain_walks(plain, share, 2), lambda share: walk_seconds(part, share)):
        timed(0.1)
    for share in SHARES:
        started = time.process_time()
        plain_walks(plain, share, STEPS)
        seconds = time.process_time() - started
        walks.append(
            [share, 1000 * seconds / WALKED_SEGMENTS, 1000 * walk_seconds(part, share) / WALKED_SEGMENTS]
        )
    extracted = Table(
        "extraction",
        "Localities of a segment of one field, and processor time to extract them.",
        ("table", "segment size", "localities", "milliseconds"),
        found,
        ("milliseconds",),
    )
    walked = Table(
        "walk",
        f"Processor time of a segment of 100 records with {STEPS} steps (synthetic table).",
        ("share of localities", "plain walk, ms", "service, ms"),
        walks,
        ("plain walk, ms", "service, ms"),
    )
    return Figures([extracted, walked], [_extraction_chart(extracted), _walk_chart(walked)])


def _extraction_chart(table: Table) -> Chart:
    lines = []
    for name in ("census", "synthetic"):
        rows = table.where(table=name)
        lines.append(Series(name, rows.column("segment size"), rows.numbers("milliseconds")))
    return Chart(
        "extraction", "line", "Extraction of localities by segment size", "records in a segment",
        "milliseconds a segment", lines, varies=True,
    )  # fmt: skip


def _walk_chart(table: Table) -> Chart:
    shares = table.column("share of localities")
    lines = [Series(name, shares, table.numbers(f"{name}, ms")) for name in ("plain walk", "service")]
    return Chart(
        "walk",
        "line",
        "Walk by share of kept localities",
        "share of localities",
        "milliseconds a segment",
        lines,
        varies=True,
    )


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if extraction grows with a power of 1.5 to 2.5, and the plain walk is linear (R2 > .9)."""
    extracted = figures.table("extraction").where(table="synthetic")
    sizes = extracted.numbers("segment size")
    counts = exponent(sizes, extracted.numbers("localities"))
    times = exponent(sizes, extracted.numbers("milliseconds"))
    walk = figures.table("walk")
    shares, plain = walk.numbers("share of localities"), walk.numbers("plain walk, ms")
    straight = linearity(shares, plain)
    ours = walk.numbers("service, ms")
    reason = (
        f"On the synthetic table the localities of a segment grow with its size to the power {counts:.2f}, "
        f"and the time to extract them with the power {times:.2f}. The time of the plain walk is linear in "
        f"the share of kept localities (R2 {straight:.3f}), from {plain[0]:.0f} to {plain[-1]:.0f} ms a "
        f"segment; the service, which leaves out localities that others imply, takes {ours[0]:.1f} to "
        f"{ours[-1]:.1f} ms."
    )
    holds = 1.5 <= times <= 2.5 and 1.5 <= counts <= 2.5 and straight > 0.9
    return ("reproduced" if holds else "differs"), reason


FIGURE_3 = Experiment(
    "figure-3",
    "Figure 3",
    "run time",
    ("LOCALITY",),
    "the time to extract localities grows quadratically with the segment size, and that of the walk "
    "linearly with the number of kept localities",
    f"The first {ROWS:,} rows of peFactors (age, birth place, occupation), which stands for the paper's "
    "IPUMS sample, and of a uniform table. The plain walk is the paper's, with every kept locality as a "
    "constraint. Processor time over all cores. The values of the figure are not in the text of the source "
    "that is at hand.",
    run,
    judge,
)
