"""Wait policies of OpenMP threads on a machine whose cores are also used by other processes.

Each policy has a process of its own, since libgomp reads it once; processes are interleaved, A B C A B C,
next to processes that compute without end.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.harness import BUSY, busy_processes, table

POLICIES: dict[str, dict[str, str]] = {
    "passive (ours)": {"OMP_WAIT_POLICY": "passive"},
    "spin 1,000": {"GOMP_SPINCOUNT": "1000"},
    "spin 10,000": {"GOMP_SPINCOUNT": "10000"},
    "spin 300,000 (libgomp's own)": {"GOMP_SPINCOUNT": "300000"},
    "active": {"OMP_WAIT_POLICY": "active"},
}
CASES: dict[str, tuple[str, int, dict[str, Any], int]] = {
    "CDSWAP, 10,000 rows": ("CDSWAP", 10_000, {"swap_fields": ["a"], "control_field": "class100"}, 9),
    "DDSWAP, 1,000,000 rows": (
        "DDSWAP",
        1_000_000,
        {"swap_fields": ["a"], "control_field": "age", "block_size": 10},
        3,
    ),
}
"""Name -> service, rows, parameters, and runs in one process, whose median counts."""


def measure(rounds: int) -> str:
    """Return milliseconds of every case under every policy, with and without busy processes."""
    rows = []
    for busy in (0, BUSY):
        found: dict[str, dict[str, list[float]]] = {name: {} for name in POLICIES}
        with busy_processes(busy):
            for _ in range(rounds):
                for name, variables in POLICIES.items():
                    for case, milliseconds in _one_process(variables).items():
                        found[name].setdefault(case, []).append(milliseconds)
        for name, by_case in found.items():
            medians = [f"{statistics.median(by_case[case]):,.1f}" for case in CASES]
            rows.append([name, str(busy), *medians])
    load = os.getloadavg()[1]
    head = f"## How threads wait: milliseconds, {rounds} processes each, load average {load:.1f} at the end\n"
    return head + table(["threads wait", "busy processes", *CASES], rows)


def _one_process(variables: dict[str, str]) -> dict[str, float]:
    others = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    command = [sys.executable, "-m", "benchmarks.waiting"]
    done = subprocess.run(command, env=others | variables, capture_output=True, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def main() -> None:
    """Time every case in this process, and print the medians in milliseconds as JSON."""
    from benchmarks.methods.kernels import SEED, people_table
    from providers import PROVIDERS
    from providers.progress import no_progress

    found = {}
    for case, (service, rows, parameters, runs) in CASES.items():
        provider, source = PROVIDERS[service], people_table(rows)
        params = provider.check(provider.params.model_validate(parameters), source.schema)
        stream, seconds = provider.stream(SEED), []
        for _ in range(1 + runs):
            started = time.perf_counter()
            provider.swap(source, params, stream, no_progress)
            seconds.append(time.perf_counter() - started)
        found[case] = 1000 * statistics.median(seconds[1:])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
