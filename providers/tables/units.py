"""Units of several rows: persons, or households, whose rows are not independent of each other.

Rows of one person are not different persons who could be mistaken for each other. A figure of dependent rows
is as uncertain as a figure of their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.tables.codes import codes_and_nulls

_PARAMETERS = ("unit_id", "household", "household_check")
"""Parameters of services that name the field of units; a service takes one of them."""


def unit_field(parameters: Mapping[str, Any]) -> str | None:
    """Return the field by which rows belong together, from a run's parameters; None: rows stand alone."""
    return next((str(parameters[name]) for name in _PARAMETERS if parameters.get(name) is not None), None)


def unit_of_params(parameters: object) -> str | None:
    """Return the same field from checked parameters of a run, or from None for an unknown run."""
    return None if parameters is None else unit_field(vars(parameters))


def unit_codes(table: pa.Table, field: str | None) -> Int64Array | None:
    """Return the unit of each row, numbered from 0; a row without a unit is one of its own.

    None if the table has no such field.
    """
    if field is None or field not in table.schema.names:
        return None
    column = table.column(field)
    found, count, absent = codes_and_nulls(column)
    if absent:
        missing = np.flatnonzero(column.is_null().to_numpy())
        found = found.copy()
        found[missing] = count + np.arange(len(missing))
        found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found


def units_in_classes(classes: Int64Array, units: Int64Array | None) -> Int64Array:
    """Return the number of units that have a row in each class, or of its rows without units.

    Parameters
    ----------
    classes : ndarray of int64, shape (rows,)
        Class of each row; every number from 0 on occurs.
    units : ndarray of int64, shape (rows,), optional
        Unit of each row, from 0 on.
    """
    if not len(classes):
        return np.zeros(0, np.int64)
    if units is None:
        return np.bincount(classes)
    count = int(units.max()) + 1
    return np.bincount(np.unique(classes * count + units) // count)
