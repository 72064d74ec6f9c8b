"""Loops of parallel kernels run as functions of ranges, in numba's threads."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from providers.kernels.decorators import within
from providers.kernels.parallel import parallel, ranges_of
from providers.numba import get_num_threads, prange, set_num_threads


@parallel
def _square(numbers, first, last):
    for index in prange(first, last):
        numbers[index] = index * index


@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 2), (4, 5), (0, 2), (2, 101)])
def test_each_index_is_visited_once(first: int, last: int) -> None:
    numbers = np.full(101, -1, np.int64)
    _square(numbers, first, last)
    expected = np.full(101, -1, np.int64)
    expected[first:last] = np.arange(first, last) ** 2
    np.testing.assert_array_equal(numbers, expected)


@parallel(least=10)
def _note_threads(threads):
    for index in prange(len(threads)):
        threads[index] = numba.get_thread_id()


@pytest.mark.parametrize(("count", "most"), [(0, 0), (1, 1), (19, 1), (20, 2), (1000, 2)])
def test_a_thread_is_woken_only_for_enough_indices(count: int, most: int) -> None:
    threads = np.full(count, -1, np.int64)
    before = get_num_threads()
    available = min(2, numba.config.NUMBA_NUM_THREADS)
    set_num_threads(available)
    try:
        _note_threads(threads)
    finally:
        set_num_threads(before)
    assert len(set(threads.tolist())) == min(most, available)


@pytest.mark.parametrize(("rows", "ranges"), [(0, 1), (9, 1), (19, 1), (20, 2), (1000, 2)])
def test_ranges_have_a_least_number_of_rows(rows: int, ranges: int) -> None:
    before = get_num_threads()
    available = min(2, numba.config.NUMBA_NUM_THREADS)
    set_num_threads(available)
    try:
        assert ranges_of(rows, 10) == min(ranges, available)
    finally:
        set_num_threads(before)


def test_a_short_loop_leaves_the_caller_all_threads() -> None:
    """The pool takes fewer threads for it, and would keep that number for the calling thread."""
    before = get_num_threads()
    available = min(2, numba.config.NUMBA_NUM_THREADS)
    set_num_threads(available)
    try:
        _square(np.zeros(9, np.int64), 4, 5)
        assert get_num_threads() == available
    finally:
        set_num_threads(before)


@within
def _checked_root(number):
    if number < 0:
        raise ValueError("negative")
    return np.sqrt(number)


@parallel
def _roots_of_rows(numbers, roots, sums, halved):
    """Both loops use the same names as the code between them."""
    for row in prange(len(numbers)):
        scratch = np.empty(2, np.float64)
        for column in range(2):
            scratch[column] = _checked_root(numbers[row, column])
        for column in range(2):
            roots[row, column] = scratch[column]
    total = 0.0
    for row in range(len(numbers)):
        total += roots[row, 0]
    sums[0] = total
    if halved:
        for row in prange(len(numbers)):
            if numbers[row, 0] == 4.0:
                continue
            roots[row, 1] /= 2.0
    return total


@pytest.mark.parametrize("halved", [False, True])
def test_a_kernel_may_have_several_loops_and_other_code(halved: bool) -> None:
    numbers = np.arange(200.0).reshape(100, 2)
    roots, sums = np.empty((100, 2)), np.empty(1)
    total = _roots_of_rows(numbers, roots, sums, halved)
    expected = np.sqrt(numbers)
    assert total == sums[0] == pytest.approx(expected[:, 0].sum())
    if halved:
        expected[numbers[:, 0] != 4.0, 1] /= 2.0
    np.testing.assert_array_equal(roots, expected)


def test_an_exception_of_an_iteration_reaches_the_caller() -> None:
    """And the next call works."""
    numbers = np.ones((100, 2))
    numbers[70, 1] = -1.0
    with pytest.raises(ValueError, match="negative"):
        _roots_of_rows(numbers, np.empty((100, 2)), np.empty(1), False)
    numbers[70, 1] = 1.0
    assert _roots_of_rows(numbers, np.empty((100, 2)), np.empty(1), False) == 100.0


class _Lists(NamedTuple):
    counts: Any
    largest: Any


@parallel
def _count(lists, tasks):
    for task in prange(tasks):
        lists.counts[task] += task
        counts = lists.largest
        counts[task] = max(counts[task], task)


def test_arrays_are_written_through_members_of_a_named_tuple() -> None:
    """numba's own parallel pass would drop both assignments."""
    lists = _Lists(np.ones(50, np.int64), np.full(50, 7, np.int64))
    _count(lists, 50)
    np.testing.assert_array_equal(lists.counts, np.arange(50) + 1)
    np.testing.assert_array_equal(lists.largest, np.maximum(np.arange(50), 7))


@parallel(error_model="numpy")
def _reciprocals(numbers, out):
    for index in prange(len(numbers)):
        out[index] = 1.0 / numbers[index]


def test_options_hold_for_loops() -> None:
    out = np.empty(2)
    _reciprocals(np.array([0.0, 2.0]), out)
    np.testing.assert_array_equal(out, [np.inf, 0.5])


def _sum(numbers):
    total = 0
    for index in prange(len(numbers)):
        total += numbers[index]
    return total


def _smallest(numbers):
    smallest = 0
    for index in prange(len(numbers)):
        smallest = min(smallest, numbers[index])
    return smallest


def _find(numbers):
    for index in prange(len(numbers)):
        if numbers[index] == 0:
            return index
    return -1


def _no_loop(numbers):
    return numbers[0]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_sum, "`total` is read before the iteration assigns it"),
        (_smallest, "`smallest` is read before the iteration assigns it"),
        (_find, "cannot return"),
        (_no_loop, "no loop over prange"),
    ],
)
def test_loops_that_are_not_independent_are_refused(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        parallel(function)
