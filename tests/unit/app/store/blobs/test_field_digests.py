"""Digests of fields, kept behind the stream of a blob; a run takes those of unchanged fields from there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine.engine import Failure
from app.store.blobs.arrow_stream import TableReader, read_table, table_bytes, write_table
from app.store.blobs.background_digest import digested
from app.store.blobs.column_reader import BlobTable, digest_of_blob, write_tables
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.sealed_files import BlobAccess, BlobStore, SealedWriter, small_table
from app.store.crypto.sealing import Sealer
from app.worker.run_swap import run_swap
from app.worker.tasks import SwapTask
from providers.tables.digest import DigestForm, TableDigest, table_digest
from tests.swap_tasks import swap_task

ROWS = 20_000
TABLE = pa.table(
    {
        "name": pa.array([f"row {row}" for row in range(ROWS)]),
        "x": pa.array(np.arange(ROWS) % 1009 / 8),
        "class": pa.array(np.arange(ROWS) % 70),
        "still": pa.array(np.arange(ROWS) % 3 == 0),
    }
)
PLENTY, LITTLE = 10**9, 10**6


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


def parts_of(table: pa.Table) -> FieldDigests:
    found = digested(table, DigestForm.PARTS)[1]
    assert found is not None
    return found


def test_they_are_read_as_they_were_written_and_the_table_is_the_same(store: BlobStore) -> None:
    access = store.allocate()
    write_table(access, TABLE, field_digests=parts_of(TABLE))
    assert BlobTable(access, ROWS).field_digests() == parts_of(TABLE)
    assert read_table(access) == TABLE
    reader = TableReader(access)
    assert pa.Table.from_batches(reader, reader.schema) == TABLE
    reader.close()
    assert BlobTable(access, ROWS).read(["x"]) == TABLE.select(["x"])
    assert BlobTable(access, ROWS + 1).field_digests() is None
    for form in DigestForm:
        assert digest_of_blob(access, form) == table_digest(TABLE, form)


def test_a_written_destination_has_them(store: BlobStore) -> None:
    access = store.allocate()
    assert write_tables(access, TABLE.schema, [TABLE[:7], TABLE[7:]]) == (table_digest(TABLE), ROWS, None)
    assert BlobTable(access, ROWS).field_digests() == parts_of(TABLE)
    other = store.allocate()
    write_tables(other, TABLE.schema, [TABLE], form=DigestForm.WHOLE)
    assert BlobTable(other, ROWS).field_digests() is None


@pytest.mark.parametrize("fields", [0, 1, 4])
@pytest.mark.parametrize("end", [b"", b"x" * 40, bytes(32 * 4 + 32)])
def test_another_end_of_a_blob_has_none(store: BlobStore, end: bytes, fields: int) -> None:
    """Such as that of an older version, whose stream has nothing behind it."""
    access, table = store.allocate(), TABLE.select(range(fields))
    with SealedWriter(access) as sink:
        sink.write(table_bytes(table.schema, table[:3].to_batches()) + end)
    assert BlobTable(access, 3).field_digests() is None
    assert BlobTable(small_table(table_bytes(table.schema, [])), 0).field_digests() is None


def destination(task: SwapTask) -> tuple[dict[str, Any], BlobAccess]:
    outcome = run_swap(task)
    assert not isinstance(outcome, Failure)
    return outcome, task.destination


def with_digests(task: SwapTask, store: BlobStore, digests: FieldDigests) -> SwapTask:
    source = store.allocate()
    write_table(source, TABLE, field_digests=digests)
    return replace(task, source=source, destination=store.allocate())


RUNS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("DSWAP", {"swap_fields": ["x"]}, ["name", "class", "still"]),
    ("CDSWAP", {"swap_fields": ["x"], "control_field": "class"}, ["name", "class", "still"]),
    ("DSWAP", {"swap_fields": ["x", "name"]}, ["class", "still"]),
]


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
@pytest.mark.parametrize(("service", "parameters", "unchanged"), RUNS)
def test_an_unchanged_field_has_the_digest_of_its_source(
    service: str,
    parameters: dict[str, Any],
    unchanged: list[str],
    memory: int,
    store: BlobStore,
    tmp_path: Path,
) -> None:
    """Digests that the source says of its fields are those of the destination's, and of no changed field."""
    task = swap_task(store, tmp_path, service, TABLE, parameters, memory)
    plain, access = destination(task)
    assert plain["destination"]["digest"] == table_digest(read_table(access))
    known = with_digests(task, store, parts_of(TABLE))
    assert destination(known)[0]["destination"]["digest"] == plain["destination"]["digest"]
    kept = BlobTable(known.destination, ROWS).field_digests()
    assert kept == parts_of(read_table(access))
    given = FieldDigests(ROWS, tuple(bytes([number]) * 32 for number in range(4)))
    found = BlobTable(destination(with_digests(task, store, given))[1], ROWS).field_digests()
    assert found is not None
    names = TABLE.column_names
    taken = [
        name for name, one, other in zip(names, found.digests, given.digests, strict=True) if one == other
    ]
    assert taken == unchanged


def test_a_field_with_fewer_rows_is_hashed(store: BlobStore, tmp_path: Path) -> None:
    """Digests of the source do not hold for a destination without some of its rows."""
    with_singletons = TABLE.set_column(
        2, "class", pa.array(np.where(np.arange(ROWS) < 9, np.arange(ROWS), 100))
    )
    parameters = {"swap_fields": ["x"], "control_field": "class", "suppression": {"policy": "drop"}}
    for memory in (PLENTY, LITTLE):
        task = swap_task(store, tmp_path, "CDSWAP", with_singletons, parameters, memory)
        source = store.allocate()
        write_table(source, with_singletons, field_digests=parts_of(with_singletons))
        outcome, access = destination(replace(task, source=source))
        released = read_table(access)
        assert released.num_rows == ROWS - 9
        assert outcome["destination"]["digest"] == table_digest(released)


def test_a_destination_of_the_first_form_is_hashed_whole(store: BlobStore, tmp_path: Path) -> None:
    task = swap_task(store, tmp_path, "DSWAP", TABLE, {"swap_fields": ["x"]}, PLENTY)
    known = with_digests(task, store, parts_of(TABLE))
    outcome, access = destination(replace(known, digest_form=DigestForm.WHOLE))
    assert outcome["destination"]["digest"] == table_digest(read_table(access), DigestForm.WHOLE)
    assert BlobTable(access, ROWS).field_digests() is None


def test_all_digests_of_a_table_make_its_digest() -> None:
    digest = TableDigest(TABLE.schema, known=parts_of(TABLE).digests)
    for batch in TABLE.to_batches():
        assert digest.work(batch, 2) == []
    assert digest.finish() == table_digest(TABLE)
