"""Loads every compiled kernel, so that a worker's first job does not wait for a compiler.

``python -m providers.warm`` compiles them all into the user's cache, with all cores: once for each state
of the sources.
"""

import fcntl
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba.core import config

from providers import PROVIDERS
from providers.bucket_ranges import LargeGroup
from providers.kernel_cache import state_of
from providers.kernels import ONE_BUCKET
from providers.measures.assessment import MeasureOptions, Released, assess
from providers.provider import no_progress
from providers.rng import Stream
from providers.storage import Room

_STATE = state_of(Path(__file__).resolve())  # it imports, directly or not, whatever is compiled

_ROWS = ONE_BUCKET + 3  # of which all but the first and the last are a class of a large group's size

_MOVED: dict[str, Any] = {"swap_fields": ["plain", "int8", "int16", "int32", "int64", "string"]}
_PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "DSWAP": [_MOVED, _MOVED | {"locked": True}],
    "CDSWAP": [_MOVED | {"control_field": "class"}],
    "DDSWAP": [
        _MOVED | {"control_field": control, "block_size": 3}
        for control in ("wide", "halffloat", "float", "double")  # wide: sorted by the upper bits first
    ],
    "MEWS": [
        {"swap_fields": ["plain", "wide"], "bins": [2, 3000]},  # of which some hold one row
        {"swap_fields": ["plain", "wide"], "degree": 50, "others": "univariate", "nulls": "keep"},
        {"swap_fields": ["plain"], "width": 0.5, "scale": "sd"},
    ],
    "MEDS": [
        {"swap_fields": ["plain", "wide"], "k": 17},  # _ROWS is 1 over a multiple of 2 * 17
        {"swap_fields": ["plain"], "k": 17, "method": "mdav"},
    ],
    "RWN": [
        {"q": 0.5, "perturb_fields": _MOVED["swap_fields"]},
        {"perturb_fields": ["plain"], "neighbours": "own_sample", "sample_size": 20},
    ],
    "PABIDOT": [{"nulls": "drop_from_fit"}],
    "LOCALITY": [{"fields": ["plain"], "segment_size": 1000, "iterations": 1, "decimals": 0}],
}
"""What each service is run with."""


_OUT_OF_CORE: dict[str, dict[str, Any]] = {
    "RWN": {"distance_fields": ["plain", "wide"], "perturb_fields": ["plain"], "epsilon": 0.3},
}
"""What is run out of core as well, where that has kernels of its own; some neighbourhoods are not listed."""
_LITTLE = 2 * 10**6


class _Kept:
    """A spool and a scratch at once, in memory."""

    def __init__(self, parts: int = 0) -> None:
        self.parts = parts
        self._tables: list[list[pa.Table]] = [[] for _ in range(parts)]

    def spool(self, parts: int, memory: int) -> "_Kept":
        return _Kept(parts)

    def add(self, part: int, table: pa.Table) -> None:
        self._tables[part].append(table)

    def rows(self, part: int) -> int:
        return sum(table.num_rows for table in self._tables[part])

    def read(self, part: int) -> Iterator[pa.Table]:
        return iter(list(self._tables[part]))

    def clear(self, part: int) -> None:
        self._tables[part].clear()


class _InMemory:
    """A table as a source."""

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self.rows: int = table.num_rows
        self.nbytes: int = table.nbytes
        self._table = table

    def batches(self, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self._table.select([name for name in self.schema.names if name in fields]).to_batches())


def _warm_buckets() -> None:
    """Those that only a swap out of core needs."""
    group = LargeGroup(_ROWS, 0, np.zeros(8, np.uint32), 0.5)
    (whole,) = group.ranges(_ROWS)
    group.pairing(whole, group.buckets(0, _ROWS))


def warm(services: Iterable[str] = tuple(PROVIDERS)) -> None:
    """Run each provider, on columns of every width that a kernel is compiled for."""
    numbers = np.arange(_ROWS) % 100
    edges = np.zeros(_ROWS, np.int64)
    edges[[0, -1]] = 1
    widths = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string())
    swapped = {str(kind): pa.array(numbers, mask=numbers == 0).cast(kind) for kind in widths}
    floats = {str(kind): pa.array(numbers).cast(kind) for kind in (pa.float16(), pa.float32(), pa.float64())}
    _warm_buckets()
    wide = np.arange(_ROWS)[::-1] * (2**62 // _ROWS)
    table = pa.table({"class": edges, "wide": wide, "plain": numbers, **swapped, **floats})
    for identifier in services:
        provider = PROVIDERS[identifier]
        with _one_at_a_time(identifier):
            for parameters in _PARAMETERS[identifier]:
                params = provider.check(provider.params.model_validate(parameters), table.schema)
                stream = Stream(bytes(32), identifier, provider.revision)
                provider.plan(table, params)
                provider.swap(table, params, stream, no_progress)
                provider.swap(table.slice(0, 100), params, stream, no_progress)  # some work without threads
            if identifier in _OUT_OF_CORE and provider.scaling.swap is not None:
                params = provider.check(
                    provider.params.model_validate(_OUT_OF_CORE[identifier]), table.schema
                )
                stream = Stream(bytes(32), identifier, provider.revision)
                room = Room(_Kept(), _LITTLE)
                for _ in provider.scaling.swap(_InMemory(table), params, stream, no_progress, room).pieces:
                    pass
    with _one_at_a_time("measures"):
        _warm_measures(table)


def _warm_measures(table: pa.Table) -> None:
    """Take the measures that are compiled: those by distances, and the samples."""
    options = MeasureOptions(only=("pscr", "dcr", "query_error"), sample=500)
    assess(Released(table, table), options, Stream(bytes(32), "measures", 1), pictures=False)


@contextmanager
def _one_at_a_time(service: str) -> Iterator[None]:
    """Of workers that start together one compiles a service's kernels; the others wait, and load them.

    Those of another state of the sources have kernels of their own, and wait for nobody here.
    """
    folder = Path(config.CACHE_DIR)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{service}-{_STATE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _timed(service: str) -> tuple[str, float]:
    started = time.perf_counter()
    warm([service])
    return service, time.perf_counter() - started


def main() -> None:
    """Compile what is not in the cache; says which service's kernels are there."""
    first, *rest = PROVIDERS  # the first one's kernels are everybody's
    print(f"  {first}: {_timed(first)[1]:.0f} s", flush=True)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for service, seconds in pool.imap_unordered(_timed, rest):
            print(f"  {service}: {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
