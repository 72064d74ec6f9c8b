"""Rows between splitters, for few and many of them, and the rows of units, which are read once."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.store.blobs.scratch import SealedScratch
from providers.out_of_core.partitions import Rows
from providers.out_of_core.samplesort import Splitters, UnitCuts, UnitParts, sorted_spools
from providers.tables.columns import take_rows

ROWS = 400
_RANDOM = np.random.default_rng(5)

TABLE = pa.table(
    {
        "few": _RANDOM.integers(0, 5, ROWS),
        "text": [f"t{value}" for value in _RANDOM.integers(0, 40, ROWS)],
        "wide": _RANDOM.integers(-(2**63), 2**63 - 1, ROWS),
        "row": np.arange(ROWS),
    }
)


def in_order(names: Sequence[str]) -> list[int]:
    """Return the row numbers in the order of some fields, ties by row."""
    columns = [TABLE.column(name).to_pylist() for name in names]
    return sorted(range(ROWS), key=lambda row: (*(column[row] for column in columns), row))


def labels_of(names: Sequence[str]) -> Callable[[pa.Table], list[pa.ChunkedArray]]:
    return lambda table: [table.column(name) for name in names]


@pytest.mark.parametrize("names", [("few",), ("text",), ("few", "text"), ("wide", "text", "few")])
@pytest.mark.parametrize("count", [0, 1, 3, 6, 7, 50])
def test_a_part_holds_the_rows_from_its_splitter_on(names: tuple[str, ...], count: int) -> None:
    order = in_order(names)
    places = [ROWS * part // (count + 1) for part in range(1, count + 1)]
    first_rows = take_rows(TABLE, np.array([order[place] for place in places], np.int64))
    splitters = Splitters(first_rows, labels_of(names), "row")
    expected = np.empty(ROWS, np.int64)
    expected[order] = np.searchsorted(places, np.arange(ROWS), side="right")
    table = TABLE.select([*names, "row"])
    assert splitters.parts_of(table).tolist() == expected.tolist()
    assert splitters.parts_of(table[:0]).tolist() == []


@pytest.mark.parametrize("whole_labels", [False, True])
@pytest.mark.parametrize(("units", "part_rows"), [(1, 1000), (1, 50), (3, 1000), (3, 20), (7, 20)])
def test_units_hold_all_rows_in_order_and_pieces_read_them_once(
    units: int, part_rows: int, whole_labels: bool, tmp_path: Path
) -> None:
    times = []

    def read(fields: Sequence[str], within: range | None) -> Iterator[pa.Table]:
        times.append(fields)
        rows = range(ROWS) if within is None else within
        table = TABLE.select([*fields, "row"])
        return (table[start : min(start + 60, rows.stop)] for start in range(rows.start, rows.stop, 60))

    rows, labels = Rows(ROWS, read), labels_of(["few"])
    cuts = UnitCuts.of_rows(rows, ["few"], labels, units, part_rows, whole_labels)
    assert len(times) == 1
    parts_of_units = UnitParts(cuts, ["few"], labels, "row")
    with SealedScratch(tmp_path) as scratch:
        spools = []
        for piece in (range(ROWS // 3), range(ROWS // 3, ROWS)):
            spools.append(scratch.spool(parts_of_units.firsts[-1] + 2, 2000))
            parts_of_units.scatter(rows.read_within(["wide", "few"], piece), spools[-1], 2)
        assert len(times) == 3
        sorted_units = [
            sorted_spools(spools, 2 + first, 2 + stop)
            for first, stop in itertools.pairwise(parts_of_units.firsts)
        ]
        parts_of = [(each.count, list(each.parts)) for each in sorted_units]
    found: list[pa.Table] = []
    for count, parts in parts_of:
        assert count == sum(part.num_rows for part in parts)
        assert all(part.num_rows <= 2 * part_rows for part in parts)
        for part in parts:  # sorted by row: the groups are formed later
            numbers = part["row"].to_numpy()
            assert (np.diff(numbers) > 0).all()
            assert part.select(["wide", "few"]) == take_rows(TABLE, numbers).select(["wide", "few"])
        found += [take_rows(part, np.argsort(part["few"].to_numpy(), kind="stable")) for part in parts]
        if whole_labels and parts:
            own = set(pa.concat_tables(parts)["few"].to_pylist())
            assert count == sum(TABLE["few"].to_pylist().count(value) for value in own)
    assert pa.concat_tables(found)["row"].to_pylist() == in_order(["few"])
