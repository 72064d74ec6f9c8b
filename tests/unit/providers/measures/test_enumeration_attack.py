"""Quantiles of the attack that tries every transform."""

import numpy as np
import pytest

from providers.measures.risk.enumeration_attack import GRID, quantiles_of


@pytest.mark.parametrize("rows", [1, 2, 10, 199, 200, 201, 3000])
def test_quantiles_are_those_of_numpy(rows: int) -> None:
    """Bit for bit, with ties."""
    values = np.random.default_rng(rows).normal(size=(rows, 3)).round(2)
    np.testing.assert_array_equal(quantiles_of(values), np.quantile(values, GRID, axis=0))
