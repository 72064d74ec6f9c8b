"""The tree and its searches make the bins of the plain algorithm, whatever ties and extremes there are."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.binning import microaggregation as diametral
from providers.binning import shrinking_tree as boxes
from providers.binning.microaggregation import partition
from providers.kernels.exact_sum import ExactSum, standardised
from tests.naive import meds

Matrix = npt.NDArray[np.floating[Any]]
Make = Callable[[np.random.Generator, int, int], Matrix]


def _some_far(random: np.random.Generator, rows: int, fields: int) -> Matrix:
    points = random.normal(size=(rows, fields))
    points[random.integers(0, rows, 1 + rows // 10)] *= 10.0 ** random.integers(-5, 100)
    return points


def _repeated(random: np.random.Generator, rows: int, fields: int) -> Matrix:
    few = random.normal(size=(1 + rows // 4, fields))
    return np.asarray(few[random.integers(0, len(few), rows)])


def _two_corners(random: np.random.Generator, rows: int, fields: int) -> Matrix:
    return np.repeat(random.integers(0, 2, (rows, 1)), fields, axis=1) * 1.0


MAKES: dict[str, Make] = {
    "normal": lambda random, rows, fields: random.normal(size=(rows, fields)),
    "lattice": lambda random, rows, fields: random.integers(0, 3, (rows, fields)) * 0.1,
    "binary": lambda random, rows, fields: random.integers(0, 2, (rows, fields)) * 1.0,
    "repeated": _repeated,
    "outliers": _some_far,
    "two corners": _two_corners,
    "equal": lambda random, rows, fields: np.full((rows, fields), 0.1),
    "huge and tiny": lambda random, rows, fields: random.choice(
        [-1e308, 1e308, 0.0, -0.0, 5e-324, 1e-170], (rows, fields)
    ),
}


def bin_numbers(points: Matrix, k: int, method: str) -> npt.NDArray[np.int64]:
    """Result of the twin, in the form of the fast implementation."""
    numbers = np.full(len(points), -1)
    for number, rows in enumerate(meds.bins(points.tolist(), k, method)):
        numbers[rows] = number
    return numbers


@pytest.mark.parametrize("method", ["exact", "mdav"])
@pytest.mark.parametrize("kind", MAKES)
def test_partition(kind: str, method: str) -> None:
    """Equal to the twin in 100 tables of each kind, by each method, in trees with leaves of any size."""
    random = np.random.default_rng(len(kind))
    for _ in range(100):
        rows, fields = int(random.integers(2, 50)), int(random.integers(1, 5))
        k = int(random.integers(2, 2 + random.choice([3, rows // 2])))
        points = MAKES[kind](random, rows, fields)
        leaf_size = int(random.integers(1, 9))
        found = partition(np.ascontiguousarray(points.T), k, method, lambda share: None, leaf_size)
        assert (found == bin_numbers(points, k, method)).all(), (points.tolist(), k)


@pytest.mark.parametrize("kind", ["normal", "lattice", "outliers"])
def test_larger_trees(kind: str) -> None:
    """Leaves of the usual size, and more rows than a cut is sampled from."""
    random = np.random.default_rng(7)
    points = MAKES[kind](random, 150, 3)
    for k, method in ((40, "exact"), (20, "mdav"), (3, "mdav")):
        found = partition(np.ascontiguousarray(points.T), k, method, lambda share: None)
        assert (found == bin_numbers(points, k, method)).all()


@pytest.mark.parametrize("method", ["exact", "mdav"])
def test_slices_change_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after little work, or never, at any point; the reported progress only grows."""
    points = np.random.default_rng(3).normal(size=(3, 3000))
    whole = partition(points, 10, method, lambda share: None)
    reported: list[float] = []
    monkeypatch.setattr(diametral, "_WORK", 3000)
    assert (partition(points, 10, method, reported.append) == whole).all()
    assert len(reported) > 30
    assert reported == sorted(reported)
    assert 0 < reported[0] < reported[-1] <= 1


@pytest.mark.parametrize("distinct", [1, 2, 50])
def test_many_equal_rows(distinct: int) -> None:
    """200 000 rows of a few values take no longer than others: they would for hours if each met each."""
    rows = 200_000
    points = (np.arange(rows) % distinct)[None, :] * np.array([[1.0], [0.5]])
    for k in (2, 1000):
        for method in ("exact", "mdav"):
            found = partition(points, k, method, lambda share: None)
            sizes = np.bincount(found)
            assert (sizes == k).all()
            if distinct == 1 and method == "exact":  # r and s are the first rows, then come the next
                assert found[: 2 * k].tolist() == [0, 1] + [0] * (k - 1) + [1] * (k - 1)


def test_a_cut_of_mostly_equal_rows() -> None:
    """A few rows among very many equal ones are found, though no sample holds them."""
    points = np.zeros((2, 50_000))
    points[:, [7, 31_000]] = [[1.0, -2.0], [0.5, 0.25]]
    found = partition(points, 25_000, "exact", lambda share: None)
    assert found[31_000] == 1
    assert found[7] == 0
    assert (np.bincount(found) == 25_000).all()


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def exact_mean(values: list[float]) -> float:
    total = ExactSum()
    total.add(np.array(values))
    return total.mean()


@given(st.lists(st.one_of(FLOATS, st.sampled_from([5e-324, -5e-324, 1.7e308, 1.0, 2**-1022])), min_size=1))
def test_exact_mean(values: list[float]) -> None:
    """The float64 nearest to the true mean, half steps and subnormal numbers included."""
    assert exact_mean(values) == float(sum(map(Fraction, values)) / len(values))


@given(st.lists(FLOATS, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_exact_mean_of_any_order(values: list[float], random: object) -> None:
    """Order does not matter."""
    assert exact_mean(values) == exact_mean(sorted(values))


@settings(max_examples=50)
@given(st.lists(FLOATS, min_size=2, max_size=30))
def test_standardised(values: list[float]) -> None:
    """Mean 0 and standard deviation 1 at every magnitude, 0 for a constant; the twin's bits."""
    found = standardised(np.array(values))
    assert found.tolist() == meds.standardised(values)
    if min(values) < max(values):
        assert math.isclose(math.fsum(found**2) / len(found), 1.0, rel_tol=1e-9)
    else:
        assert not found.any()


def test_leaf_size_is_a_leafs() -> None:
    """The tree is cut down to leaves of that size, deeper where rows are fewer than that, never empty."""
    tree = diametral._grown(np.random.default_rng(1).normal(size=(2, 5000)), boxes.LEAF, lambda share: None)
    leaves = np.flatnonzero(tree.child == 0)
    assert tree.live[leaves].sum() == 5000
    assert 1 <= tree.live[leaves].min() <= tree.live[leaves].max() <= boxes.LEAF
