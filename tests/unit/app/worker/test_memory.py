"""Fields that a worker reads or copies, and its choice between memory and out-of-core runs."""

import gc
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine.engine import Failure, Outcome
from app.store.blobs.arrow_stream import read_table, write_table
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.scratch import SealedScratch, SpoolReader, SpoolWriter
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import SealBroken, Sealer
from app.worker.run_swap import run_swap
from app.worker.run_units import run_or_divide
from providers import PROVIDERS
from providers.tables.digest import table_digest
from tests.naive.agreement import swap
from tests.swap_tasks import swap_task

PLENTY, LITTLE = 10**9, 10**6
ROWS = 20_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table(
        {
            "name": pa.array([f"row {row}" for row in number]),
            "x": pa.array(number % 1009 / 8),
            "class": pa.array(np.where(number % 5000 == 0, number, number % 70)),
            "y": pa.array(number * 7919 % ROWS / 4),
            "still": pa.array(number % 3 == 0),
        }
    )


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


@pytest.fixture
def run(store: BlobStore, tmp_path: Path) -> Callable[..., tuple[Outcome, pa.Table | None]]:
    """Runs a task on a table in a blob; what it answers, and the destination."""

    def run_task(
        service: str, table: pa.Table, parameters: dict[str, Any], memory: int
    ) -> tuple[Outcome, pa.Table | None]:
        task = swap_task(store, tmp_path, service, table, parameters, memory)
        outcome = run_swap(task)
        assert not list((tmp_path / "scratch").glob("*"))
        return outcome, None if isinstance(outcome, Failure) else read_table(task.destination)

    return run_task


