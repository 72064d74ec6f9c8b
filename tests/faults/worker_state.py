"""Worker functions that report the state of a worker, or run a service in it."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.progress import no_progress

SWAPS: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["b"]},
    "CDSWAP": {"control_field": "a", "swap_fields": ["b"]},
    "DDSWAP": {"control_field": "a", "swap_fields": ["b"], "block_size": 3},
    "MEWS": {"swap_fields": ["b", "c"], "bins": 4},
    "MEDS": {"swap_fields": ["b", "c"], "k": 5},
    "RWN": {"perturb_fields": ["b"], "distance_fields": ["a", "c"]},
    "PABIDOT": {},
    "LOCALITY": {"fields": ["b"], "segment_size": 100, "decimals": 0, "iterations": 1},
    "RSWAP": {"hierarchy": ["a"], "swap_rate": 0.5},
}
"""Service -> parameters of a small run."""


def pid(_: Any) -> dict[str, Any]:
    """The worker's process id."""
    return {"pid": os.getpid()}


def kill_the_parent(_: Any) -> dict[str, Any]:
    """Kill the process that forked this one."""
    os.kill(os.getppid(), signal.SIGKILL)
    threading.Event().wait()
    return {}


def ended_children(parent: int) -> list[int]:
    """Child processes of a process that have ended, and whose exit code nobody has asked for."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, owner = status.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if (state, int(owner)) == ("Z", parent):
            found.append(int(status.parent.name))
    return found


def modules(_: Any) -> dict[str, Any]:
    """Packages that the worker has imported before its first task, and the process that forked it."""
    wanted = ("numba", "pandas", "pyarrow.parquet", "sqlalchemy", "fastapi", "sklearn")
    return {"loaded": [name for name in wanted if name in sys.modules], "parent": os.getppid()}


def threads(_: Any) -> dict[str, Any]:
    """Threads that each library uses."""
    import numba
    import threadpoolctl
    from numba.np.ufunc import parallel

    pools = threadpoolctl.threadpool_info()
    return {
        "numba": numba.get_num_threads(),
        "launched": parallel.NUM_THREADS,
        "arrow": pa.cpu_count(),
        "blas": sorted({pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}),
        "variables": os.environ["OMP_NUM_THREADS"],
    }


def memory_left(_: Any) -> dict[str, Any]:
    """Bytes that numpy can still take at once."""
    low, high = 0, 2**32
    while high - low > 2**20:
        middle = (low + high) // 2
        try:
            np.empty(middle, np.uint8)
            low = middle
        except MemoryError:
            high = middle
    return {"bytes": low}


def swap(service: str) -> dict[str, Any]:
    """Run a service on a thousand rows."""
    rows = 1000
    table = pa.table(
        {
            "a": np.arange(rows) % 7,
            "b": np.arange(rows),
            "c": np.square(np.arange(rows)) % 101 / 4,
        }
    )
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(SWAPS[service]), table.schema)
    stream = provider.stream(bytes(32))
    return {"rows": provider.swap(table, params, stream, no_progress).table.num_rows}
