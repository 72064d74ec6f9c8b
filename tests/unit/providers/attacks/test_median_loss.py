"""Medians of leaves are those of sklearn's own loss, and so are the models."""

import numpy as np
import pytest
from sklearn._loss.loss import AbsoluteError
from sklearn.ensemble import HistGradientBoostingRegressor

from providers.attacks.median_loss import median_loss


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 101, 1000])
def test_medians_are_those_of_sklearn(rows: int) -> None:
    """Also of ties, and of weighted values."""
    values = np.random.default_rng(rows).normal(size=rows).round(1)
    values[: rows // 3] *= 1e300
    weights = np.arange(1.0, rows + 1)
    own, known = median_loss(), AbsoluteError()
    assert own.fit_intercept_only(values) == known.fit_intercept_only(values)
    assert own.fit_intercept_only(values, weights) == known.fit_intercept_only(values, weights)


def test_models_are_those_of_sklearn() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(900, 3))
    values = np.exp(features[:, 0] + random.normal(size=900)).round(2)
    guesses = [
        HistGradientBoostingRegressor(loss=loss, max_iter=20, random_state=0).fit(features, values)
        for loss in (median_loss(), "absolute_error")
    ]
    np.testing.assert_array_equal(*(each.predict(features) for each in guesses))
