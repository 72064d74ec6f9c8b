"""Compile every kernel ahead of time.

``python -m providers.warm`` compiles them all into the user's cache, with all cores: once for each state
of the sources.
"""

import argparse
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

import providers
from providers import PROVIDERS
from providers.compiled_services import (
    MEASURES_NAME,
    are_compiled,
    cache_folder,
    compiling,
    key,
    record,
    wait_until_compiled,
)
from providers.cores import available_cores
from providers.grouping.large_groups import LargeGroup
from providers.grouping.shuffle import ONE_BUCKET
from providers.kernel_progress import compile_all
from providers.kernels.counting_sort import places_by_part
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.neighbours import kdtree
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.storage import Resources
from providers.tables.sketches import first_same, packed, sketch

_ROWS = ONE_BUCKET + 3  # of which all but the first and the last are a class of a large group's size

_MOVED: dict[str, Any] = {"swap_fields": ["plain", "int8", "int16", "int32", "int64", "string"]}
_PERMUTED = _MOVED | {"mechanism": "permutation", "rate": 0.5}
_AT_RISK = _MOVED | {"risk": {"key_fields": ["plain"]}, "rate": 0.5}
_PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "DSWAP": [_MOVED, _MOVED | {"locked": True}, _PERMUTED, _AT_RISK],
    "CDSWAP": [each | {"control_field": "class"} for each in (_MOVED, _PERMUTED, _AT_RISK)],
    "DDSWAP": [
        *(
            _MOVED | {"control_field": control, "block_size": 3}
            for control in ("wide", "halffloat", "float", "double")  # wide: sorted by the upper bits first
        ),
        *(each | {"control_field": "wide", "block_size": 3} for each in (_PERMUTED, _AT_RISK)),
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
        {
            "perturb_fields": ["plain"],
            "neighbours": "pairs",
            "sample_size": 2,
        },  # of which some rows have none
    ],
    "PABIDOT": [{"nulls": "drop_from_fit"}],
    "LOCALITY": [
        {"fields": ["plain"], "segment_size": 1000, "iterations": 1, "decimals": 0},
        {
            "fields": ["plain"],
            "segment_size": 100,
            "iterations": 1,
            "decimals": 0,
            "relations": [{"coefficients": {"max": 1, "min": -1}, "at_most": 1000}],
        },
    ],
    "RSWAP": [{"household": "plain", "hierarchy": ["int8"], "risk_fields": ["class"], "swap_rate": 1}],
}
"""Service -> parameters of the runs that compile its kernels."""


_BY_TWO: dict[str, Any] = {"distance_fields": ["plain", "wide"], "perturb_fields": ["plain"]}
_OUT_OF_CORE: dict[str, list[dict[str, Any]]] = {
    "MEWS": [{"swap_fields": ["plain", "wide"], "bins": 3}],  # few cells, each of which has an entry
    "RWN": [
        _BY_TWO | {"epsilon": 0.3},  # some neighbourhoods are not listed
        _BY_TWO | {"neighbours": "partition", "parts": 20, "within": "pairs", "sample_size": 20},
    ],
}
"""Parameters of the services that have kernels of their own out of core."""
_WITHOUT_SHUFFLE = ("LOCALITY", "RSWAP")
"""Services that shuffle no rows, in memory or out of core."""

_LITTLE = 2 * 10**6

_LOW_PRIORITY = 10


class _Kept:
    """Scratch space and spool in memory."""

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
    """Table in memory as a `Source`."""

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self.rows: int = table.num_rows
        self.nbytes: int = table.nbytes
        self._table = table

    def batches(self, fields: Sequence[str], start: int = 0) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.schema.names if name in fields]
        return iter(self._table.select(names).slice(start).to_batches())


def _warm_swaps_out_of_core() -> None:
    """Compile the kernels that all swaps out of core need, and no swap in memory."""
    places_by_part(np.zeros(2, np.int64), 1)
    group = LargeGroup(_ROWS, 0, np.zeros(8, np.uint32), 0.5)
    (whole,) = group.ranges(_ROWS)
    group.pairing(whole, group.buckets(0, _ROWS))


def _warm_upper_levels() -> None:
    """Compile the kernel that only the tree of a large table needs, for the types of a small one's."""
    for signature in kdtree._cut_levels.signatures:
        kdtree._cut_level.compile(signature)


