"""Golden digests, which only a new version of the canonical form may change, and its finer points."""

import hashlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.formats.media_types import ARROW_STREAM, PARQUET
from providers.tables.digest import DigestForm, TableDigest, form_of, other_form, table_digest
from tests.naive.digest import naive_digest, naive_digest_of_older_versions
from tests.whole_tables import read_table, write_table

PEOPLE = pa.table(
    {
        "age": pa.array([31, None, 7], pa.int64()),
        "income": pa.array([42000.0, float("nan"), -0.0]),
        "city": pa.array(["Dublin", None, ""]),
        "born": pa.array([-719528, 0, None], pa.date32()),
        "seen": pa.array([1, None, -1], pa.timestamp("us", "Europe/Dublin")),
        "paid": pa.array([Decimal("12.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
        "tags": pa.array([["a", None], None, []], pa.list_(pa.string())),
        "home": pa.array([{"x": 1, "ok": True}, None, {"x": None, "ok": False}]),
    }
)
GOLDEN = {
    "people": PEOPLE,
    "no rows": PEOPLE.slice(0, 0),
    "no fields": pa.table({}),
}
DIGESTS = {
    "people": "sha256t:8ef222021e484c4bf208491463a447d70a9f3f2bde5f0085b67425539c97a411",
    "no rows": "sha256t:0e8af2bb2e275c6e57ea0fe76057c0c49289c720f3dbb184219391ecc3ad1683",
    "no fields": "sha256t:" + hashlib.sha256(b"rowveil.table/2\n" + bytes(16)).hexdigest(),
}
OLDER_DIGESTS = {
    "people": "sha256:9a994e11a70ffa683166c5a9d786bf623161ded90a30855ecb42d22029a4dfc1",
    "no rows": "sha256:3cdc346c0f1fde5468e4d823217c0cf6bac6c64b2595cbcbdf850dac403dd521",
    "no fields": "sha256:" + hashlib.sha256(b"rowveil.table/1\n" + bytes(16)).hexdigest(),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_digests(name: str) -> None:
    assert table_digest(GOLDEN[name]) == DIGESTS[name]
    assert naive_digest(GOLDEN[name]) == DIGESTS[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_digests_of_older_versions(name: str) -> None:
    assert table_digest(GOLDEN[name], DigestForm.WHOLE) == OLDER_DIGESTS[name]
    assert naive_digest_of_older_versions(GOLDEN[name]) == OLDER_DIGESTS[name]


def test_a_digest_names_its_form() -> None:
    for digests, form in ((DIGESTS, DigestForm.PARTS), (OLDER_DIGESTS, DigestForm.WHOLE)):
        assert {form_of(digest) for digest in digests.values()} == {form}
        assert other_form(other_form(form)) is form is not other_form(form)
    with pytest.raises(ValueError, match="sha512"):
        form_of("sha512:00")


def digest_of_bytes(rows: int) -> str:
    """The digest of one field `n` of `rows` zeros of type uint8, written down from the decision."""

    def sha256(*data: bytes) -> bytes:
        return hashlib.sha256(b"".join(data)).digest()

    def u64(number: int) -> bytes:
        return number.to_bytes(8, "little")

    def chunk(count: int) -> bytes:
        state = b"rowveil.state/2\n"
        states = sha256(state, b"\x01" * count), sha256(state, bytes(count))
        return sha256(b"rowveil.chunk/2\n", u64(count), *states)

    chunks = [chunk(min(2**20, rows - first)) for first in range(0, rows, 2**20)]
    field = sha256(b"rowveil.field/2\n", u64(5), b"uint8", u64(rows), *chunks)
    return "sha256t:" + sha256(b"rowveil.table/2\n", u64(rows), u64(1), u64(1), b"n", field).hex()


@pytest.mark.parametrize("rows", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 2**21, 2**21 + 70_000])
def test_chunks_have_a_fixed_number_of_rows(rows: int) -> None:
    table = pa.table({"n": pa.array(np.zeros(rows, np.uint8))})
    digest = TableDigest(table.schema)
    for batch in table.to_batches(max_chunksize=300_001):
        digest.update(batch)
    assert digest.finish() == table_digest(table) == digest_of_bytes(rows)


@pytest.mark.parametrize("chunk_rows", [1, 2, 3])
def test_chunks_of_every_type(chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.tables.digest.CHUNK_ROWS", chunk_rows)
    monkeypatch.setattr("tests.naive.digest.CHUNK_ROWS", chunk_rows)
    assert table_digest(PEOPLE) == naive_digest(PEOPLE)
    assert (table_digest(PEOPLE) == DIGESTS["people"]) == (chunk_rows >= PEOPLE.num_rows)


def test_known_digests_of_fields_are_not_computed() -> None:
    """They are those of any table with the same field; of another field, the digest is another one."""
    other = PEOPLE.set_column(0, "age", pa.array([1, 2, 3]))
    first = TableDigest(other.schema)
    for batch in other.to_batches():
        first.update(batch)
    known = [None, *first.field_digests()[1:]]
    for digits in (known, [None, bytes(32), *known[2:]]):
        digest = TableDigest(PEOPLE.schema, known=digits)
        for batch in PEOPLE.to_batches(max_chunksize=2):
            assert len(digest.work(batch, 20)) == 1
            digest.rows -= batch.num_rows
            digest.update(batch)
        assert (digest.finish() == DIGESTS["people"]) == (digits is known)
    with pytest.raises(ValueError, match="not part of the form sha256"):
        TableDigest(PEOPLE.schema, DigestForm.WHOLE, known)


def test_no_digest_of_a_part_is_that_of_a_table() -> None:
    """Whatever a column contains, the input of its states begins with another tag than that of a table."""
    inner = pa.table({})
    content = b"rowveil.table/2\n" + bytes(16)
    digest = TableDigest(pa.schema([("b", pa.binary())]))
    digest.update(pa.record_batch({"b": [content]}))
    parts = digest.field_digests() + digest._fields[0]._open.digests()  # type: ignore[union-attr]
    assert bytes.fromhex(table_digest(inner).removeprefix("sha256t:")) not in parts


def one(values: Any, data_type: Any = None) -> str:
    return table_digest(pa.table({"field": pa.array(values, data_type)}))


def test_any_nan_is_the_same_and_minus_zero_is_not_zero() -> None:
    odd_nan = np.array([0x7FF8000000000001, 0xFFF0000000000002], np.uint64).view(np.float64)
    assert one(odd_nan) == one([float("nan")] * 2)
    assert one(np.array([0xFE01], np.uint16).view(np.float16)) == one(np.array([np.nan], np.float16))
    assert one([0.0]) != one([-0.0])


def test_what_lies_behind_a_null_does_not_count() -> None:
    mask = np.array([False, True])
    assert one(pa.array(np.array([1, 99]), mask=mask)) == one([1, None])
    assert one(pa.array(np.array([1.0, np.nan]), mask=mask)) == one([1.0, None])
    hidden = pa.StringArray.from_buffers(
        2, pa.array([0, 2, 5], pa.int32()).buffers()[1], pa.py_buffer(b"ab???"), pa.py_buffer(b"\x01")
    )
    assert hidden.to_pylist() == ["ab", None]
    assert one(hidden) == one(["ab", None])


def test_the_unit_of_a_temporal_type_does_not_count_but_its_zone_does() -> None:
    assert one([-1, None], pa.timestamp("s")) == one([-1_000_000_000, None], pa.timestamp("ns"))
    assert one([-1], pa.timestamp("ms")) != one([-1], pa.timestamp("s"))
    assert one([5], pa.duration("s")) == one([5_000], pa.duration("ms"))
    assert one([5], pa.time32("s")) == one([5_000_000], pa.time64("us"))
    assert one([2**63 - 1], pa.timestamp("s")) != one([2**63 - 2], pa.timestamp("s"))
    assert one([0], pa.timestamp("us", "UTC")) != one([0], pa.timestamp("us"))
    assert one([0], pa.timestamp("us", "UTC")) != one([0], pa.timestamp("us", "Europe/Dublin"))


CHANGES: list[Callable[[], pa.Table]] = [
    lambda: PEOPLE.rename_columns(["years", *PEOPLE.column_names[1:]]),
    lambda: PEOPLE.select(list(reversed(PEOPLE.column_names))),
    lambda: PEOPLE.drop_columns(["city"]),
    lambda: PEOPLE.slice(0, 2),
    lambda: PEOPLE.take([1, 0, 2]),
    lambda: PEOPLE.set_column(0, "age", pa.array([31, None, 7], pa.int32())),
    lambda: PEOPLE.set_column(0, "age", pa.array([31, 0, 7], pa.int64())),
    lambda: PEOPLE.set_column(2, "city", pa.array(["Dubli", None, "n"])),
    lambda: PEOPLE.set_column(2, "city", pa.array(["Dublin", "", None])),
    lambda: PEOPLE.set_column(6, "tags", pa.array([["a"], None, [None]], pa.list_(pa.string()))),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_any_change_changes_it(number: int) -> None:
    assert table_digest(CHANGES[number]()) != table_digest(PEOPLE)


def test_metadata_and_nullable_flags_do_not_count() -> None:
    fields = [field.with_metadata({"a": "b"}) for field in PEOPLE.schema]
    assert table_digest(PEOPLE.cast(pa.schema(fields, {"c": "d"}))) == table_digest(PEOPLE)
    strict = pa.schema([pa.field("n", pa.int8(), nullable=False)])
    assert table_digest(pa.table({"n": [1]}, strict)) == table_digest(
        pa.table({"n": pa.array([1], pa.int8())})
    )


def test_a_long_column_is_hashed_in_blocks() -> None:
    rows = 2 * 65536 + 17
    values = np.random.default_rng(1).random(rows)
    whole = pa.table({"a": values, "b": pa.array(np.arange(rows) % 97).cast(pa.string())})
    parts = pa.concat_tables([whole.slice(0, 70_000), whole.slice(70_000)])
    assert table_digest(whole) == table_digest(parts) == naive_digest(whole)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 65_536, 150_000, 196_624])
def test_a_null_may_come_late(at: int) -> None:
    """Values before the first null are digested correctly, within a block of rows and at its border."""
    rows = 3 * 65536 + 17
    there = np.arange(rows) != at
    late = pa.table({"a": pa.array(np.arange(rows), mask=~there), "b": pa.array(there)})
    parts = pa.concat_tables([late.slice(0, 70_000), late.slice(70_000)])
    assert table_digest(late) == table_digest(parts) == naive_digest(late)


def test_the_work_of_a_batch_may_be_shared_out() -> None:
    for most in (1, 2, 3, 20):
        digest = TableDigest(PEOPLE.schema)
        for batch in PEOPLE.to_batches(max_chunksize=2):
            work = digest.work(batch, most)
            assert len(work) == min(most, PEOPLE.num_columns)
            for add in reversed(work):
                add()
        assert digest.finish() == DIGESTS["people"]


def test_a_batch_of_other_fields_is_refused() -> None:
    digest = TableDigest(pa.schema([("a", pa.int8())]))
    with pytest.raises(ValueError, match="does not have the fields of the schema"):
        digest.update(pa.record_batch({"a": pa.array([1], pa.int16())}))
    with pytest.raises(ValueError, match="does not have the fields of the schema"):
        digest.update(pa.record_batch({"b": pa.array([1], pa.int8())}))


@pytest.mark.realdata
def test_real_flights_keep_their_digest_through_arrow_and_parquet(data_dir: Path) -> None:
    flights = pq.read_table(data_dir / "nycflights13_flights.parquet")
    digest = table_digest(flights)
    for media_type in (ARROW_STREAM, PARQUET):
        assert table_digest(read_table(media_type, b"".join(write_table(media_type, flights)))) == digest
    encoded = flights.set_column(0, "year", flights.column("year").dictionary_encode())
    assert table_digest(encoded) == digest
