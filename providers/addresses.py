"""Any number of arrays in one compiled kernel: read and written by their addresses.

A kernel's types are fixed when it is compiled, and a tuple of arrays has one type for each length. A
table has as many fields as it has; so the kernels that go over all of them at once are given where each
array begins. Whoever calls them keeps the arrays alive.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from providers.radix import UInt64Array


def addresses_of(arrays: Sequence[npt.NDArray[Any]]) -> UInt64Array:
    """Where the data of each array begins; their values must be 8 bytes wide and lie in one piece."""
    assert all(array.itemsize == 8 and array.flags.c_contiguous for array in arrays)  # noqa: S101 - else a kernel reads what is not there
    return np.array([array.ctypes.data for array in arrays], np.uint64)


def _place(builder: Any, kind: Any, address: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


@intrinsic
def float_at(typingctx: Any, address: Any, index: Any) -> Any:
    """Number `index` (int64) of the float64 numbers that begin at an address (uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(builder, ir.DoubleType(), *arguments), align=8)

    return types.float64(types.uint64, types.int64), codegen


@intrinsic
def word_at(typingctx: Any, address: Any, index: Any) -> Any:
    """Number `index` (int64) of the 64-bit words that begin at an address (uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(builder, ir.IntType(64), *arguments), align=8)

    return types.uint64(types.uint64, types.int64), codegen


@intrinsic
def put_word(typingctx: Any, address: Any, index: Any, word: Any) -> Any:
    """Write a 64-bit word at number `index` (int64) of those that begin at an address (uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(builder, ir.IntType(64), *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, types.uint64), codegen
