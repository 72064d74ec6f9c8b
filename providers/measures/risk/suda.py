"""SUDA scores: rows that are unique already on a few of the key fields (special uniques).

A minimal sample unique (MSU) of a row is a set of key fields on which the row is unique, while it is unique
on none of its subsets. The fewer fields an MSU has, and the more of them a row has, the more exposed the row
is.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import Int64Array
from providers.measures.shared.anonymity import field_codes
from providers.measures.shared.columns import SIDES
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.finding import Finding, NotApplicable
from providers.measures.shared.measure import Measure, Part
from providers.progress import Progress, no_progress, sub_progress
from providers.tables.units import units_in_classes

_LARGEST = 3
"""Most fields of an MSU that is searched for, if there are more key fields than that."""

_MOST_FIELDS = 30
"""Key fields beyond which the 4,525 sets of up to three of them are not searched."""

Subset = tuple[int, ...]
Bits = npt.NDArray[np.uint8]


def minimal_sample_uniques(
    fields: Sequence[Int64Array], largest: int, units: Int64Array | None = None
) -> Iterator[tuple[Subset, Int64Array]]:
    """Yield each set of up to `largest` fields that is an MSU of some row, and these rows.

    Parameters
    ----------
    fields : sequence of ndarray of int64, shape (rows,)
        Codes of each key field from 0 on.
    largest : int
        Most fields of a set; 1 or more.
    units : ndarray of int64, shape (rows,), optional
        Unit of each row: a row is unique if no row of another unit equals it. Default: each row is one.

    Notes
    -----
    The sets are visited in such an order that all subsets of a set come before it: a set is extended by
    fields before its first one only, in ascending order. A row that is unique on a set is left out of every
    extension: it is unique there too, and equals no other row (the superset relationship of Elliot et al.
    2002).
    O(rows log rows) for each set.
    """
    rows = len(fields[0])
    levels = [int(codes.max(initial=0)) + 1 for codes in fields]
    unique: dict[Subset, Bits] = {}  # rows that are unique on a set, a bit for each row

    def visit(
        subset: Subset, open_rows: Int64Array, codes: Int64Array, known: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[Subset, Int64Array]]:
        for field in range(subset[0] if subset else len(fields)):
            extended = (field, *subset)
            keys = codes * levels[field] + fields[field][open_rows]
            _, keys = np.unique(keys, return_inverse=True)
            single = units_in_classes(keys, None if units is None else units[open_rows])[keys] == 1
            found = open_rows[single]
            # the set without `field` is no candidate: its unique rows are not among the open ones
            for smaller in combinations(extended, len(subset)):
                if smaller != subset and len(found):
                    found = found[~_has(unique[smaller], found)]
            if len(found):
                yield extended, found
            if len(extended) < largest:
                here = known.copy()
                here[open_rows[single]] = True
                unique[extended] = np.packbits(here)
                yield from visit(extended, open_rows[~single], keys[~single], here)

    yield from visit((), np.arange(rows), np.zeros(rows, np.int64), np.zeros(rows, np.bool_))


def _has(bits: Bits, rows: Int64Array) -> npt.NDArray[np.bool_]:
    """Whether the bit of each of the rows is set; shape (rows,)."""
    found: npt.NDArray[np.bool_] = (bits[rows >> 3] >> (7 - (rows & 7)).astype(np.uint8) & 1) == 1
    return found


def suda(
    names: Sequence[str],
    fields: Sequence[Int64Array],
    progress: Progress = no_progress,
    units: Int64Array | None = None,
) -> dict[str, Any]:
    """Figures of the SUDA scores of all rows.

    Parameters
    ----------
    names : sequence of str
        Names of the key fields; two or more.
    fields : sequence of ndarray of int64, shape (rows,)
        Codes of each key field from 0 on; at least one row.
    progress : Progress
        Called for each set that is an MSU.
    units : ndarray of int64, shape (rows,), optional
        As for `minimal_sample_uniques`.

    Returns
    -------
    dict
        ``special``, the share of the rows that have an MSU; ``mean`` and ``max`` of the scores; ``by_size``,
        size of a row's smallest MSU -> share of the rows; ``contribution``, key field -> share of the sum of
        all scores that comes from MSUs with this field.

    Notes
    -----
    A row's score is the sum over its MSUs of prod for i = k to M of (ATT - i), k the fields of the MSU, ATT
    the key fields, and M the most fields of an MSU, here min(ATT - 1, 3).
    """
    count = len(fields)
    largest = min(count - 1, _LARGEST)
    rows = len(fields[0])
    scores, smallest = np.zeros(rows), np.full(rows, largest + 1)
    by_field = np.zeros(count)
    for subset, found in minimal_sample_uniques(fields, largest, units):
        progress((subset[-1] + 1) / count, "searching special uniques")
        weight = prod(count - size for size in range(len(subset), largest + 1))
        scores[found] += weight
        smallest[found] = np.minimum(smallest[found], len(subset))
        by_field[list(subset)] += weight * len(found)
    total = scores.sum()
    return {
        "special": float(np.count_nonzero(scores) / rows),
        "mean": float(total / rows),
        "max": float(scores.max()),
        "by_size": {
            str(size): float(np.count_nonzero(smallest == size) / rows) for size in range(1, largest + 1)
        },
        "contribution": {
            name: float(share / total) if total else 0.0 for name, share in zip(names, by_field, strict=True)
        },
    }


def _find(comparison: Comparison) -> Finding:
    names, steps = comparison.need_key_fields(), comparison.options.rounding
    if not 2 <= len(names) <= _MOST_FIELDS:
        raise NotApplicable(f"it needs 2 to {_MOST_FIELDS} key fields; there are {len(names)}")
    release = comparison.release
    before, after = (
        suda(
            names,
            [field_codes(table, name, steps) for name in names],
            sub_progress(comparison.progress, half / 2, (half + 1) / 2),
            comparison.units[side],
        )
        for half, (side, table) in enumerate(zip(SIDES, (release.source, release.destination), strict=True))
    )
    return Finding({"before": before, "after": after}, names, notes=comparison.unit_note)


MEASURE = Measure(
    key="suda",
    title="Special uniques (SUDA)",
    concerns="risk",
    goal="low",
    range="shares: 0 to 1; scores: 0 or more",
    formula="special: share of the rows that are unique on a set of at most M = min(ATT - 1, 3) of the ATT "
    "key fields; score of a row: sum over its minimal such sets, of k fields each, of prod for i = k to M of "
    "(ATT - i); with units, no row of another unit equals a unique row",
    source="Manning, Haglin and Keane 2008, doi:10.1007/s10618-007-0078-6; score: Elliot, Manning, Mayes, "
    "Gurd and Bane 2005, SUDA: a program for detecting special uniques",
    cost="O(n log n) for each set of up to 3 key fields",
    find=_find,
    parts=(Part("after.special"), Part("after.mean")),
    needs=("key_fields",),
    uses=("rounding",),
    words={
        "special": "share of special uniques",
        "mean": "mean score",
        "max": "largest score",
        "by_size": "share of rows by size of their smallest set",
        "contribution": "share of the scores by key field",
        "before.special": "share of special uniques",
        "after.special": "share of special uniques",
        "before.mean": "mean score",
        "after.mean": "mean score",
    },
)
