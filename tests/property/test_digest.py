"""The digest agrees with its plain twin for every type and every layout of a table."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.tables.digest import DigestForm, TableDigest, table_digest
from providers.tables.encodings import canonical_array
from tests.naive.digest import naive_digest, naive_digest_of_older_versions
from tests.property.arrow_tables import FLAT_TYPES, another_carriage, tables, types

ALL_TYPES = types(FLAT_TYPES | st.just(pa.month_day_nano_interval()))


@pytest.fixture(autouse=True, scope="module")
def chunk_rows() -> Iterator[None]:
    """Chunks so short that a table of a few rows has several."""
    with pytest.MonkeyPatch.context() as patched:
        for module in ("providers.tables.digest", "tests.naive.digest"):
            patched.setattr(f"{module}.CHUNK_ROWS", 2)
        yield


@given(tables(of=ALL_TYPES))
def test_it_is_what_its_definition_says(table: pa.Table) -> None:
    assert table_digest(table) == naive_digest(table)
    assert table_digest(table, DigestForm.WHOLE) == naive_digest_of_older_versions(table)


@given(st.data())
def test_it_is_the_same_however_the_table_is_carried(data: st.DataObject) -> None:
    table = data.draw(tables(of=ALL_TYPES))
    other = data.draw(another_carriage(table))
    assert table_digest(other) == table_digest(table)
    assert table_digest(other, DigestForm.WHOLE) == table_digest(table, DigestForm.WHOLE)
    assert naive_digest(other) == naive_digest(table)


@given(st.data())
def test_a_canonical_array_holds_the_same_values(data: st.DataObject) -> None:
    table = data.draw(tables(of=types(), min_fields=1))
    other = data.draw(another_carriage(table))
    for before, after in zip(table.columns, other.columns, strict=True):
        for chunk in after.chunks:
            canonical = canonical_array(chunk)
            canonical.validate(full=True)
            assert canonical.type == before.type
        values = pa.chunked_array(map(canonical_array, after.chunks), before.type)
        assert table_digest(pa.table({"field": values})) == table_digest(pa.table({"field": before}))


@given(tables(of=types(), min_fields=1), st.integers(0, 6), st.integers(0, 6))
def test_batches_may_be_cut_anywhere(table: pa.Table, first: int, second: int) -> None:
    for form in DigestForm:
        digest = TableDigest(table.schema, form)
        start = 0
        for end in sorted((min(first, table.num_rows), min(second, table.num_rows), table.num_rows)):
            for batch in table.slice(start, end - start).to_batches():
                digest.update(batch)
            start = end
        assert digest.finish() == table_digest(table, form)


@given(tables(of=types(), min_fields=1), st.data())
def test_two_tables_agree_when_their_plain_twins_do(table: pa.Table, data: st.DataObject) -> None:
    same_type = st.just(table.schema.field(0).type)
    other = data.draw(tables(of=same_type, min_fields=1, max_fields=1))
    one, two = pa.table({"field": table.column(0)}), pa.table({"field": other.column(0)})
    assert (table_digest(one) == table_digest(two)) == (naive_digest(one) == naive_digest(two))
