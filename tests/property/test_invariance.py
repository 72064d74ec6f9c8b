"""Results do not depend on threads, chunks, encodings or other fields."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.grouping.groups import Groups
from providers.grouping.shuffle import shuffle_groups
from providers.randomness.chacha20 import Stream
from providers.swapping.exchange import exchange, sources
from tests.naive.agreement import swap
from tests.property.tables import swap_parameters, tables

ROWS = 70_001  # enough that kernels cut the work between threads

SERVICES: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {}),
    ("CDSWAP", {"control_field": ["class", "half"]}),
    ("DDSWAP", {"control_field": "t", "block_size": 1000}),
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(5)
    value = random.integers(-(10**12), 10**12, ROWS)
    return pa.table(
        {
            "v": pa.array(value, mask=value % 7 == 0),
            "x": pa.array(random.normal(size=ROWS).astype(np.float32)),
            "b": pa.array(value % 3 == 0),
            "t": pa.array((value % 1000).astype(str)),
            "class": pa.array(random.integers(0, 5000, ROWS)),
            "half": pa.array(np.arange(ROWS) % 2 == 0),
        }
    )


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Restores the number of threads."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def data_of(table: pa.Table) -> bytes:
    """The bytes of every buffer of the table, one chunk a column."""
    combined = table.combine_chunks()
    return b"".join(
        buffer.to_pybytes() if buffer else b"-"
        for column in combined.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
    )


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("service", "parameters"), SERVICES)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_threads_change_no_byte(
    service: str, parameters: dict[str, Any], rate: float, table: pa.Table
) -> None:
    """One thread and two give the same bytes and the same report."""
    results = []
    for threads in (1, 2):
        if threads > numba.config.NUMBA_NUM_THREADS:
            pytest.skip("one processor only")
        numba.set_num_threads(threads)
        results.append(swap(service, table, {"swap_fields": ["v", "x", "b"], "rate": rate, **parameters}))
    one, two = results
    assert data_of(one.table) == data_of(two.table)
    assert one.summary == two.summary
    assert one.provider == two.provider


@pytest.mark.parametrize("block_size", [2, 3, 10, 101, 9001])
@pytest.mark.parametrize("more", [{}, {"locked": True}, {"rate": 0.3}, {"nulls": "keep"}], ids=str)
def test_a_layout_changes_nothing(
    block_size: int, more: dict[str, Any], table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values moved near each other for the exchange end where a direct exchange takes them."""
    parameters = {"swap_fields": ["v", "b", "t"], "control_field": "x", "block_size": block_size, **more}
    laid_out = swap("DDSWAP", table, parameters)
    monkeypatch.setattr("providers.grouping.blocks.bucket_layout", lambda key: None)
    direct = swap("DDSWAP", table, parameters)
    assert data_of(laid_out.table) == data_of(direct.table)
    assert laid_out.summary == direct.summary
    assert laid_out.provider == direct.provider


def test_any_thread_may_swap(table: pa.Table) -> None:
    """A swap in another thread than the first gives the same."""
    first = swap("DSWAP", table, {"swap_fields": ["v"]}).table
    again: list[pa.Table] = []
    worker = threading.Thread(target=lambda: again.append(swap("DSWAP", table, {"swap_fields": ["v"]}).table))
    worker.start()
    worker.join()
    assert again[0].equals(first)


def rechunked(table: pa.Table, cuts: list[int]) -> pa.Table:
    """The same table, each column a slice of a larger one and cut at other rows."""
    columns = []
    for column in table.columns:
        padded = pa.chunked_array([*column.chunks, *column.chunks, *column.chunks], type=column.type)
        middle = padded.slice(len(column), len(column))
        bounds = [0, *sorted(cut % (len(column) + 1) for cut in cuts), len(column)]
        chunks = [
            chunk
            for start, end in itertools.pairwise(bounds)
            for chunk in middle.slice(start, end - start).chunks
        ]
        columns.append(pa.chunked_array(chunks, type=column.type))
    return pa.Table.from_arrays(columns, schema=table.schema)


@settings(max_examples=25)
@given(st.data(), st.lists(st.integers(0, 100), max_size=4))
def test_chunks_and_slices_change_nothing(data: st.DataObject, cuts: list[int]) -> None:
    """However the source is chunked and sliced, the destination is the same; the source stays as it is."""
    source, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(source))
    parameters |= {"suppression": {"policy": "suppress"}, "on_reversible": "warn"}
    control = [f"c{at}" for at in range(len(kinds))]
    before = source.to_pydict()
    for service, extra in (
        ("DSWAP", {}),
        ("CDSWAP", {"control_field": control}),
        ("DDSWAP", {"control_field": control, "block_size": 7}),
    ):
        whole = swap(service, source, {**parameters, **extra})
        cut = swap(service, rechunked(source, cuts), {**parameters, **extra})
        assert cut.table.schema == whole.table.schema
        assert str(cut.table.to_pydict()) == str(whole.table.to_pydict())  # NaN is not equal to itself
        assert (cut.summary, cut.events.counts) == (whole.summary, whole.events.counts)
    assert str(source.to_pydict()) == str(before)


