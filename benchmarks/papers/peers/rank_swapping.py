"""Rank swapping with coded tails, the method that sdcMicro calls ``rankSwap``.

References
----------
Moore 1996, Controlled data-swapping techniques for masking public use microdata, RR 96-04.
Templ, Kowarik and Meindl 2015, Statistical disclosure control for micro-data using the R package sdcMicro.
"""

import numpy as np

from benchmarks.papers.runs import Matrix

TAIL = 0.05
"""Share of the rows at either end of a field that receive their mean instead of being swapped."""


def rank_swap(
    source: Matrix,
    generator: np.random.Generator,
    reach: float | None = None,
    preservation: float | None = None,
    tail: float = TAIL,
) -> Matrix:
    """Exchange each field's values between rows whose ranks are near each other.

    The largest and the smallest `tail` of a field's values are replaced by their means. Of the others, from
    the largest down, each that is not exchanged yet is exchanged with a random one of the following
    ``reach`` rows.

    Parameters
    ----------
    source : ndarray, shape (rows, fields)
    generator : numpy.random.Generator
    reach : float, optional
        sdcMicro's P, as a share of the rows that are not coded.
    preservation : float, optional
        sdcMicro's R0, the correlation to preserve, instead of `reach`: a field's reach is
        sqrt(2 (1 - R0) variance) / range, of the rows that are not coded (Moore 1996, section IV).
    tail : float
        Share of the rows coded at either end.

    Returns
    -------
    ndarray, shape (rows, fields)

    Raises
    ------
    ValueError
        If neither or both of `reach` and `preservation` are given.
    """
    if (reach is None) == (preservation is None):
        raise ValueError("give either reach or preservation")
    return np.column_stack(
        [_swapped(field, generator, reach, preservation or 0.0, tail) for field in source.T]
    )


def _swapped(
    field: Matrix, generator: np.random.Generator, reach: float | None, preservation: float, tail: float
) -> Matrix:
    order = np.argsort(-field, kind="stable")
    values = field[order].copy()
    coded = int(len(values) * tail)
    middle = values[coded : len(values) - coded].copy()
    if coded:
        ends = values[coded - 1] - values[-coded]
        values[:coded], values[-coded:] = values[:coded].mean(), values[-coded:].mean()
    else:
        ends = values[0] - values[-1]
    if reach is None:
        reach = float(np.sqrt(2.0 * middle.var() * (1.0 - preservation)) / ends) if ends else 0.0
    rows = len(middle)
    swapped = np.zeros(rows, bool)
    for row in range(rows):
        if swapped[row]:
            continue
        free = np.flatnonzero(~swapped[row + 1 : min(rows, int(row + rows * reach))])
        if len(free):
            partner = row + 1 + int(generator.choice(free))
            middle[[row, partner]] = middle[[partner, row]]
            swapped[[row, partner]] = True
    values[coded : len(values) - coded] = middle
    result = np.empty_like(field)
    result[order] = values
    return result
