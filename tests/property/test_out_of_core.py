"""Out of core is in memory to the last bit, however the table and the work are cut."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from providers.errors import SourceError
from providers.grouping.shuffle import ONE_BUCKET
from providers.neighbours import donors
from providers.neighbours.out_of_core.donors import DrawnDonors
from providers.neighbours.out_of_core.fetch import DonorValues
from providers.neighbours.out_of_core.kdtree import CellBoxes, StoredTree, TreeBuilder
from providers.neighbours.out_of_core.release import NeighbourRun
from providers.out_of_core.median_cut import StoredNode
from providers.tables.digest import table_digest
from tests.every_type import COLUMNS, in_two_chunks
from tests.property.bin_tables import bin_parameters, number_tables
from tests.property.out_of_core import assert_same, swap_in_units, swap_out_of_core
from tests.property.tables import classifiers, swap_parameters, tables
from tests.property.test_locality import cases as locality_cases
from tests.property.test_mews import grids
from tests.property.test_rwn import cases as rwn_cases

pytestmark = pytest.mark.slow

TINY = 4096
"""Bytes of memory of which every unit is as small as it can be."""


@settings(max_examples=50, deadline=None)  # each is swapped three ways, in up to seven units
@given(st.data(), st.integers(1, 40), st.sampled_from([1, 2, 3, 7]))
def test_random_tables_come_out_the_same(data: st.DataObject, batch_rows: int, units: int) -> None:
    """Every type, classifier, policy, rate and way with nulls, in parts of 64 rows, in units and batches."""
    source, kinds = data.draw(tables())
    if data.draw(st.booleans()):  # so that it is cut at all
        source = pa.concat_tables([source] * 4)
    parameters = data.draw(swap_parameters(source, targets=True))
    control = [f"c{at}" for at in range(len(kinds))]
    of_control = [data.draw(classifiers(kind, in_memory=False)) for kind in kinds]
    assert_same("DSWAP", source, parameters, TINY, batch_rows, units)
    extra: dict[str, Any] = {"control_field": control, "classifier": of_control}
    assert_same("CDSWAP", source, parameters | extra, TINY, batch_rows, units)
    block_size = data.draw(st.sampled_from([5, 7, 80]))
    extra = {"control_field": control, "block_size": block_size}
    assert_same("DDSWAP", source, parameters | extra, TINY, batch_rows, units)


@settings(max_examples=60, deadline=None)
@given(locality_cases(), st.integers(1, 40), st.sampled_from([1, 2, 5]))
def test_segments_are_redrawn_the_same(
    case: tuple[pa.Table, dict[str, Any]], batch_rows: int, units: int
) -> None:
    """Every type, bound, tie and rounding, a segment at a time; the field's own range is that of all rows."""
    table, parameters = case
    source = pa.concat_tables([table, table.slice(1), table])
    assert_same("LOCALITY", source, parameters, TINY, batch_rows, units)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 40), st.sampled_from([1, 1, 2, 5]))
def test_cells_come_out_the_same(data: st.DataObject, batch_rows: int, units: int) -> None:
    """Every type, grid, policy and way with single rows and gaps, in parts of 64 rows and in units."""
    table, swap_fields, unusable = data.draw(number_tables())
    source = pa.concat_tables([table] * data.draw(st.sampled_from([1, 1, 4, 20])))
    parameters = data.draw(bin_parameters(source, swap_fields, unusable)) | {"others": "keep"}
    parameters |= data.draw(grids(len(swap_fields), "keep"))
    parameters["nulls"] = data.draw(st.sampled_from(["fail", "keep"]))
    parameters["singletons"] = data.draw(st.sampled_from(["merge", "merge", "keep", "suppression"]))
    if parameters["singletons"] == "keep":
        parameters["suppression"] = {"policy": "keep"}
    assert_same("MEWS", source, parameters, TINY, batch_rows, units)


