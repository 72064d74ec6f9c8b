"""Calls of functions that only kernels call, from tests."""

from collections.abc import Callable
from typing import Any

from numba import njit

_CALL = """
def call(*arguments):
    return kernel(*arguments)
"""


def from_python(kernel: Any) -> Callable[..., Any]:
    """Return a function that calls a compiled function which has no Python wrapper.

    Compiling it takes seconds, as much as the compiled function itself. So it counts as a definition inside
    of that one, with which it is cached, and with which `providers.kernel_cache` discards it.
    """
    called = kernel.py_func
    namespace: dict[str, Any] = {"kernel": kernel, "__name__": called.__module__}
    exec(compile(_CALL, called.__code__.co_filename, "exec"), namespace)  # noqa: S102 - our own code
    namespace["call"].__qualname__ = f"{called.__name__}.from_python"
    caller: Callable[..., Any] = njit(cache=True)(namespace["call"])
    return caller
