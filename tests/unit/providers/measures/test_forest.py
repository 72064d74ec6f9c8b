"""Random forests: against a plain twin, against scikit-learn's, and with any number of threads."""

import numba
import numpy as np
import numpy.typing as npt
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from providers.measures.models import forest
from providers.measures.models.forest import Bins, forest_predictions
from providers.measures.utility.prediction import _score
from providers.randomness.chacha20 import Stream
from tests.naive import forest as naive

Matrix = npt.NDArray[np.float64]
KEY = Stream(bytes(range(32)), "measures", 3).key("prediction/0")


def mixed(rows: int) -> Matrix:
    """Four fields: few values, more values than intervals, missing ones, and a constant."""
    random = np.random.default_rng(rows)
    table = np.column_stack(
        [random.integers(0, 4, rows), random.normal(size=rows), random.normal(size=rows), np.ones(rows)]
    )
    table[random.random(rows) < 0.2, 2] = np.nan
    return table


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("most_drawn", [64, 4096])
def test_predictions_are_those_of_the_twin(
    monkeypatch: pytest.MonkeyPatch, classes: bool, most_drawn: int
) -> None:
    """All predictions agree, of whole numbers with a whole mean, whose sums are exact, and of classes."""
    monkeypatch.setattr(forest, "MOST_DRAWN", most_drawn)
    rows = 320
    table, tests = mixed(rows), mixed(90)
    target = np.round(3 * table[:, 0] + 4 * table[:, 1] + 2 * np.nan_to_num(table[:, 2]))
    if classes:
        target = np.digitize(target, [-2.0, 4.0, 8.0]).astype(float) * 3  # not every code occurs
    else:
        target[-1] -= target.sum() % rows
    found = forest_predictions(table, target, tests, 3, classes, KEY)
    key = [int(word) for word in KEY]
    expected = naive.predictions(
        table.tolist(), target.tolist(), tests.tolist(), 3, classes, key, min(rows, most_drawn)
    )
    assert found == pytest.approx(expected, rel=1e-12)
    assert len(set(expected)) > 2


def test_intervals_of_a_field() -> None:
    """Up to 255 values have an interval each; more share 255 intervals of about equal counts."""
    few = Bins.choose(np.array([3.0, 1.0, np.nan, 1.0, 2.0]))
    assert few.bounds.tolist() == [1.5, 2.5]
    assert few.number(np.array([0.0, 1.5, 1.6, 9.0, np.nan])).tolist() == [0, 0, 1, 2, 255]
    many = np.random.default_rng(2).normal(size=5000)
    counts = np.bincount(Bins.choose(many).number(many))
    assert len(counts) == 255
    assert counts.min() >= 19
    assert counts.max() <= 20
    assert Bins.choose(np.array([np.nan])).number(np.array([1.0, np.nan])).tolist() == [0, 255]


def test_scores_are_near_those_of_scikit_learn() -> None:
    """Accuracy and R^2 of 25 trees differ by less than the error of 1500 test rows."""
    random = np.random.default_rng(4)
    table = random.random((4500, 5))
    number = 10 * np.sin(np.pi * table[:, 0] * table[:, 1]) + 20 * (table[:, 2] - 0.5) ** 2
    number += 10 * table[:, 3] + random.normal(size=4500)
    group = np.digitize(number, [6.0, 9.0, 12.0]).astype(float)
    for target, peer in ((number, RandomForestRegressor), (group, RandomForestClassifier)):
        theirs = peer(25, random_state=1, max_features="sqrt").fit(table[:3000], target[:3000])
        found = forest_predictions(table[:3000], target[:3000], table[3000:], 25, target is group, KEY)
        ours = _score(found, target[3000:], target is group)
        assert ours == pytest.approx(theirs.score(table[3000:], target[3000:]), abs=0.04)
        assert ours > 0.6


def test_threads_do_not_change_a_prediction() -> None:
    table = mixed(3000)
    target = table[:, 0] + table[:, 1]
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        one = forest_predictions(table, target, table[:500], 5, False, KEY)
    finally:
        numba.set_num_threads(threads)
    assert (forest_predictions(table, target, table[:500], 5, False, KEY) == one).all()


def test_the_score_of_a_constant_target() -> None:
    """R^2 is 1 if a constant is predicted exactly, and 0 if not; else it is 1 - residuals / variance."""
    assert _score(np.ones(3), np.ones(3), False) == 1.0
    assert _score(np.zeros(3), np.ones(3), False) == 0.0
    assert _score(np.array([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0]), False) == pytest.approx(0.5)
    assert _score(np.array([1.0, 2.0]), np.array([1.0, 3.0]), True) == 0.5
