"""Threads with small stacks: the whole stack of a thread counts towards the memory budget of its worker."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_STACK_BYTES = 1 << 20
"""Stack of a thread that hashes or seals. The system's default is 8 MB, of which such work needs little."""


def submit(threads: ThreadPoolExecutor, work: Callable[..., None], *arguments: Any) -> Future[None]:
    """Submit work to threads; a thread that this starts has a stack of 1 MiB.

    Raises
    ------
    RuntimeError
        The memory limit does not admit another thread.
    """
    before = threading.stack_size(_STACK_BYTES)
    try:
        return threads.submit(work, *arguments)
    finally:
        threading.stack_size(before)
