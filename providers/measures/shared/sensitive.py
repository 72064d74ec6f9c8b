"""Values of a sensitive field within the classes of the key fields, and the report of worst fields."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from providers.arrays import Int64Array
from providers.measures.shared.columns import SIDES, Column, Side
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable


class ClassValues(NamedTuple):
    """Pairs of a class and a value that occur, in ascending order of class, then of value."""

    classes: Int64Array
    """Class of each pair, from 0 on; each class occurs; shape (pairs,)."""
    values: Int64Array
    """Value of each pair, from 0 on; shape (pairs,)."""
    counts: Int64Array
    """Number of rows of each pair; shape (pairs,)."""
    sizes: Int64Array
    """Number of rows of each class; shape (classes,)."""


def class_values(classes: Int64Array, values: Int64Array) -> ClassValues:
    """Count the pairs of a class and a value.

    Parameters
    ----------
    classes, values : ndarray of int, shape (rows,)
        Class and value of each row, from 0 on; classes that do not occur are dropped. At least one row.
    """
    _, classes = np.unique(classes, return_inverse=True)
    levels = int(values.max()) + 1
    pairs, counts = np.unique(classes.astype(np.int64) * levels + values, return_counts=True)
    return ClassValues(pairs // levels, pairs % levels, counts, np.bincount(classes))


def one_of_each_person(
    classes: Int64Array, values: Int64Array, units: Int64Array | None
) -> tuple[Int64Array, Int64Array]:
    """Return class and value of each person in each class; those of the rows if each row is another person.

    A person with several values in a class gets the value that most persons of the class have, and the least
    on ties. A value that all persons of a class have is known of each of them, whatever other values they
    have.

    Parameters
    ----------
    classes, values : ndarray of int, shape (rows,)
        Class and value of each row, from 0 on; at least one row.
    units : ndarray of int64, shape (rows,), optional
        Person of each row, from 0 on.
    """
    if units is None:
        return classes, values
    persons, levels = int(units.max()) + 1, int(values.max()) + 1
    entries, entry = np.unique(classes * persons + units, return_inverse=True)
    pairs = np.unique(entry * levels + values)
    entry, values = pairs // levels, pairs % levels
    classes = entries // persons
    _, of_value, frequency = np.unique(
        classes[entry] * levels + values, return_inverse=True, return_counts=True
    )
    order = np.lexsort((values, -frequency[of_value], entry))
    first = np.searchsorted(entry, np.arange(len(entries)))  # `entry` ascends
    return classes, values[order[first]]


Worst = Mapping[str, Callable[[list[float]], float]]


def by_sensitive_field(
    comparison: Comparison, take: Callable[[Column, Side], dict[str, float] | None], worst: Worst
) -> Finding:
    """Take the figures of each sensitive field in both tables, and the worst of each figure.

    Parameters
    ----------
    comparison : Comparison
    take : callable
        Figures of a field in one table; None if the table has no value of the field.
    worst : mapping
        Figure -> function that returns the worst of its values, `min` or `max`.

    Returns
    -------
    Finding
        ``before`` and ``after``: each figure's worst value over the fields; ``by_field``: field -> both.

    Raises
    ------
    NotApplicable
        No sensitive field is named, or none has a value in both tables.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in comparison.need_sensitive_fields():
        column = comparison.named_column(name)
        sides = {"before": take(column, SIDES[0]), "after": take(column, SIDES[1])}
        measured = {when: figures for when, figures in sides.items() if figures is not None}
        if len(measured) == len(sides):
            found[name] = measured
    if not found:
        raise NotApplicable("no sensitive field has a value in both tables")
    value: dict[str, Any] = {
        when: {key: pick([each[when][key] for each in found.values()]) for key, pick in worst.items()}
        for when in ("before", "after")
    }
    return Finding(value | {"by_field": found}, list(found), notes=comparison.unit_note)