@settings(max_examples=60, deadline=None)
@given(
    rwn_cases(),
    st.integers(1, 40),
    st.sampled_from([1, 1, 4]),
    st.sampled_from([(1024, 64), (1024, 64), (8, 64), (3, 8), (0, 2)]),
    st.sampled_from([1, 2, 3, 7]),
)
def test_neighbours_come_out_the_same(
    case: tuple[pa.Table, dict[str, Any]], batch_rows: int, times: int, large: tuple[int, int], units: int
) -> None:
    """Every type, rule, tie and null, in cells of 64 rows or fewer and in units, however large the lists."""
    table, parameters = case
    assume(parameters.get("neighbours") not in ("own_sample", "pairs"))  # which have to fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(donors, "MOST_LISTED", large[0])
        patch.setattr(donors, "MOST_COVER_NODES", large[1])
        memory = 4_000_000 if "within" in parameters else TINY  # a part has to fit
        assert_same("RWN", pa.concat_tables([table] * times), parameters, memory, batch_rows, units)


BROKEN_FIELDS: list[tuple[dict[str, Any], str]] = [
    (
        {"fields": ["late", "outside"], "domain": {"outside": [0, 50]}},
        "field 'late' holds 2 values that are not",
    ),
    (
        {"fields": ["outside", "late"], "domain": {"outside": [0, 50]}},
        "field 'outside' holds 49 values outside",
    ),
    ({"fields": ["wide", "late"], "decimals": 2}, "field 'wide' has more steps of 2 decimals"),
    ({"fields": ["late", "wide"], "decimals": 2}, "field 'late' holds 2 values that are"),
]


@pytest.mark.parametrize(("parameters", "message"), BROKEN_FIELDS)
def test_what_cannot_be_redrawn_is_reported_the_same(parameters: dict[str, Any], message: str) -> None:
    """The error counts all rows of the first field at fault, before a destination exists."""
    number = np.arange(100)
    table = pa.table(
        {
            "outside": number,
            "late": np.where(number < 98, number, np.nan),
            "wide": np.where(number == 50, 1e18, number),
        }
    )
    assert assert_same("LOCALITY", table, parameters, TINY, 7) is None
    assert assert_same("LOCALITY", table, parameters, TINY, 7, units=2) is None
    with pytest.raises(SourceError, match=message):
        swap_out_of_core("LOCALITY", table, parameters, TINY, 7)


ROWS = 60_003


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(6)
    value = random.integers(-(10**12), 10**12, ROWS)
    huge = np.where(random.random(ROWS) < 0.6, 7, random.integers(0, 5000, ROWS))
    return pa.table(
        {
            "still": pa.array(np.arange(ROWS) % 97),
            "v": pa.array(value, mask=value % 7 == 0),
            "x": pa.array(random.normal(size=ROWS).astype(np.float32)),
            "text": pa.array((value % 1000).astype(str)).dictionary_encode(),
            "half": pa.array(np.arange(ROWS) % 2 == 0),
            "huge": pa.array(huge),
        }
    )


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {}),
    ("DSWAP", {"locked": True, "nulls": "keep"}),
    ("DSWAP", {"rate": 0.3, "nulls": "keep"}),
    ("CDSWAP", {"control_field": "huge", "suppression": {"policy": "drop"}}),
    ("CDSWAP", {"control_field": ["half", "huge"], "rate": 0.5, "locked": True}),
    ("CDSWAP", {"control_field": "half", "min_group_size": ROWS // 2 + 1, "nulls": "keep"}),
    ("DDSWAP", {"control_field": "text", "block_size": 1000, "swap_fields": ["v", "x"]}),
    ("DDSWAP", {"control_field": ["half", "x"], "block_size": 2, "nulls": "keep", "swap_fields": ["v"]}),
    ("DDSWAP", {"control_field": "half", "block_size": 8000, "swap_fields": ["v", "x"], "rate": 0.9}),
]


CUT = pytest.mark.parametrize(
    ("memory", "units"), [(1_500_000, 1), (4_000_000, 1), (1_500_000, 4), (10**9, 2)]
)
"""Memory, and workers among whom it is shared."""


@CUT
@pytest.mark.parametrize("parameters", [{"nulls": "drop_from_fit"}, {"shuffle": False, "sigma": 0}])
def test_ranges_of_rows_are_perturbed_and_shuffled_the_same(
    parameters: dict[str, Any], memory: int, units: int, table: pa.Table
) -> None:
    """Moments, noise and the order of the rows, nulls and text among them."""
    fields = ["v", "x", "still"] if parameters.get("nulls") else ["x", "still"]
    found = assert_same("PABIDOT", table, {"fields": fields} | parameters, memory, 5000, units)
    assert found is not None


GRIDS: list[dict[str, Any]] = [
    {"swap_fields": ["x", "huge"], "bins": [200, 15]},
    {"swap_fields": ["v", "x"], "width": 0.12, "scale": "sd", "nulls": "keep"},
    {"swap_fields": ["v", "x"], "width": 0.12, "scale": "sd", "nulls": "keep", "singletons": "suppression"},
    {"swap_fields": ["still", "huge"], "bins": 2, "singletons": "keep", "suppression": {"policy": "keep"}},
    {"swap_fields": ["x"], "bins": 3},
]


@pytest.mark.parametrize(("memory", "units"), [(1_500_000, 1), (4_000_000, 1), (1_500_000, 3)])
@pytest.mark.parametrize("parameters", GRIDS)
def test_bins_come_out_the_same(parameters: dict[str, Any], memory: int, units: int, table: pa.Table) -> None:
    """Cells cut between parts, cells larger than memory, rows alone in every part, and gaps."""
    found = assert_same("MEWS", table, parameters, memory, 5000, units)
    assert found is not None
    if parameters.get("singletons", "merge") == "merge" and len(parameters["swap_fields"]) > 1:
        assert found.provider["merged"] > 20


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 40), st.sampled_from([1, 2, 3, 7]))
def test_parts_come_out_the_same(data: st.DataObject, batch_rows: int, units: int) -> None:
    """Every type, policy and gap, ties at each cut, and numbers whose distances leave float64."""
    table, swap_fields, unusable = data.draw(number_tables())
    source = pa.concat_tables([table] * data.draw(st.sampled_from([1, 1, 4, 20])))
    parameters = data.draw(bin_parameters(source, swap_fields, unusable)) | {"others": "keep"}
    parameters |= data.draw(st.sampled_from([{"k": 2}, {"k": 7}, {"degree": 10}]))
    parameters |= {"method": "partitioned", "parts": data.draw(st.integers(2, 7))}
    parameters["standardise"] = data.draw(st.booleans())
    assert_same("MEDS", source, parameters, 4_000_000, batch_rows, units)


