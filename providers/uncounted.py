"""Kernels that count no references to their arrays.

numba counts a reference to every array, and to every member of a named tuple, when a function gets it
and when it ends, with an operation that locks the memory: in a search, which calls many small functions
for every row, that took more than half of the time of one thread, and threads wait for each other's.

Such a kernel only borrows its arrays. It cannot allocate one, which numba says when it is compiled, and
must return none; it may take views, and call others of its kind. What owns the arrays is the ordinary
kernel that calls it.
"""

from numba import njit

uncounted = njit(cache=True, nogil=True, _nrt=False)

inlined = njit(cache=True, nogil=True, _nrt=False, inline="always")
"""The same, where it is written into whatever calls it: a call passes every member of every array."""