@pytest.mark.parametrize(("service", "parameters"), SERVICES)
def test_dictionary_encoding_changes_nothing(
    service: str, parameters: dict[str, Any], table: pa.Table
) -> None:
    """Encoded columns, with any order of the dictionary, give the values that plain ones give."""
    names = ["v", "t"] if service != "DDSWAP" else ["v", "class"]
    table = table.slice(0, 3000)
    plain = swap(service, table, {"swap_fields": names, **parameters}).table
    for encode in (forwards, backwards):
        encoded = table
        for at, name in enumerate(table.column_names):
            if name in ("v", "t", "class"):
                encoded = encoded.set_column(at, name, encode(table.column(name)))
        found = swap(service, encoded, {"swap_fields": names, **parameters}).table
        assert found.schema == encoded.schema
        assert found.cast(plain.schema).equals(plain)


def forwards(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column encoded with its values in the order in which they occur."""
    return column.dictionary_encode()


def backwards(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column encoded in chunks of different dictionaries, each in falling order."""
    chunks = []
    for start in range(0, len(column), 1000):
        part = column.slice(start, 1000).combine_chunks()
        values = part.unique().drop_null().sort(order="descending")
        chunks.append(pa.DictionaryArray.from_arrays(pa.compute.index_in(part, values), values))
    return pa.chunked_array(chunks)


@pytest.mark.parametrize(("service", "parameters"), SERVICES)
@pytest.mark.parametrize("others", [["v", "x"], ["x", "v", "b"], ["b", "v"]])
def test_a_field_moves_alike_in_any_company(
    service: str, parameters: dict[str, Any], others: list[str], table: pa.Table
) -> None:
    """Unlocked, adding, dropping or reordering other swap fields leaves a field's swap as it was."""
    alone = swap(service, table, {"swap_fields": ["v"], **parameters}).table
    together = swap(service, table, {"swap_fields": others, **parameters}).table
    assert together.column("v").equals(alone.column("v"))


def test_fields_of_one_seed_move_on_their_own(table: pa.Table) -> None:
    """Unlocked, two fields with the same values are permuted differently; locked, alike."""
    twins = pa.table({"a": np.arange(ROWS), "b": np.arange(ROWS), "rest": np.arange(ROWS)})
    unlocked = swap("DSWAP", twins, {"swap_fields": ["a", "b"]}).table
    same = np.asarray(unlocked["a"]) == np.asarray(unlocked["b"])
    assert same.mean() < 10 / ROWS
    locked = swap("DSWAP", twins, {"swap_fields": ["a", "b"], "locked": True}).table
    assert locked["a"].equals(locked["b"])


def test_another_seed_is_another_swap(table: pa.Table) -> None:
    """The seed decides."""
    one, two = (
        swap("DSWAP", table, {"swap_fields": ["v"]}, seed).table for seed in (bytes(32), bytes([1] * 32))
    )
    assert not one.equals(two)


def test_classes_of_one_size_are_permuted_differently() -> None:
    """Two classes with the same number of rows do not move alike."""
    size = 100
    table = pa.table({"class": np.repeat([0, 1], size), "v": np.tile(np.arange(size), 2)})
    moved = np.asarray(swap("CDSWAP", table, {"swap_fields": ["v"], "control_field": "class"}).table["v"])
    assert (moved[:size] == moved[size:]).mean() < 0.1


def test_the_naive_peer_gets_both_wrong() -> None:
    """``shuffle(seed).over(group)`` permutes classes of one size alike, and two fields alike."""
    polars = pytest.importorskip("polars")
    size = 100
    frame = polars.DataFrame(
        {"class": np.repeat([0, 1], size), "a": np.tile(np.arange(size), 2), "b": np.tile(np.arange(size), 2)}
    )
    shuffled = frame.with_columns(polars.col(name).shuffle(seed=1).over("class") for name in ("a", "b"))
    a, b = shuffled["a"].to_numpy(), shuffled["b"].to_numpy()
    assert (a[:size] == a[size:]).all()
    assert (a == b).all()


@given(st.integers(2, 400), st.integers(1, 3), st.sampled_from([1.0, 0.5]))
def test_sources_and_exchange_say_the_same(rows: int, groups: int, rate: float) -> None:
    """Moving values is looking up where each comes from, and what moves is what took part."""
    bounds = np.linspace(0, rows, groups + 1).astype(np.int64)
    order = np.random.default_rng(rows).permutation(rows).astype(np.int32)
    cut = Groups(rows, order, bounds, np.arange(groups, dtype=np.uint64))
    pairing = shuffle_groups(cut, Stream(bytes(32), "DSWAP", 1).key("exchange"), rate)
    source = sources(pairing)
    values = np.arange(rows) * 3
    moved, changed = exchange(values, pairing)
    assert (moved == values[source]).all()
    assert changed == np.count_nonzero(source != np.arange(rows)) == pairing.took_part.sum()
    assert sorted(source) == list(range(rows))