PARTS: list[dict[str, Any]] = [
    {"swap_fields": ["x", "huge"], "k": 20, "parts": 13},
    {"swap_fields": ["v", "x", "still"], "degree": 500, "parts": 32, "nulls": "keep"},
    {"swap_fields": ["still"], "k": 7, "parts": 40, "standardise": False},
]


@pytest.mark.parametrize(("memory", "units"), [(2_200_000, 1), (10**9, 1), (2_200_000, 2), (2_200_000, 4)])
@pytest.mark.parametrize("parameters", PARTS)
def test_parts_are_cut_on_disk_the_same(
    parameters: dict[str, Any], memory: int, units: int, table: pa.Table
) -> None:
    """More rows than are sorted together, one part in memory; equal values on both sides of cuts."""
    found = assert_same("MEDS", table, {"method": "partitioned"} | parameters, memory, 5000, units)
    assert found is not None
    assert found.provider["parts"] == parameters["parts"]
    assert 0 <= found.provider["within_bin_variance"] < 0.05


def test_a_part_of_meds_that_does_not_fit_is_refused_with_a_number_that_does() -> None:
    """The number of parts that the error advises runs, and one less does not."""
    table = pa.table({"x": np.arange(20_000.0), "y": np.arange(20_000) % 13})
    given = {"swap_fields": ["x"], "k": 5, "method": "partitioned"}
    with pytest.raises(SourceError, match=r"a part of 10000 rows takes about \d+ bytes") as raised:
        swap_out_of_core("MEDS", table, given | {"parts": 2}, 600_000, 5000)
    assert raised.value.pointer == "/parameters/parts"
    enough = int(re.findall(r"at least (\d+) parts", str(raised.value))[0])
    assert enough > 3
    with pytest.raises(SourceError, match=f"use at least {enough} parts"):
        swap_out_of_core("MEDS", table, given | {"parts": enough - 1}, 600_000, 5000)
    assert_same("MEDS", table, given | {"parts": enough}, 600_000, 5000)


