"""Kernels left out of a process: declarations work, calls of a kernel are refused by name."""

import json
import subprocess
import sys

import numba
import pytest

import providers.kernel_compiler
import providers.numba
from providers import PROVIDERS

pytestmark = pytest.mark.slow

DECLARED = """
import json, sys
from providers import PROVIDERS, numba
numba.leave_out()
declared = {
    name: [provider.title, provider.revision, provider.params.model_json_schema()]
    for name, provider in PROVIDERS.items()
}
assert numba.are_left_out()
assert not {"numba", "llvmlite", "scipy"} & set(sys.modules)
print(json.dumps(declared, sort_keys=True))
"""

CALLED = """
import pyarrow as pa
from providers import PROVIDERS, numba
numba.leave_out()
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
provider = PROVIDERS["DSWAP"]
table = pa.table({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]})
params = provider.check(provider.params(swap_fields=("a",)), table.schema)
try:
    provider.swap(table, params, provider.stream(bytes(32)), no_progress)
except numba.KernelsLeftOut as error:
    print(error)
"""

LATE = """
import numba as real
from providers import numba
numba.leave_out()
assert not numba.are_left_out()
from providers.kernels.radix_sort import radix_order
assert radix_order.__module__ == "providers.kernels.radix_sort"
import numpy as np
assert list(radix_order([np.array([2, 1], np.uint64)])) == [1, 0]
"""


def run(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_provider_is_declared_without_numba() -> None:
    declared = {
        name: [provider.title, provider.revision, provider.params.model_json_schema()]
        for name, provider in PROVIDERS.items()
    }
    assert json.loads(run(DECLARED)) == json.loads(json.dumps(declared))


def test_a_kernel_that_was_left_out_says_so() -> None:
    said = run(CALLED)
    assert said.startswith("providers.")
    assert "left numba out" in said


def test_nothing_is_left_out_once_numba_is_there() -> None:
    run(LATE)


def test_names_are_those_of_numba_and_of_the_compiler() -> None:
    assert providers.numba.njit is providers.kernel_compiler.njit
    assert providers.numba.prange is numba.prange
    with pytest.raises(AttributeError, match="no attribute 'jit'"):
        providers.numba.jit  # noqa: B018


def test_a_provider_is_looked_up_by_its_identifier() -> None:
    identifiers = ["DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS", "RWN", "PABIDOT", "LOCALITY", "RSWAP"]
    assert list(PROVIDERS) == identifiers
    assert len(PROVIDERS) == 9
    assert all(PROVIDERS[name].identifier == name for name in PROVIDERS)
    assert "dswap" not in PROVIDERS
    with pytest.raises(KeyError):
        PROVIDERS["dswap"]
