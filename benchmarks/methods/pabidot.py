"""PABIDOT compared with the same steps in numpy, and at the size of the paper's largest table.

``python -m benchmarks.methods.pabidot ROWS FIELDS`` prints seconds, peak memory and the lower bound of one
run, in a process of its own.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.harness import in_turn, table
from benchmarks.methods.kernels import swap_work
from providers.rotation.transform import rotations

FIELDS = 28
GOAL = 1 / 3
LARGE_ROWS = 11_000_000
LARGE_GOAL_BYTES = 6e9

Matrix = npt.NDArray[np.float64]


def source_table(rows: int, fields: int = FIELDS) -> pa.Table:
    """Create skewed, correlated fields."""
    random = np.random.default_rng(1)
    shared = random.normal(size=rows)
    columns = {}
    for field in range(fields):
        values = random.normal(size=rows)
        values += shared * ((field % 5) / 4)
        np.exp(values / 2, out=values)
        columns[f"f{field}"] = pa.array(values)
    return pa.table(columns)


def by_numpy(source: pa.Table) -> list[Matrix]:
    """Run the same steps vectorised: BLAS for the correlations and the rotation, numpy's own normals."""
    values = np.stack([column.to_numpy() for column in source.columns])
    mean, deviation = values.mean(axis=1, keepdims=True), values.std(axis=1, ddof=1, keepdims=True)
    values -= mean
    values /= deviation
    fields, rows = values.shape
    correlation = values @ values.T / (rows - 1)
    matrices = rotations(fields)
    product = matrices @ correlation
    plain = np.diag(correlation) + ((product - 2 * correlation) * matrices).sum(axis=2)
    turned = 4 * matrices * (matrices * np.diag(correlation) - product + correlation)
    phi = (plain[:, :, np.newaxis] + turned).min(axis=1)
    angle = int(phi.min(axis=1).argmax())
    axis = int(phi[angle].argmin())
    random = np.random.default_rng(1)
    values[axis] *= -1
    values += random.random((fields, 1))
    values = matrices[angle] @ values
    noise = random.normal(0, 0.3, values.shape)
    values += np.copysign(noise, values, out=noise)
    values *= deviation
    values += mean
    order = random.permutation(rows)
    return [column[order] for column in values]


def status_bytes(name: str) -> int:
    """Return a figure of this process, such as ``VmHWM``, in bytes. Raise LookupError if there is none."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def one_run(rows: int, fields: int) -> str:
    """Return seconds, peak bytes of source and run, and the seconds of a copy."""
    swap_work(source_table(20_000, fields), "PABIDOT", {})()  # exclude compiled code
    source = source_table(rows, fields)
    work = swap_work(source, "PABIDOT", {})
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = status_bytes("VmRSS")
    started = time.perf_counter()
    result = work()
    taken = time.perf_counter() - started
    peak = source.nbytes + status_bytes("VmHWM") - before
    del result
    started = time.perf_counter()
    for column in source.columns:
        column.to_numpy().copy()
    return f"{taken} {peak} {time.perf_counter() - started}"


def measure(rounds: int, rows: int = 1_000_000, large_rows: int = LARGE_ROWS) -> str:
    """Return the comparison at one size, and the large table, as Markdown; 0 large rows omit that."""
    source = source_table(rows)
    timings = in_turn(
        {
            "rowveil": swap_work(source, "PABIDOT", {}),
            "numpy": lambda: by_numpy(source),
            "copy": lambda: [column.to_numpy().copy() for column in source.columns],
        },
        rounds,
    )
    ours, peer, floor = timings["rowveil"], timings["numpy"], timings["copy"]
    ratio = ours.ratio_to(peer)
    lines = [[f"{rows:,} x {FIELDS}", f"{ours.median:.3f}", f"{peer.median:.3f}", f"{ratio:.2f}"]]
    lines[0] += [f"{GOAL:.2f}", "met" if ratio <= GOAL else "MISSED", f"{floor.median:.3f}"]
    header = ["PABIDOT", "rowveil s", "numpy s", "ratio", "goal", "", "copy s"]
    text = table(header, lines) + "\n"
    if not large_rows:
        return text
    command = [sys.executable, "-m", "benchmarks.methods.pabidot", str(large_rows), str(FIELDS)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak, copy = map(float, run.stdout.split())
    verdict = "met" if peak <= LARGE_GOAL_BYTES else "MISSED"
    line = [f"{large_rows:,} x {FIELDS}", f"{seconds:.1f}", "100 on 640 cores", f"{peak / 1e9:.2f}"]
    line += [f"{LARGE_GOAL_BYTES / 1e9:g}", verdict, f"{copy:.2f}"]
    header = ["PABIDOT", "rowveil s", "the paper's s", "peak GB", "goal", "", "copy s"]
    return text + "\n" + table(header, [line]) + "\n"


if __name__ == "__main__":
    print(one_run(int(sys.argv[1]), int(sys.argv[2])))