DROPS = {"policy": "drop"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {"swap_fields": ["y"]}),
    ("DSWAP", {"swap_fields": ["name", "x", "class", "y", "still"]}),
    ("CDSWAP", {"swap_fields": ["y"], "control_field": "class", "suppression": DROPS}),
    ("CDSWAP", {"swap_fields": ["y"], "control_field": "class", "suppression": {"fields": ["still"]}}),
    ("DDSWAP", {"swap_fields": ["name"], "control_field": "x", "block_size": 7}),
    ("MEWS", {"swap_fields": ["x", "y"], "bins": 20, "suppression": DROPS}),
    ("RWN", {"distance_fields": ["x", "y"], "perturb_fields": ["name", "y"]}),
    ("PABIDOT", {"fields": ["x", "y"], "shuffle": False}),
    ("PABIDOT", {"fields": ["x", "y"]}),
    ("LOCALITY", {"fields": ["x", "y"], "iterations": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize(("service", "parameters"), CALLS)
def test_fields_that_are_not_read_pass_by(
    service: str,
    parameters: dict[str, Any],
    memory: int,
    table: pa.Table,
    run: Callable[..., tuple[Outcome, pa.Table]],
) -> None:
    """The destination is that of the whole table in memory, and the answer says so; dropped rows go whole."""
    expected = swap(service, table, parameters)
    outcome, destination = run(service, table, parameters, memory)
    assert not isinstance(outcome, Failure)
    assert destination.schema == expected.table.schema
    assert table_digest(destination) == table_digest(expected.table) == outcome["destination"]["digest"]
    assert outcome["destination"]["rows"] == expected.table.num_rows
    assert outcome["event_counts"] == expected.events.counts
    assert outcome["report"]["summary"]["changed"] == expected.summary.changed


def test_dropped_rows_are_left_out_of_every_batch(
    store: BlobStore, table: pa.Table, run: Callable[..., tuple[Outcome, pa.Table]], tmp_path: Path
) -> None:
    """The fields that are not read are copied batch by batch; the mask of the rows is that of the table."""
    parameters = {"swap_fields": ["y"], "control_field": "class", "suppression": DROPS}
    batches = pa.concat_tables([table.slice(first, 7000) for first in range(0, ROWS, 7000)])
    stored = BlobTable(swap_task(store, tmp_path, "CDSWAP", batches, parameters, PLENTY).source, ROWS)
    assert len(list(stored.batches(["name"]))) == 3
    _, destination = run("CDSWAP", batches, parameters, PLENTY)
    expected = swap("CDSWAP", table, parameters).table
    assert destination.num_rows == expected.num_rows < ROWS
    assert table_digest(destination) == table_digest(expected)


@pytest.mark.parametrize(
    ("service", "parameters"),
    [
        ("MEWS", {"swap_fields": ["x", "y"], "degree": 30}),
        ("MEWS", {"swap_fields": ["x", "y"], "bins": 5, "others": "univariate"}),
        ("MEDS", {"swap_fields": ["x", "y"], "k": 50}),
        ("RWN", {"distance_fields": ["x", "y"], "neighbours": "own_sample", "sample_size": 20}),
        ("RWN", {"distance_fields": ["x", "y"], "neighbours": "pairs", "sample_size": 20}),
        ("DSWAP", {"swap_fields": ["y"], "rate": 0.1, "risk": {"key_fields": ["x"]}}),
        ("DSWAP", {"swap_fields": ["y"], "household": "class"}),
        ("MEWS", {"swap_fields": ["y"], "bins": 9, "rate": 0.1, "risk": {"key_fields": ["x"]}}),
        ("MEDS", {"swap_fields": ["y"], "k": 50, "rate": 0.1, "risk": {"key_fields": ["x"]}}),
    ],
)
def test_what_must_fit_and_does_not_is_refused_with_advice(
    service: str,
    parameters: dict[str, Any],
    table: pa.Table,
    run: Callable[..., tuple[Outcome, pa.Table | None]],
) -> None:
    """The message names the setting and includes the service's advice for larger tables."""
    outcome, _ = run(service, table, parameters, LITTLE // 4)
    assert isinstance(outcome, Failure)
    assert outcome.code == "memory_limit"
    assert "ROWVEIL_WORKER_MEMORY_BYTES" in outcome.message
    assert outcome.message.endswith(PROVIDERS[service].scaling.cut)
    found = re.search(r"about (\d+) of its 20000 rows", outcome.message)
    assert found is not None
    outcome, _ = run(service, table.slice(0, int(found[1])), parameters, LITTLE // 4)
    assert not isinstance(outcome, Failure)


def test_pairs_that_do_not_fit_are_refused_though_the_table_does(
    table: pa.Table, run: Callable[..., tuple[Outcome, pa.Table | None]]
) -> None:
    """The graph of the pairs certainly takes its memory, whatever the width of the values."""
    parameters = {"distance_fields": ["x", "y"], "perturb_fields": ["y"], "neighbours": "pairs"}
    outcome, _ = run("RWN", table, parameters | {"sample_size": 2000}, PLENTY // 5)
    assert isinstance(outcome, Failure)
    assert outcome.code == "memory_limit"
    needed = re.search(r"RWN needs about (\d+) bytes", outcome.message)
    assert needed is not None
    assert int(needed[1]) > 6 * 2000 * 20_000
    outcome, _ = run("RWN", table, parameters | {"sample_size": 20}, PLENTY // 5)
    assert not isinstance(outcome, Failure)


def test_a_swap_by_risk_is_not_divided(store: BlobStore, table: pa.Table, tmp_path: Path) -> None:
    """A run that may have units is a single task with the bytes of the swap in memory, or is refused."""
    parameters = {"swap_fields": ["y"], "control_field": "class", "rate": 0.1, "risk": {"key_fields": ["x"]}}
    task = swap_task(store, tmp_path, "CDSWAP", table, parameters, LITTLE // 4, units=4)
    refused = run_or_divide(task)
    assert isinstance(refused, Failure)
    assert refused.code == "memory_limit"
    found = run_or_divide(replace(task, memory_bytes=PLENTY))
    assert not isinstance(found, Failure)
    assert found["destination"]["digest"] == table_digest(swap("CDSWAP", table, parameters).table)


@pytest.mark.parametrize(("service", "parameters"), CALLS)
def test_an_empty_table_comes_out_empty(
    service: str, parameters: dict[str, Any], table: pa.Table, run: Callable[..., tuple[Outcome, pa.Table]]
) -> None:
    """Whatever is read of it; PABIDOT has nothing to fit."""
    outcome, destination = run(service, table.slice(0, 0), parameters, PLENTY)
    if service == "PABIDOT":
        assert isinstance(outcome, Failure)
    else:
        assert destination.num_rows == 0
        assert destination.schema == table.schema


def test_fields_are_read_in_the_schemas_order(store: BlobStore, table: pa.Table) -> None:
    """However they are named; none of them, and all of them, as well."""
    access = store.allocate()
    write_table(access, table)
    blob = BlobTable(access, table.num_rows)
    assert blob.schema == table.schema
    assert blob.read(["y", "name"]).equals(table.select(["name", "y"]))
    assert blob.read(table.column_names).equals(table)
    assert blob.read([]).num_columns == 0


def test_scratch_is_sealed_and_has_no_name(tmp_path: Path) -> None:
    """Nothing is to be seen in the folder, and of the values nothing in the file."""
    table = pa.table({"name": [f"Person-{row:06d}-Quux" for row in range(5000)]})
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(3, 3)
        for start in range(0, 5000, 100):
            spool.add(start // 100 % 3, table.slice(start, 100))
        assert not list(tmp_path.iterdir())
        parts = [pa.concat_tables(spool.read(part)) for part in range(3)]
        assert [spool.rows(part) for part in range(3)] == [part.num_rows for part in parts]
        found = parts[1].column(0).to_pylist()
        assert found == sorted(found)
        assert set(found) == {row for start in range(100, 5000, 300) for row in
                              table.column(0)[start : start + 100].to_pylist()}  # fmt: skip


def test_a_shared_spool_is_read_with_its_key(tmp_path: Path) -> None:
    """Each writer has a separate file; without the job's folder none can be created."""
    table = pa.table({"name": [f"Person-{row:06d}-Quux" for row in range(500)]})
    with SpoolWriter(tmp_path) as writer, SpoolWriter(tmp_path):
        spool = writer.spool(2, 10**6)
        spool.add(1, table)
        (shared,) = writer.shared(spool)
    assert len(list(tmp_path.iterdir())) == 2
    assert b"Person" not in (tmp_path / shared.name).read_bytes()
    assert shared.key.hex() not in repr(shared)
    assert repr(shared.key) not in repr(shared)
    with SpoolReader(tmp_path, [shared]) as reader:
        parts = reader.parts()
        assert [parts.rows(part) for part in range(2)] == [0, 500]
        assert pa.concat_tables(parts.read(1)).equals(table)
    with SpoolReader(tmp_path, [replace(shared, key=bytes(32))]) as reader, pytest.raises(SealBroken):
        list(reader.parts().read(1))
    with pytest.raises(FileNotFoundError):
        SpoolWriter(tmp_path / "gone")


@pytest.mark.parametrize("rows", [0, 1, 1000, 40_000])
def test_a_record_that_was_changed_does_not_open(tmp_path: Path, rows: int) -> None:
    """Nor one in the place of another, or one whose file is cut short. Small and large tables."""
    tables = [pa.table({"x": np.arange(rows) + first, "y": ["a"] * rows}) for first in (0, 5)]
    with SealedScratch(tmp_path) as scratch:
        one, two = map(scratch.write, tables)
        assert [scratch.read(record) for record in (one, two, one)] == [*tables, tables[0]]
        for record in [(one[0], two[1], two[2]), (two[0], one[1], one[2]), (one[0], one[1], one[2] - 1),
                       (two[0], two[1], two[2] + 1)]:  # fmt: skip
            with pytest.raises(SealBroken):
                scratch.read(record)


def test_a_long_table_is_several_records(tmp_path: Path) -> None:
    """Each takes memory of some megabytes; the rows keep their order."""
    table = pa.table({"x": np.arange(2_000_000), "y": np.arange(2_000_000) % 7})
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(1, 1)
        spool.add(0, table)
        lengths = [length for _, _, length in spool.written()[0]]
        assert sum(lengths) >= table.nbytes
        assert max(lengths) < 6_000_000
        assert pa.concat_tables(spool.read(0)) == table


def test_all_files_of_a_task_use_the_same_memory(tmp_path: Path) -> None:
    """40 files take the memory of one record each way, which is freed with the last of them."""
    table = pa.table({"x": np.arange(125_000)})  # 1 MB
    tracemalloc.start()
    try:
        with SpoolWriter(tmp_path, "1-0-", 40, lambda part: part) as writer:
            spool = writer.spool(40, 1)
            for part in range(40):
                spool.add(part, table)
            assert all(next(spool.read(part)) == table for part in range(40))
            assert tracemalloc.get_traced_memory()[0] < 4_000_000
        del writer, spool
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_many_short_tables_are_read_as_one(tmp_path: Path) -> None:
    """But for columns with dictionaries, which Arrow joins only if they have no nulls."""
    texts: list[list[str | None]] = [["a", None], ["b"], [None, "c", "d"]]
    plain = [pa.table({"x": [1] * len(some), "t": some, "flag": [True] * len(some)}) for some in texts * 50]
    coded = [
        pa.table({"x": [1] * len(some), "t": pa.array(some).dictionary_encode("encode")}) for some in texts
    ]
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(2, 1)
        for part, tables in enumerate([plain, coded * 50]):
            for table in tables:
                spool.add(part, table)
        spool.written()
        (found,) = spool.read(0)
        assert found.column("t").num_chunks == 1
        assert found == pa.concat_tables(plain).combine_chunks()
        values = pa.concat_tables(spool.read(1)).column("t").to_pylist()
        assert values == [text for some in texts * 50 for text in some]


def test_a_table_stays_when_the_next_ones_are_written_and_read(tmp_path: Path) -> None:
    """The memory of a record is used again, but not that of a table that has been read."""
    tables = [pa.table({"x": np.arange(40_000) * factor}) for factor in range(5)]
    with SealedScratch(tmp_path) as scratch:
        records = [scratch.write(table) for table in tables]
        found = [scratch.read(record) for record in records]
    assert found == tables