def test_a_part_of_wide_values_may_be_as_large_as_memory_permits() -> None:
    """A node that is one part is not cut, although it has more rows than are cut in memory elsewhere."""
    random = np.random.default_rng(7)
    wide = pa.decimal256(50, 3)
    fields = {name: pa.array(random.integers(0, 10**6, 12_000)).cast(wide) for name in "xyz"}
    table = pa.table({**fields, "row": range(12_000)})
    given = {"swap_fields": [*fields], "k": 5, "method": "partitioned"}
    with pytest.raises(SourceError) as raised:
        swap_out_of_core("MEDS", table, given | {"parts": 2}, 2_000_000, 3000)
    enough = int(re.findall(r"at least (\d+) parts", str(raised.value))[0])
    assert_same("MEDS", table, given | {"parts": enough}, 2_000_000, 3000, 2)


def test_cells_that_are_too_many_to_merge_are_reported() -> None:
    """Without merging there may be as many cells as rows."""
    rows = 10_000
    apart = pa.table({"x": np.random.default_rng(5).permutation(rows), "label": np.arange(rows)})
    parameters: dict[str, Any] = {"swap_fields": ["x"], "width": 0.5}
    with pytest.raises(SourceError, match="more than 4096 cells hold rows"):
        swap_out_of_core("MEWS", apart, parameters, TINY, 700)
    kept = parameters | {"singletons": "keep", "suppression": {"policy": "keep"}}
    found = assert_same("MEWS", apart, kept, TINY, 700)
    assert found is not None
    assert found.provider["singletons"] == rows


WITHIN: dict[str, Any] = {"neighbours": "partition"}
NEIGHBOURS: list[tuple[list[str], dict[str, Any], int, int]] = [
    (["x", "still"], {}, ROWS, 6_000_000),
    (["x"], {"k": 70, "ties": "index", "q": 0.4}, ROWS, 6_000_000),
    (["v", "x", "text", "half"], {"categorical_weight": 0.05, "epsilon": 0.2}, 15_000, 2_000_000),
    (["huge", "half"], {"epsilon": 0.1, "q": 0.7}, 15_000, 1_000_000),
    (["still"], {"categorical_fields": ["still"], "k": 3}, 15_000, 500_000),
    (["x", "huge"], {"k": 200, "neighbours": "sample", "sample_size": 9000}, 15_000, 2_000_000),
    (["v", "text"], {"neighbours": "partition", "parts": 3}, 12_500, 750_000),
    (["v", "x"], {"neighbours": "partition", "parts": 200, "epsilon": 0.05}, 10_000, 500_000),
    (["v", "x"], WITHIN | {"parts": 3, "within": "sample", "sample_size": 2500}, 12_500, 750_000),
    (["v", "text"], WITHIN | {"parts": 20, "within": "own_sample", "sample_size": 50}, 12_500, 750_000),
    (["v", "x"], WITHIN | {"parts": 200, "within": "pairs", "sample_size": 30, "q": 0.6}, 10_000, 500_000),
    (["v", "text"], WITHIN | {"parts": 20, "within": "pairs", "sample_size": 3, "k": 9}, 12_500, 750_000),
]
"""Distance fields, what else is said, rows, and memory."""


