"""Functions that only kernels call have no machine code of their own; what Python calls is compiled once."""

import hashlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen

from providers import kernel_linking
from providers.kernel_linking import LinkedLibrary, OptimisedFirst
from tests.preloaded.processes import kernel_script
from tests.terminal import ROOT

HELPERS = """
import numpy as np
from numba import njit
from providers.numba import OptimisedFirst

LARGE = np.arange(200_000)  # numba uses the address of an array of more than 1 MB

within = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)

@within
def double(number):
    return 2 * number

@within
def checked(number):
    if number < 0:
        raise ValueError("negative", number)
    return double(number)

@within
def large(index):
    return LARGE[index]

@within
def factorial(number):
    if number < 2:
        return 1
    return number * factorial(number - 1)

@njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=OptimisedFirst)
def triangular(number):
    total = 0
    for index in range(number):
        total += index
    return total
"""
IMPORTS = """
import providers, numba
from sample import callers, helpers
"""
CALLERS = """
import numpy as np
from numba import njit, prange
from providers.kernels.parallel import parallel
from sample.helpers import checked, double, factorial, large, triangular

@njit(cache=True)
def twice(number):
    return checked(number)

@njit(cache=True)
def fourfold(number):
    return double(double(number))

@njit(cache=True)
def recursive(number):
    return factorial(number)

@njit(cache=True)
def from_large(index):
    return large(index)

@njit(cache=True)
def twice_triangular(number):
    return 2 * triangular(number)

@njit(cache=True, parallel=True)
def doubles(numbers):
    total = 0
    for index in prange(len(numbers)):
        total += double(numbers[index])
    return total

@parallel
def double_each(numbers):
    for index in prange(len(numbers)):
        numbers[index] = double(numbers[index])
    return numbers
"""


Run = Callable[[str], str]
"""Function that runs a script with a package of kernels in a new process; all processes share one cache."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Folder with a package of kernels."""
    (tmp_path / "sample").mkdir()
    for name, text in {"__init__": "", "helpers": HELPERS, "callers": CALLERS}.items():
        (tmp_path / "sample" / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture
def run(package: Path) -> Run:
    """Run scripts in processes that are forked from one that has imported numba."""
    forked = kernel_script()
    return lambda script: output_of(package, forked.arguments, script, pass_fds=(forked.descriptor,))


@pytest.fixture
def start(package: Path) -> Run:
    """Run scripts in processes that import numba themselves, with addresses of their own."""
    return lambda script: output_of(package, [sys.executable], script)


def output_of(folder: Path, command: list[str], script: str, pass_fds: tuple[int, ...] = ()) -> str:
    """Return what a script prints that imports the modules of the package."""
    path = folder / "script.py"
    path.write_text(script if IMPORTS in script else IMPORTS + script)
    paths = os.pathsep.join((str(folder), str(ROOT)))
    done = subprocess.run(
        [*command, str(path)],
        env=os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "cache")},
        pass_fds=pass_fds,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the libraries for which machine code is generated."""
    assert kernel_linking.install()  # importing `kernel_cache` has done so already
    names: list[str] = []
    compile_library = LinkedLibrary._compile

    def counted(library: LinkedLibrary) -> None:
        names.append(library.name)
        compile_library(library)

    monkeypatch.setattr(LinkedLibrary, "_compile", counted)
    return names


def library_of(kernel: Any) -> LinkedLibrary:
    (overload,) = kernel.overloads.values()
    library = overload.library
    assert isinstance(library, LinkedLibrary)
    return library


def test_a_function_that_only_kernels_call_is_compiled_with_its_caller(compiled: list[str]) -> None:
    @numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[untyped-decorator]
    def half(number: float) -> Any:
        return number / 2

    @numba.njit  # type: ignore[untyped-decorator] # numba's decorators carry no types
    def quarter(number: float) -> Any:
        return half(half(number))

    assert quarter(3.0) == 0.75
    assert compiled == [library_of(quarter).name]
    assert not library_of(half)._is_compiled


def test_the_libraries_of_a_parallel_loop_are_compiled_as_one(compiled: list[str]) -> None:
    @numba.njit(parallel=True)  # type: ignore[untyped-decorator]
    def fill(numbers: Any) -> None:
        for index in numba.prange(len(numbers)):
            numbers[index] = index**2

    numbers = np.empty(1000, np.int64)
    fill(numbers)
    np.testing.assert_array_equal(numbers, np.arange(1000) ** 2)
    assert compiled == [library_of(fill).name]


def test_a_function_that_python_calls_too_is_compiled_for_both(compiled: list[str]) -> None:
    @numba.njit  # type: ignore[untyped-decorator] # numba's decorators carry no types
    def inner(number: int) -> Any:
        return number + 1

    @numba.njit  # type: ignore[untyped-decorator] # numba's decorators carry no types
    def outer(number: int) -> Any:
        return inner(number) * 2

    assert (outer(1), inner(1)) == (4, 2)
    assert compiled == [library_of(inner).name, library_of(outer).name]


def test_a_cached_function_is_linked_into_a_caller_that_is_not(run: Run) -> None:
    """Another process compiles the new caller alone, and loads its functions."""
    assert run("print(callers.twice(4))") == "8\n"
    script = """
