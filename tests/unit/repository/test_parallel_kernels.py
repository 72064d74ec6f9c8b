"""Kernels with threads have the decorator `parallel`: numba's own loops take longer to compile.

numba's own also drop an assignment to an array that is the member of a named tuple.
"""

import re
from pathlib import Path

import providers

_SOURCES = sorted(Path(providers.__file__).parent.rglob("*.py"))


def test_no_kernel_has_numbas_own_parallel_loops() -> None:
    assert [path.name for path in _SOURCES if "parallel=True" in path.read_text()] == []


def test_loops_over_prange_belong_to_parallel_kernels() -> None:
    """Loops over `prange` in other kernels would be loops over `range`."""
    with_loops = [
        path for path in _SOURCES if "in prange(" in path.read_text() and path.name != "parallel.py"
    ]
    assert with_loops
    decorator = re.compile(r"^from providers\.kernels\.parallel import .*\bparallel\b", re.MULTILINE)
    assert [path.name for path in with_loops if not decorator.search(path.read_text())] == []