@pytest.mark.parametrize(("fields", "parameters", "rows", "memory"), NEIGHBOURS)
def test_neighbours_in_other_cells_are_found(
    fields: list[str],
    parameters: dict[str, Any],
    rows: int,
    memory: int,
    table: pa.Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most of many cells are not in memory: nearest rows, rows within reach, and covers across cells."""
    cells: list[int] = []
    monkeypatch.setattr(StoredTree, "__init__", _noting(cells))
    given = {"distance_fields": fields, "perturb_fields": ["v", "text"]} | parameters
    found = assert_same("RWN", table.slice(0, rows), given, memory, 5000)
    assert found is not None
    assert found.summary.rows == rows
    if parameters.get("within", "sample") != "sample":  # a part is in memory, and has no tree
        assert not cells
    elif parameters.get("parts") == 200:
        assert len(cells) == 200
    else:
        assert max(cells) > 3


@pytest.mark.parametrize("units", [2, 4])
@pytest.mark.parametrize(("fields", "parameters", "rows", "memory"), NEIGHBOURS)
def test_neighbours_in_the_rows_of_other_units_are_found(
    fields: list[str],
    parameters: dict[str, Any],
    rows: int,
    memory: int,
    units: int,
    table: pa.Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each unit draws the donors of its own leaves or parts, and all of them are drawn."""
    drawn: list[int] = []
    fetched = NeighbourRun.fetch

    def noted(self: NeighbourRun, values: DonorValues, batches: Iterator[DrawnDonors], *args: Any) -> None:
        own = list(batches)
        drawn.append(sum(len(batch.rows) for batch in own))
        fetched(self, values, iter(own), *args)

    monkeypatch.setattr(NeighbourRun, "fetch", noted)
    given = {"distance_fields": fields, "perturb_fields": ["v", "text"]} | parameters
    assert assert_same("RWN", table.slice(0, rows), given, memory, 5000, units) is not None
    parts = parameters.get("parts", rows)
    assert len(drawn) == min(units, parts)
    assert sum(drawn) == rows
    assert max(drawn) - min(drawn) <= max(16, rows // parts + 2)  # a leaf, or a part


OF_A_TREE: dict[str, Any] = {"distance_fields": ["huge", "half"], "perturb_fields": ["v"]}


@pytest.fixture(scope="module")
def digest_of_one_process(table: pa.Table) -> str:
    """Digest of the destination of a run with a stored tree and without units."""
    rows = table.slice(0, 15_000)
    return table_digest(swap_out_of_core("RWN", rows, OF_A_TREE, 500_000, 5000).table)


@pytest.mark.parametrize("units", [2, 3, 5, 8])
def test_pieces_of_a_preparation_build_about_equal_shares_of_the_tree(
    units: int, table: pa.Table, digest_of_one_process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they build each cell once."""
    shares: list[tuple[int, int]] = []
    grow = TreeBuilder.grow

    def noted(self: TreeBuilder, nodes: Sequence[StoredNode], first: int, *args: Any) -> CellBoxes:
        shares.append((first, first + len(nodes)))
        return grow(self, nodes, first, *args)

    monkeypatch.setattr(TreeBuilder, "grow", noted)
    found = swap_in_units("RWN", table.slice(0, 15_000), OF_A_TREE, 500_000, 5000, units)
    assert table_digest(found.table) == digest_of_one_process
    shares.sort()
    assert len(shares) == units
    assert [first for first, _ in shares] == [0, *(stop for _, stop in shares[:-1])]
    sizes = [stop - first for first, stop in shares]
    assert sum(sizes) >= 8
    assert max(sizes) <= 1.5 * min(sizes)


def _noting(cells: list[int]) -> Any:
    made = StoredTree.__init__

    def noted(self: StoredTree, *args: Any) -> None:
        made(self, *args)
        cells.append(self.cells)

    return noted


def test_more_nearest_rows_than_memory_are_refused() -> None:
    """Only the queries of one leaf have to be in memory at a time."""
    table = pa.table({"x": np.arange(20_000.0)})
    with pytest.raises(SourceError, match=r"the 10000 nearest rows of 16 rows take .* use a k of"):
        swap_out_of_core("RWN", table, {"k": 10_000}, 1_500_000, 5000)
    found = swap_out_of_core("RWN", table, {"k": 20_000, "q": 0.5}, 1_500_000, 5000)  # all others
    assert found.provider["neighbourhood_size"]["smallest"] == 19_999


@pytest.mark.parametrize(
    "parameters",
    [
        {"within": "pairs", "sample_size": 50},
        {"within": "pairs", "sample_size": 50, "k": 20_000},
        {"within": "own_sample", "sample_size": 50},
        {"within": "sample", "sample_size": 9000},
    ],
)
def test_parts_that_do_not_fit_are_refused_with_a_number_that_does(
    parameters: dict[str, Any],
) -> None:
    """The error points to `parts`; the number that it advises runs, and one less does not."""
    table = pa.table({"x": np.arange(20_000.0), "y": np.arange(20_000) % 13})
    given = {"neighbours": "partition", "parts": 1} | parameters
    words = (
        r"a part of 20000 rows takes about \d+ bytes with within '\w+', and 300000 bytes of memory are "
        "available"
    )
    with pytest.raises(SourceError, match=words) as raised:
        swap_out_of_core("RWN", table, given, 600_000, 5000)
    assert raised.value.pointer == "/parameters/parts"
    enough = int(re.findall(r"at least (\d+) parts", str(raised.value))[0])
    assert enough > 1
    with pytest.raises(SourceError, match=f"use at least {enough} parts"):
        swap_out_of_core("RWN", table, given | {"parts": enough - 1}, 600_000, 5000)
    assert_same("RWN", table, given | {"parts": enough}, 600_000, 5000)


def test_few_rows_are_shuffled_the_same(table: pa.Table) -> None:
    """Groups of two rows, and of as many as fit one bucket."""
    for rows in (2, ONE_BUCKET):
        for units in (1, 3):
            assert assert_same("PABIDOT", table.slice(7, rows), {"fields": ["x", "still"]}, TINY, 100, units)


def test_what_cannot_be_rotated_is_reported_the_same(table: pa.Table) -> None:
    """Nulls are counted over all ranges, and by all units, before anything is refused."""
    for units in (1, 3):
        assert assert_same("PABIDOT", table, {"fields": ["v", "x"]}, 1_500_000, 5000, units) is None


@CUT
@pytest.mark.parametrize(("service", "parameters"), CALLS)
def test_groups_larger_than_memory_come_out_the_same(
    service: str, parameters: dict[str, Any], memory: int, units: int, table: pa.Table
) -> None:
    """A whole table, a class or the rows of one label, of several buckets each and cut among units."""
    assert table.num_rows > 7 * ONE_BUCKET
    given = {"swap_fields": ["v", "x", "text"]} | parameters
    found = assert_same(service, table, given, memory, 5000, units)
    assert found is not None


LAID_OUT = ("list of views", "struct", "json of views", "runs of views", "runs of a dictionary")
"""Columns that the service lays out plainly before any provider sees them; Arrow lacks kernels for them."""
MOVABLE = [name for name in COLUMNS if name not in LAID_OUT]
METADATA = {"geo": '{"version": "1.1.0"}', "pandas": '{"columns": []}'}


@pytest.mark.parametrize(("service", "units"), [("DSWAP", 1), ("DSWAP", 3), ("RWN", 1)])
def test_every_type_and_all_metadata_come_out_the_same(service: str, units: int) -> None:
    """Encodings, dictionaries that hold a null and decimals of negative scale: as in memory."""
    names = MOVABLE if service == "DSWAP" else [name for name in MOVABLE if "scale" in name or "null" in name]
    fields = [pa.field(name, COLUMNS[name].type, metadata={"of": name}) for name in names]
    schema = pa.schema([*fields, pa.field("near", pa.float64())], metadata=METADATA)
    chunks = [in_two_chunks(COLUMNS[name]).chunks * 8 for name in names]
    columns = [pa.chunked_array(of, COLUMNS[name].type) for name, of in zip(names, chunks, strict=True)]
    table = pa.Table.from_arrays([*columns, pa.array(np.arange(96) * 1.5)], schema=schema)
    if service == "RWN":
        parameters = {"k": 3, "perturb_fields": names, "distance_fields": ["near"]}
    else:
        parameters = {"swap_fields": names, "rate": 0.8}
    found = assert_same(service, table, parameters, TINY, 20, units)
    assert found is not None
    assert found.table.schema.equals(schema, check_metadata=True)
    assert all(found.summary.changed[name] for name in names if "scale" in name or "a null" in name)


@pytest.mark.parametrize(
    ("service", "parameters"),
    [("PABIDOT", {"fields": ["a", "b"]}), ("LOCALITY", {"fields": ["a"], "segment_size": 10})],
)
def test_metadata_of_a_type_that_has_changed_go(service: str, parameters: dict[str, Any]) -> None:
    """Metadata about integers (pandas, extensions) goes, since it is wrong for floats; all else stays."""
    own = {"ARROW:extension:name": "money", "unit": "EUR"}
    schema = pa.schema(
        [pa.field("a", pa.int64(), metadata=own), pa.field("b", pa.float64(), metadata=own)],
        metadata=METADATA,
    )
    table = pa.Table.from_arrays([np.arange(200) ** 2 % 97, np.arange(200.0) % 13], schema=schema)
    found = assert_same(service, table, parameters, TINY, 30)
    assert found is not None
    after = found.table.schema
    assert after.field("a").type == pa.float64()
    assert after.field("a").metadata == {b"unit": b"EUR"}
    assert after.field("b").metadata == schema.field("b").metadata
    assert after.metadata == {b"geo": METADATA["geo"].encode()}