print(callers.fourfold(4))
print(sum(helpers.double.stats.cache_hits.values()), sum(helpers.double.stats.cache_misses.values()))
"""
    assert run(script) == "16\n1 0\n"


def test_a_kernel_from_the_cache_is_machine_code_alone(run: Run) -> None:
    """Its modules for callers are not parsed until a caller is compiled, which then works."""
    script = """
import numpy as np
from llvmlite import binding
from numba import njit
parse, parsed = binding.parse_bitcode, []
binding.parse_bitcode = lambda module: parsed.append(module) or parse(module)
print(callers.doubles(np.arange(5)), callers.double_each(np.arange(5)))
print(sum(callers.doubles.stats.cache_hits.values()), sum(callers.double_each.stats.cache_hits.values()))
print(bool(parsed))
again = njit(lambda numbers: callers.doubles(numbers) + 1)
print(again(np.arange(5)), bool(parsed))
"""
    run(script)
    assert run(script) == "20 [0 2 4 6 8]\n1 1\nFalse\n21 True\n"


def test_errors_of_linked_functions_reach_python(run: Run) -> None:
    """With their arguments, also where the kernel comes from the cache."""
    script = """
try:
    callers.twice(-3)
except ValueError as error:
    print(error.args)
"""
    assert [run(script), run(script)] == ["('negative', -3)\n"] * 2


def test_a_function_that_is_optimised_first_is_linked_without_its_loop(compiled: list[str]) -> None:
    """LLVM replaces the sum by a product; its callers get that, where else they get the loop."""

    def triangular(number: int) -> Any:
        total = 0
        for index in range(number):
            total += index
        return total

    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    plain, first = numba.njit(**options), numba.njit(**options, pipeline_class=OptimisedFirst)
    has_loop = []
    for inner in (plain(triangular), first(triangular)):
        caller = numba.njit(lambda number, inner=inner: inner(number) + 1)
        assert caller(5) == 11
        (block_names,) = (
            [block.name for block in function.blocks]
            for function in library_of(inner)._get_module_for_linking().functions
            if not function.is_declaration
        )
        has_loop.append(len(block_names) > 5)
        assert compiled.pop() == library_of(caller).name
        assert not compiled
    assert has_loop == [True, False]


def test_a_function_that_is_optimised_first_comes_from_the_cache(run: Run) -> None:
    script = """
print(callers.twice_triangular(4), sum(helpers.triangular.stats.cache_hits.values()))
again = numba.njit(lambda number: helpers.triangular(number) + 1)
print(again(4), sum(helpers.triangular.stats.cache_hits.values()))
"""
    assert [run(script), run(script)] == ["12 0\n7 0\n", "12 0\n7 1\n"]


def test_a_recursive_function_is_linked(run: Run) -> None:
    assert [run("print(callers.recursive(5))"), run("print(callers.recursive(5))")] == ["120\n"] * 2


def test_addresses_of_a_process_are_not_cached(start: Run) -> None:
    """Another process has the array somewhere else."""
    for _ in range(2):
        printed = start("print(callers.from_large(7), sum(helpers.large.stats.cache_hits.values()))")
        assert printed.startswith("7 0\n")
        assert 'Cannot cache compiled function "large" as it uses dynamic globals' in printed
        assert 'Cannot cache compiled function "from_large" as it uses dynamic globals' in printed


def test_kernels_run_with_the_libraries_of_another_numba(run: Run, start: Run) -> None:
    """Also from its cache, and with what the known numba has cached before."""
    script = """
import numpy as np
print(callers.twice(4), callers.recursive(5), callers.doubles(np.arange(5)), callers.twice_triangular(4))
(library,) = (overload.library for overload in callers.doubles.overloads.values())
print(type(library).__name__, sum(callers.doubles.stats.cache_hits.values()))
"""
    results = "8 120 20 12\n"
    assert run(script) == f"{results}LinkedLibrary 0\n"
    other = f"import providers, numba\nnumba.__version__ = '0.69.0'\n{IMPORTS}{script}"
    assert start(other) == f"{results}JITCodeLibrary 0\n"
    assert start(other) == f"{results}JITCodeLibrary 1\n"


def test_another_numba_keeps_its_own_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITCPUCodegen, "_library_class", JITCodeLibrary)
    monkeypatch.setattr(numba, "__version__", "0.69.0")
    assert not kernel_linking.install()
    assert JITCPUCodegen._library_class is JITCodeLibrary


def test_numba_has_the_methods_that_linking_replaces() -> None:
    """They are those of numba 0.68. If not, compare them with `providers.kernel_linking`."""
    methods = (
        CPUCodeLibrary.add_ir_module,
        CPUCodeLibrary.add_llvm_module,
        CPUCodeLibrary.finalize,
        CPUCodeLibrary._finalize_dynamic_globals,
        CPUCodeLibrary._finalize_final_module,
        CPUCodeLibrary._get_module_for_linking,
        CPUCodeLibrary._optimize_functions,
        CPUCodeLibrary.serialize_using_object_code,
        CPUCodeLibrary._unserialize,
        JITCodeLibrary.get_pointer_to_function,
    )
    text = "".join(inspect.getsource(method) for method in methods)
    assert numba.__version__.startswith(kernel_linking.NUMBA)
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "22a7c943b7059f59"
