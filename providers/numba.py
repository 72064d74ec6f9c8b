"""Names of numba and llvmlite that kernels are written with; placeholders in a process that runs no kernel.

The service checks parameters and reads declarations; its workers run the kernels. numba takes half a second
to import and 100 MB of memory, so the service calls `leave_out` before it imports a provider. Its kernels
are then placeholders, and calling one raises `KernelsLeftOut`. Every other process gets numba's own objects,
so that nothing is between a kernel and its caller.
"""

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from llvmlite import ir
    from numba import get_num_threads, prange, set_num_threads, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    OptimisedFirst: Any
    njit: Any

__all__ = [
    "KernelsLeftOut",
    "OptimisedFirst",
    "are_left_out",
    "cgutils",
    "get_num_threads",
    "intrinsic",
    "ir",
    "leave_out",
    "njit",
    "prange",
    "set_num_threads",
    "types",
]

_SOURCES = {
    "OptimisedFirst": "providers.kernel_linking",
    "cgutils": "numba.core",
    "get_num_threads": "numba",
    "intrinsic": "numba.extending",
    "ir": "llvmlite",
    "njit": "providers.kernel_compiler",
    "prange": "numba",
    "set_num_threads": "numba",
    "types": "numba",
}
"""Name -> the module that has it."""

_left_out = False


class KernelsLeftOut(Exception):
    """A kernel was called in a process that left numba out."""


def leave_out() -> None:
    """Make placeholders of all kernels that are imported from now on; no effect if numba is there already."""
    global _left_out
    _left_out = "numba" not in sys.modules


def are_left_out() -> bool:
    """Whether kernels of this process are placeholders."""
    return _left_out


def __getattr__(name: str) -> Any:
    """Return numba's object of this name, or its placeholder."""
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _left_out:
        return {"njit": _left_out_njit, "intrinsic": _left_out_kernel}.get(name, _Nothing())
    module = importlib.import_module(_SOURCES[name])
    return getattr(module, name)


class _Nothing:
    """Placeholder of what kernels are compiled from, such as LLVM types: attributes and results are alike."""

    def __getattr__(self, name: str) -> "_Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **options: Any) -> "_Nothing":
        return self


def _left_out_njit(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., NoReturn]]:
    return _left_out_kernel


def _left_out_kernel(function: Callable[..., Any]) -> Callable[..., NoReturn]:
    name = f"{function.__module__}.{function.__qualname__}"

    def kernel(*arguments: Any, **options: Any) -> NoReturn:
        raise KernelsLeftOut(f"{name} was called in a process that left numba out; only workers run kernels")

    return kernel
