"""Threads with small stacks: the whole stack of a thread counts towards the memory budget of its worker."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_STACK_BYTES = 1 << 20
"""Stack of a thread that hashes, seals or flushes. The system's default is 8 MB; such work needs little."""

_SIZE = threading.Lock()
"""Held while the size of new stacks, which the whole process shares, is another one."""


def submit(threads: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Future[None]:
    """Submit work to threads; a thread that this starts has a stack of 1 MiB.

    Raises
    ------
    MemoryError
        The memory limit does not admit another thread.
    """
    with _SIZE:
        before = threading.stack_size(_STACK_BYTES)
        try:
            return threads.submit(work, *arguments)
        except RuntimeError as error:  # "can't start new thread"
            raise MemoryError(str(error)) from None
        finally:
            threading.stack_size(before)
