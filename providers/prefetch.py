"""Hints to the processor, for kernels that read or write many streams at once.

Such a kernel begins a new cache line every few rows, each time in another stream: no hardware
prefetcher follows so many, and whatever begins a line waits for the memory. A third of the time of a scatter
went there, and of a gather from as many streams.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_TO_READ, _TO_WRITE = 0, 1
_KEEP, _DATA = 3, 1


def _prefetch(array: Any, index: Any, purpose: int) -> tuple[Any, Any]:
    """Type and code of a prefetch.

    It changes nothing, and the index (int64 or uint64) may lie beyond the array: a prefetch never faults.
    """
    pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), pointer)
        kind = ir.FunctionType(ir.VoidType(), [pointer, int32, int32, int32])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        builder.call(prefetch, [place, *(ir.Constant(int32, hint) for hint in (purpose, _KEEP, _DATA))])
        return context.get_dummy_value()

    return types.void(array, index), codegen


@intrinsic
def prefetch_for_writing(typingctx: Any, array: Any, index: Any) -> Any:
    """Have the cache line of ``array[index]`` ready to be written soon."""
    return _prefetch(array, index, _TO_WRITE)


@intrinsic
def prefetch_for_reading(typingctx: Any, array: Any, index: Any) -> Any:
    """Have the cache line of ``array[index]`` ready to be read soon."""
    return _prefetch(array, index, _TO_READ)
