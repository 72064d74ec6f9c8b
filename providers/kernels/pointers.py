"""Pass any number of arrays to one kernel as raw addresses.

The argument types of a kernel are fixed when it is compiled, and a tuple of arrays has a different type for
each length. A kernel over all fields of a table therefore takes the addresses of their data. The caller
must keep the arrays alive.

`float_at` is hand-written LLVM for this reason, not for speed: numba's only equivalent, `carray`, builds an
array for every address, where a single load suffices.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import UInt64Array
from providers.numba import intrinsic, ir, types


def addresses_of(arrays: Sequence[npt.NDArray[np.float64]]) -> UInt64Array:
    """Return the address of each array's data; the arrays must be contiguous."""
    assert all(array.itemsize == 8 and array.flags.c_contiguous for array in arrays)  # noqa: S101 - or a kernel reads out of bounds
    return np.array([array.ctypes.data for array in arrays], np.uint64)


@intrinsic
def float_at(typingctx: Any, address: Any, index: Any) -> Any:
    """Return element `index` (int64) of the float64 array whose data begins at `address` (uint64)."""
    # carray(address, (index + 1,), np.float64)[index]

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(begin, [arguments[1]]), align=8)

    return types.float64(types.uint64, types.int64), codegen
