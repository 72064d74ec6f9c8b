"""numba decorators: no reference counting, always inlined, no Python wrapper, optimised before it is linked.

numba counts a reference to every array, and to every member of a named tuple, at the beginning and at the
end of a function, by an atomic operation. In a nearest-neighbour search, which calls many small functions
for every row, this took more than half of the time of one thread, and threads waited for each other's
counters.

Kernels without reference counting only borrow their arrays. They cannot allocate arrays, which numba
reports when it compiles them, and must not return any. They may create views, and call other such kernels.
The ordinary kernel that calls them owns the arrays.

Kernels with threads have the decorator `providers.kernels.parallel.parallel`, not numba's own.
`tests/unit/repository/test_parallel_kernels.py` checks it.
"""

from providers.numba import OptimisedFirst, njit

within = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For functions that only kernels call: no Python wrapper, which takes longer to compile than the rest."""

within_forced = njit(cache=True, nogil=True, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Like `within`, inlined by LLVM, because a call counts references to each array of its arguments."""

within_ieee = njit(
    cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)
"""Like `within`, with IEEE 754 division: by zero gives infinity or NaN instead of an exception."""

borrowing = njit(cache=True, nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Like `within`, without reference counting, so that it cannot allocate arrays."""

uncounted = njit(cache=True, nogil=True, _nrt=False)
"""For kernels without reference counting that Python calls too."""

inlined = njit(cache=True, nogil=True, _nrt=False, inline="always")
"""Like `uncounted`, inlined into the caller, because a call passes every member of every array."""

borrowing_optimised = njit(
    cache=True,
    nogil=True,
    _nrt=False,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    pipeline_class=OptimisedFirst,
)
"""Like `borrowing`, optimised completely before callers link it, where that was measured to be faster."""

borrowing_ieee_optimised = njit(
    cache=True,
    nogil=True,
    _nrt=False,
    error_model="numpy",
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    pipeline_class=OptimisedFirst,
)
"""Like `borrowing_optimised`, with IEEE 754 division: by zero gives infinity or NaN."""
