"""Constraints of properties of interest over a segment's variables, and their exact evaluation.

A constraint is (sum_v m_v c_v x_v) / m <= lambda (definition 1). The c_v and lambda are the user's numbers.
The m are whole numbers: those of a mean over N records and m = N, so that no coefficient is rounded. Every
number counts as the float64 nearest to it. The left side is computed exactly and rounded once to float64
before it is compared: a mean of integers of 39/10 is at most 3.9, which float64 does not hold exactly. Each
product is split into its nearest float64 and the rest (Dekker 1971, doi:10.1007/BF01397083), and all of them
are added in a long accumulator.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from providers.kernels.decorators import within
from providers.kernels.exact_sum import LIMBS, add_exactly, nearest_mean
from providers.numba import njit

SCALE_BITS = 64
"""Numbers are multiplied by 2**-64, so that no product overflows."""

_SCALE = 2.0**-SCALE_BITS

_SPLITTER = 2.0**27 + 1.0
"""Factor of Veltkamp's split of a float64 into two halves of its bits."""

LEAST_SIZE = 2.0**-800
"""Least size of a nonzero value that is evaluated; below it the rest of a product might be lost."""


class PropertyConstraints(NamedTuple):
    """Constraints of properties of interest of several segments, end to end.

    The constraints of segment t are ``starts[t]`` up to ``starts[t + 1]``; the terms of constraint c are
    ``term_starts[c]`` up to ``term_starts[c + 1]``.
    """

    starts: Any
    """int64, shape (segments + 1,): starts of the constraints."""
    term_starts: Any
    """int64, shape (constraints + 1,): starts of each constraint's terms."""
    variable: Any
    """int64, shape (terms,): variable, within its segment."""
    coefficient: Any
    """float64, shape (terms,): c_v, of size 1e-9 to 1e9."""
    multiple: Any
    """int64, shape (terms,): m_v, up to 2**12."""
    bound: Any
    """float64, shape (constraints,): lambda, 0 or of size 1e-200 to 1e300."""
    bound_multiple: Any
    """int64, shape (constraints,): m, up to 2**12."""
    relation: Any
    """int64, shape (constraints,): number of the user's relation."""
    base: Any
    """int64, shape (segments,): least unit of the field where values are published as steps, else 0."""


@within
def _add_number(limbs, number, bits, value, multiple):
    """Add `multiple` (int) times `value` (float64) to `limbs`, int64 (LIMBS,).

    `number`, float64 (1,), and its view `bits`, int64 (1,), are scratch.
    """
    number[0] = value
    add_exactly(limbs, bits[0], multiple)


@within
def _halves(value):
    """Split `value`, a float64, into the upper and lower half of its bits, whose sum it is (Veltkamp)."""
    large = _SPLITTER * value
    upper = large - (large - value)
    return upper, value - upper


@within
def exact_slack(x, properties, constraint):
    """Return the slack of a constraint, times 2**-64: lambda less the rounded left side. Its sign is exact.

    The slack is NaN if a value is too small to be evaluated (`LEAST_SIZE`).

    Parameters
    ----------
    x : float64, shape (variables,)
        Values of the segment by variable.
    properties : PropertyConstraints
        Constraints of the batch.
    constraint : int
        Index of the constraint in `properties`.
    """
    limbs, number = np.zeros(LIMBS, np.int64), np.empty(1)
    bits = number.view(np.int64)
    for term in range(properties.term_starts[constraint], properties.term_starts[constraint + 1]):
        value, factor = x[properties.variable[term]], properties.coefficient[term]
        if value == 0.0:
            continue
        if abs(value) < LEAST_SIZE:
            return np.nan
        value *= _SCALE
        product = factor * value
        factor_upper, factor_lower = _halves(factor)
        upper, lower = _halves(value)
        rest = (factor_upper * upper - product) + factor_upper * lower + factor_lower * upper
        rest += factor_lower * lower
        multiple = properties.multiple[term]
        _add_number(limbs, number, bits, product, multiple)
        _add_number(limbs, number, bits, rest, multiple)
    return properties.bound[constraint] * _SCALE - nearest_mean(limbs, properties.bound_multiple[constraint])


@within
def properties_hold(x, properties, t):
    """Whether every property constraint of segment t (int) holds exactly at x, float64 (variables,).

    `properties` is the PropertyConstraints of the batch.
    """
    for constraint in range(properties.starts[t], properties.starts[t + 1]):
        if not exact_slack(x, properties, constraint) >= 0.0:
            return False
    return True


@within
def values_by_variable(values, first, last, x):
    """Write each distinct value to `x`, float64 (variables,), at all of its variables, `first` to `last`.

    `values` is float64 (n,), `first` and `last` are int64 (n,), for n distinct values.
    """
    for index in range(len(values)):
        x[first[index] : last[index] + 1] = values[index]


@njit(cache=True, nogil=True)
def source_slacks(value_starts, values, first, last, variables, properties, slacks):
    """Write the exact slack of every constraint at the source's values, in units of the field.

    Parameters
    ----------
    value_starts : int64, shape (segments + 1,)
        Starts of each segment's distinct values.
    values : float64, shape (values,)
        Sorted distinct values.
    first, last : int64, shape (values,)
        First and last variable of each distinct value.
    variables : int64, shape (segments,)
        Number of variables of each segment.
    properties : PropertyConstraints
        Constraints of these segments.
    slacks : float64, shape (constraints,)
        Written: see `exact_slack`.
    """
    for t in range(len(variables)):
        its_values = slice(value_starts[t], value_starts[t + 1])
        x = np.empty(variables[t])
        values_by_variable(values[its_values], first[its_values], last[its_values], x)
        for constraint in range(properties.starts[t], properties.starts[t + 1]):
            slacks[constraint] = math.ldexp(exact_slack(x, properties, constraint), SCALE_BITS)
