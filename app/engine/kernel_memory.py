"""Memory of compiled kernels, which the limit of a worker's memory leaves out.

A worker loads a kernel at its first use. If that counted, a job would fail in a new worker that succeeds in
one that has its kernels.
"""

import threading

from numba.core.event import Event, Listener, register

from app.engine.data_limit import lift_limit, private_bytes, restore_limit


class KernelMemory(Listener):  # type: ignore[misc]  # numba has no types
    """Listener to numba's compiler lock, under which kernels are compiled or loaded and threads started.

    The limit does not apply while a thread has the lock. Afterwards it is higher by the growth.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._holders = 0
        self._before = 0
        self._limit = 0

    def on_start(self, event: Event) -> None:
        """Lift the limit; the event comes before the lock is waited for."""
        with self._changing:
            self._holders += 1
            if self._holders == 1:
                self._before, self._limit = private_bytes() or 0, lift_limit()

    def on_end(self, event: Event) -> None:
        """Set the limit again, higher by the growth since the first holder came."""
        with self._changing:
            self._holders -= 1
            if self._holders == 0:
                restore_limit(self._limit, (private_bytes() or 0) - self._before)


def exempt_kernels() -> None:
    """Leave kernels out of the limit of this process from now on."""
    register("numba:compiler_lock", KernelMemory())
