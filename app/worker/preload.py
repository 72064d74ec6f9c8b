"""Modules of a worker, and the part of numba's start that is the same for every kernel.

The fork server imports this module once; its workers share what it has made (`app.engine.fork_server`). No
kernel is loaded: each worker loads a kernel at its first use.
"""

import gc

import pyarrow.parquet  # noqa: F401 - for the workers
from numba.core.registry import cpu_target

from app.worker.run_swap import library_versions
from providers import PROVIDERS

__all__: list[str] = []

for _provider in PROVIDERS.values():
    assert _provider.identifier in PROVIDERS  # imported by the look-up

# The types and functions that numba knows take 0.4 s, which otherwise each worker's first kernel would take.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()

library_versions()  # kept, because it reads files

gc.enable()  # disabled by the fork server
gc.collect()
gc.freeze()  # a later collection would write to, and so copy, the pages that workers share
