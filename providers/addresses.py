"""Any number of arrays in one compiled kernel, read by their addresses.

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


def addresses_of(arrays: Sequence[npt.NDArray[np.float64]]) -> UInt64Array:
    """Where the data of each array begins; each must lie in one piece."""
    assert all(array.itemsize == 8 and array.flags.c_contiguous for array in arrays)  # noqa: S101 - else a kernel reads what is not there
    return np.array([array.ctypes.data for array in arrays], np.uint64)


@intrinsic
def float_at(typingctx: Any, address: Any, index: Any) -> Any:
    """Number `index` (int64) of the float64 numbers that begin at an address (uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(begin, [arguments[1]]), align=8)

    return types.float64(types.uint64, types.int64), codegen
