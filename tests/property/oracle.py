"""The oracle of a locked exchange within groups: how far correlations are expected to move.

Of a group of c rows every one receives another row's values, each of the c - 1 others equally likely,
so that a swap field keeps nothing of its covariance with a field that stays but what the group's means
have, less 1/(c - 1) of the rest. With z-scores z of the n rows,

    E[delta rho_ij] = - sum over groups b of c/(c-1) sum over r in b of
                      (z_ri - mean_bi)(z_rj - mean_bj) / n.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Matrix = npt.NDArray[np.float64]
STANDARD_ERRORS = 4.5
SEEDS = 200
ROUNDING = 1e-12  # where a field is constant in every group, nothing changes but by rounding


def scores(table: pa.Table, names: Sequence[str]) -> Matrix:
    """z-scores, by the population standard deviation."""
    values = np.column_stack([np.asarray(table[name], np.float64) for name in names])
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0))


def expected(moved: Matrix, stays: Matrix, groups: Iterable[Sequence[int]]) -> Matrix:
    """E[delta rho], shape (fields that move, fields that stay)."""
    total = np.zeros((moved.shape[1], stays.shape[1]))
    for group in groups:
        size = len(group)
        if size > 1:
            here, there = moved[group], stays[group]
            within = (here - here.mean(axis=0)).T @ (there - there.mean(axis=0))
            total -= size / (size - 1) * within
    return total / len(moved)


def assert_as_expected(
    swap: Callable[[bytes], pa.Table],
    table: pa.Table,
    swap_fields: Sequence[str],
    others: Sequence[str],
    groups: Iterable[Sequence[int]],
) -> None:
    """Assert that the mean change over many seeds is the expected one, and that nothing else changes.

    Parameters
    ----------
    swap : callable
        Seed of 32 bytes -> the destination, no row suppressed.
    swap_fields, others : sequences of str
        Numeric fields that move together, and that stay.
    groups : sequences of row numbers
        Within which values are exchanged, each row of two or more taking part.
    """
    moved, stays = scores(table, swap_fields), scores(table, others)
    before = moved.T @ stays / len(moved)
    together = rows_of(table, swap_fields)
    changes = []
    for seed in range(SEEDS):
        after = swap(seed.to_bytes(32, "big"))
        # Rows of S together are the same rows in another order, the rest is untouched: delta rho is 0.
        assert np.array_equal(rows_of(after, swap_fields), together)
        assert after.select(list(others)).equals(table.select(list(others)))
        changes.append(scores(after, swap_fields).T @ stays / len(moved) - before)
    mean = np.mean(changes, axis=0)
    error = np.std(changes, axis=0, ddof=1) / np.sqrt(SEEDS)
    difference = np.abs(mean - expected(moved, stays, groups))
    wrong = difference > STANDARD_ERRORS * error + ROUNDING
    assert not wrong.any(), (mean, expected(moved, stays, groups), error)


def rows_of(table: pa.Table, names: Sequence[str]) -> npt.NDArray[Any]:
    """The rows of these fields, sorted."""
    values = np.column_stack([np.asarray(table[name], np.float64) for name in names])
    return values[np.lexsort(values.T)]
