"""Arrays of a batch of segments as the kernels take them, and the numbers that stand for settings."""

from typing import Any, NamedTuple

SEGMENT, COLUMN, KEEP = 0, 1, 2
"""Bounds of a segment's values: its own range widened, the domain, or its two end values (kept)."""

ROUNDED, WHOLE_CHORD, FORWARD = 0, 1, 2
"""Walk: along rows of the inverse Cholesky factor, or in Gaussian directions; FORWARD: ahead only."""

INEQUALITIES, CONSTRAINTS, FOUND, CHOSEN, DIMENSIONS, WORDS, STATUS = range(7)
"""Columns of `Segments.counts`. INEQUALITIES: constraints other than `=`; CONSTRAINTS: all localities among
the constraints; FOUND and CHOSEN: localities; DIMENSIONS: of the polytope; WORDS: drawn by the walk."""

NO_INTERIOR, TO_CENTRE, CENTRED = -1, 0, 1
"""Status of a segment without properties of interest: no interior found, centre wanted, centre found."""

PROPERTIES_TO_CENTRE, PROPERTIES_CENTRED, PROPERTIES_FIXED, PROPERTIES_NO_INTERIOR = 2, 3, 4, 5
"""Status of a segment with properties of interest; PROPERTIES_FIXED: no variable is free."""

FIRST, LOW, HIGH, RANGE, LAST, DOMAIN_LOW, DOMAIN_HIGH, EXPONENT = range(8)
"""Columns of `Segments.place`: first value; lower and upper bound and range, relative to the first value;
last value; domain. All but the exponent are in units of 2**exponent."""


class Segments(NamedTuple):
    """Segments of one or several fields, end to end.

    The values of segment t are ``value_starts[t]`` up to ``value_starts[t + 1]``; the other starts likewise.
    """

    keys: Any
    """uint32, shape (segments, 8): random key of the segment's field."""
    identities: Any
    """uint64, shape (segments,): number of the segment in its field."""
    exact: Any
    """bool, shape (segments,): whether the values are whole units."""
    value_starts: Any
    """int64, shape (segments + 1,): starts in `units`, `values`, `first` and `last`."""
    units: Any
    """uint64, shape (values,): sorted distinct values as whole units, where `exact`."""
    values: Any
    """float64, shape (values,): sorted distinct values."""
    first: Any
    """int64, shape (values,): first variable of each distinct value, within its segment."""
    last: Any
    """int64, shape (values,): last variable of each distinct value, within its segment."""
    variable_starts: Any
    """int64, shape (segments + 1,): starts in `point`, `centre` and `x`."""
    point: Any
    """float64, shape (variables,): current point of the walk."""
    centre: Any
    """float64, shape (variables,): analytic centre."""
    x: Any
    """float64, shape (variables,): published values."""
    constraint_starts: Any
    """int64, shape (segments + 1,): starts in the second axis of `constraints`."""
    constraints: Any
    """int32, shape (4, constraints): variables i, j, k and sense of each kept locality."""
    counts: Any
    """int64, shape (segments, 7): see `INEQUALITIES` to `STATUS`."""
    newton: Any
    """float64, shape (segments, 3): state of `polytope.advance_centre`."""
    basis_starts: Any
    """int64, shape (segments + 1,): starts in `lattice` and `basis`; all 0 unless ties are kept equal."""
    lattice: Any
    """int64, shape (sum of n^2,): for each segment an (n, n) lattice basis, see `lattice.lattice_of`."""
    basis: Any
    """float64, shape (sum of n^2,): `lattice` as directions of the walk."""
    trace: Any
    """float64, shape (segments, 2, 6): of two slow modes of the walk, count, first and last value, sum, sum
    of squares, and sum of products of neighbours."""
    place: Any
    """float64, shape (segments, 8): see `FIRST` to `EXPONENT`."""


class Grid(NamedTuple):
    """Grid of whole steps of 10**-decimals on which values are published."""

    steps: float
    """Steps per 1: 10**decimals; 0 if values are not rounded."""
    keeps_type: Any
    """bool, shape (segments,): whether values are published as steps from the first value, not as float64."""
    factor: Any
    """int64, shape (segments,): steps per unit of the source's values; 0 if these are no whole units."""
    origin: Any
    """int64, shape (segments,): first value in steps where `factor` is not 0; else 0."""
    bounds: Any
    """int64, shape (segments, 2): least and greatest step that is published, relative to the origin."""
    sweeps: int
    """Number of passes of a walk on the grid over the variables."""
