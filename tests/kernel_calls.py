"""Calls of functions that only kernels call, from tests."""

from collections.abc import Callable
from typing import Any

from numba import njit


def from_python(kernel: Any) -> Callable[..., Any]:
    """Return a function that calls a compiled function which has no Python wrapper."""
    caller: Callable[..., Any] = njit(lambda *arguments: kernel(*arguments))
    return caller
