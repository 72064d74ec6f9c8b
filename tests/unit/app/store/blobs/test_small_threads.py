"""Threads with small stacks."""

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.store.blobs import small_threads
from app.store.blobs.small_threads import submit


def _stack_bytes() -> int:
    """Return the size of the mapping that holds this thread's stack, by its limits in the C library."""
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t()
    library.pthread_self.restype = ctypes.c_void_p
    assert library.pthread_getattr_np(ctypes.c_void_p(library.pthread_self()), attributes) == 0
    assert library.pthread_attr_getstacksize(attributes, ctypes.byref(size)) == 0
    library.pthread_attr_destroy(attributes)
    return size.value


def test_a_thread_of_these_has_a_small_stack_and_later_threads_the_usual_one() -> None:
    found: list[int] = []

    def note() -> None:
        found.append(_stack_bytes())

    with small_threads._SIZE:  # threads of other tests may be in `submit`
        before = threading.stack_size()
    with ThreadPoolExecutor(1) as threads:
        submit(threads, note).result()
    with small_threads._SIZE, ThreadPoolExecutor(1) as threads:
        assert threading.stack_size() == before
        threads.submit(note).result()
    assert found[0] <= 2**21 < found[1]


def test_two_threads_do_not_leave_the_small_size_behind() -> None:
    """One took the small size of the other for the usual one, and set it last."""
    with small_threads._SIZE:
        before = threading.stack_size()

    def often() -> None:
        for _ in range(200):
            with ThreadPoolExecutor(1) as threads:
                submit(threads, int).result()

    with ThreadPoolExecutor(4) as callers:
        for done in [callers.submit(often) for _ in range(4)]:
            done.result()
    with small_threads._SIZE:
        assert threading.stack_size() == before


def test_a_thread_beyond_the_memory_limit_is_a_lack_of_memory() -> None:
    """Python reports it as an error of another kind, which would be one of the service."""

    class Full(ThreadPoolExecutor):
        def submit(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise RuntimeError("can't start new thread")

    with Full() as threads, pytest.raises(MemoryError):
        submit(threads, print)