NAMES = ("DSWAP", "LOCALITY", "RSWAP", "CDSWAP", "DDSWAP", "MEWS", "RWN", "MEDS", "PABIDOT", MEASURES_NAME)
"""Names of the services and other parts that have kernels, in the order in which they are compiled.

DSWAP, whose kernels most others need too, and LOCALITY, which shares almost none with it, are compiled at the
same time. Then come the parts that compile fast, and RWN, which takes longest, early enough that two
processes end at about the same time.
"""


def warm(names: Iterable[str] = NAMES) -> None:
    """Run each provider, on columns of every width that a kernel is compiled for, and the measures."""
    table = _table()
    for name in names:
        with _one_at_a_time(name):
            _run(name, table)
        record(name)


def load(names: Iterable[str] = NAMES) -> None:
    """Load all kernels of the services in a process that must not write to the folder of the kernels.

    Waits for services that another process is compiling. Services that no process compiles are left out: a
    job that needs their kernels compiles them.
    """
    table = _table()
    for name in names:
        wait_until_compiled(name)
        if are_compiled([name]):
            _run(name, table)


def _table() -> pa.Table:
    """Return a table with a column of each width that a kernel is compiled for."""
    numbers = np.arange(_ROWS) % 100
    edges = np.zeros(_ROWS, np.int64)
    edges[[0, -1]] = 1
    widths = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string())
    swapped = {str(kind): pa.array(numbers, mask=numbers == 0).cast(kind) for kind in widths}
    floats = {str(kind): pa.array(numbers).cast(kind) for kind in (pa.float16(), pa.float32(), pa.float64())}
    wide = np.arange(_ROWS)[::-1] * (2**62 // _ROWS)
    return pa.table({"class": edges, "wide": wide, "plain": numbers, **swapped, **floats})


def _run(name: str, table: pa.Table) -> None:
    if name == MEASURES_NAME:
        _warm_measures(table)
    else:
        _warm_provider(name, table)
        _warm_sketches(table)


def _warm_provider(identifier: str, table: pa.Table) -> None:
    """Run a provider in memory and, where it has kernels of its own for that, out of core."""
    provider = PROVIDERS[identifier]
    for parameters in _PARAMETERS[identifier]:
        params = provider.check(provider.params.model_validate(parameters), table.schema)
        stream = provider.stream(bytes(32))
        provider.plan(table, params)
        provider.swap(table, params, stream, no_progress)
        provider.swap(table.slice(0, 100), params, stream, no_progress)  # some work without threads
    for parameters in _OUT_OF_CORE.get(identifier, []):
        assert provider.scaling.swap is not None  # noqa: S101 - as the table says
        params = provider.check(provider.params.model_validate(parameters), table.schema)
        stream = provider.stream(bytes(32))
        resources = Resources(_Kept(), _LITTLE)
        for _ in provider.scaling.swap(_InMemory(table), params, stream, no_progress, resources).pieces:
            pass
    if identifier not in _WITHOUT_SHUFFLE:
        _warm_swaps_out_of_core()
    if identifier == "RWN":
        _warm_upper_levels()


def _warm_sketches(table: pa.Table) -> None:
    """Sketch a table, and compare it with itself, as each job does whose release is recorded."""
    own = sketch(table, bytes(32))
    other = packed(own.document())
    first_same(own, other, np.array([len(other)]))


def _warm_measures(table: pa.Table) -> None:
    """Take the measures that are compiled: those by distances, the samples, and the forests."""
    options = MeasureOptions(
        only=("pscr", "dcr", "query_error", "range_averages", "prediction"),
        target="plain",
        query_fields=("plain", "wide", "class", "string"),
        sample=500,
    )
    release = Release(table, table, perturb=lambda training, _: training)
    assess(release, options, Stream(bytes(32), "measures", 1), pictures=False)


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Let one of the processes that start together compile a service's kernels; the others load them.

    Processes with another state of the sources have kernels of their own, and do not wait here.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{key()}-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile what is not in the cache, and show how far that is."""
    parser = argparse.ArgumentParser(prog="python -m providers.warm", description="compile all kernels")
    parser.add_argument("--records", action="store_true", help="print the progress as JSON, for a program")
    given = parser.parse_args(arguments)
    if given.records:  # as a child of a service, which holds the lock and needs the processor itself
        os.nice(_LOW_PRIORITY)
        compile_all(providers, warm, NAMES, available_cores(), records=True)
        return
    if providers.KERNEL_CPU.warning:  # to compile is to run, which this processor cannot for the wanted one
        raise SystemExit(providers.KERNEL_CPU.warning)
    with compiling(wait=True):
        if are_compiled(NAMES):
            print("  all kernels are compiled", flush=True)
        else:
            compile_all(providers, warm, NAMES, available_cores())


if __name__ == "__main__":
    main()
