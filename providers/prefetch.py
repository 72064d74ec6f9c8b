"""A hint to the processor, for kernels that write many streams at once.

Such a kernel begins a new cache line every few rows, each time in another stream: no hardware
prefetcher follows so many, and every store that begins a line waits for the memory. A third of the time of
a scatter went there.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_TO_WRITE, _KEEP, _DATA = 1, 3, 1


@intrinsic
def prefetch_for_writing(typingctx: Any, array: Any, index: Any) -> Any:
    """Have the cache line of ``array[index]`` ready to be written soon.

    It changes nothing, and the index (int64 or uint64) may lie beyond the array: a prefetch never faults.
    """
    pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), pointer)
        kind = ir.FunctionType(ir.VoidType(), [pointer, int32, int32, int32])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        builder.call(prefetch, [place, *(ir.Constant(int32, hint) for hint in (_TO_WRITE, _KEEP, _DATA))])
        return context.get_dummy_value()

    return types.void(array, index), codegen
