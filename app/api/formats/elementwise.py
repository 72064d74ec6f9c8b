"""A function of values, applied to many columns of few values each without calling it for every one."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pyarrow as pa

_FEW_ROWS = 32
_MANY_COLUMNS = 64


def elementwise(
    function: Callable[[pa.Array, Any], pa.Array], columns: Sequence[pa.Array], hows: Sequence[Hashable]
) -> list[pa.Array]:
    """``function(column, how)`` of each, where it makes of every value one other.

    A call costs as much as hundreds of values: short columns of one type and one ``how`` are put
    end to end and taken apart again.
    """
    if len(columns) < _MANY_COLUMNS or len(columns[0]) > _FEW_ROWS:
        return [function(column, how) for column, how in zip(columns, hows, strict=True)]
    alike: dict[tuple[pa.DataType, Hashable], list[int]] = defaultdict(list)
    for place, (column, how) in enumerate(zip(columns, hows, strict=True)):
        alike[column.type, how].append(place)
    rows = len(columns[0])
    made: list[Any] = [None] * len(columns)
    for (_, how), places in alike.items():
        try:
            joined = pa.concat_arrays([columns[place] for place in places])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # encodings that cannot be made one
            for place in places:
                made[place] = function(columns[place], how)
            continue
        values = function(joined, how)
        for number, place in enumerate(places):
            made[place] = values.slice(number * rows, rows)
    return made
