"""Written tables read back equal: every type, every media type."""

import io
import json

import orjson
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from app.formats.json_input import table_from_columns, table_from_rows
from app.formats.json_output import BATCH_ROWS, fields_of, json_rows, json_with_rows
from app.formats.media_types import ARROW_STREAM, CSV, JSON, PARQUET
from providers.tables.digest import table_digest
from providers.tables.encodings import can_take
from providers.tables.type_names import canonical_type
from tests.property.arrow_tables import FLAT_TYPES, another_carriage, tables, types
from tests.whole_tables import read_table, write_table


def parquet_has(flat: pa.DataType) -> bool:
    """Not binaries of width 0, decimals of a negative scale, or all instants that seconds can count."""
    if pa.types.is_timestamp(flat):
        return bool(flat.unit != "s")
    if pa.types.is_decimal(flat):
        return bool(flat.scale >= 0)
    return bool(flat != pa.binary(0))


PARQUET_TYPES = types(FLAT_TYPES.filter(parquet_has), empty_structs=False)


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal names, canonical types and values (NaN equals NaN, -0.0 differs from 0.0)."""
    types_equal = [canonical_type(field.type) for field in left.schema] == [
        canonical_type(field.type) for field in right.schema
    ]
    return types_equal and table_digest(left) == table_digest(right)


@given(st.data())
def test_json_reads_back_to_the_identical_table(data: st.DataObject) -> None:
    table = data.draw(tables())
    body = b"".join(write_table(JSON, data.draw(another_carriage(table))))
    assert same(read_table(JSON, body), table)
    json.loads(body, parse_constant=lambda word: 1 / 0)  # no NaN outside strings


@given(tables(min_fields=1))
def test_rows_and_columns_read_back_with_their_types(table: pa.Table) -> None:
    rows = orjson.loads(b"".join(json_with_rows(b"", table.schema, table.to_batches(), b"")))
    fields = {field["name"]: field["type"] for field in fields_of(table.schema)}
    assert same(table_from_rows(rows, fields), table)
    columns = {name: [row[name] for row in rows] for name in table.column_names}
    assert same(table_from_columns(columns, fields), table)


@given(tables(of=FLAT_TYPES, min_fields=1))
def test_the_rows_of_a_small_table_are_written_as_those_of_a_large_one(table: pa.Table) -> None:
    """Few rows are Python objects, many are texts of Arrow."""
    assume(table.num_rows > 0)
    copies = BATCH_ROWS // table.num_rows
    many = pa.concat_tables([table] * copies).combine_chunks()
    assert json_rows(many) == b"[" + b",".join([json_rows(table)[1:-1]] * copies) + b"]"


@given(st.data())
def test_csv_reads_back_with_its_types(data: st.DataObject) -> None:
    table = data.draw(tables(of=FLAT_TYPES, min_fields=1))
    assume(not any("\0" in name for name in table.column_names))
    fields = {field["name"]: field["type"] for field in fields_of(table.schema)}
    body = b"".join(write_table(CSV, data.draw(another_carriage(table))))
    assert same(read_table(CSV, body, fields), table)
    assert same(read_table(CSV, io.BytesIO(body), fields), table)


@given(st.data())
def test_arrow_carries_every_type_and_all_but_views_and_runs_unchanged(data: st.DataObject) -> None:
    table = data.draw(another_carriage(data.draw(tables())))
    back = read_table(ARROW_STREAM, b"".join(write_table(ARROW_STREAM, table)))
    for before, after in zip(table.schema, back.schema, strict=True):
        assert after.type == (before.type if can_take(before.type) else canonical_type(before.type))
    assert table_digest(back) == table_digest(table)
    assert back.take(pa.array(range(back.num_rows), pa.int64())).num_rows == table.num_rows


@given(st.data())
def test_parquet_keeps_the_digest(data: st.DataObject) -> None:
    table = data.draw(tables(of=PARQUET_TYPES, min_fields=1))
    other = data.draw(another_carriage(table))
    back = read_table(PARQUET, b"".join(write_table(PARQUET, other)))
    assert table_digest(back) == table_digest(table)


@given(st.data())
def test_parquet_bytes_do_not_depend_on_chunks(data: st.DataObject) -> None:
    table = data.draw(tables(of=PARQUET_TYPES, min_fields=1))
    cut = data.draw(st.integers(0, table.num_rows))
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert b"".join(write_table(PARQUET, chunked)) == b"".join(write_table(PARQUET, table))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=6))
def test_text_in_a_single_csv_field_survives_whatever_it_holds(values: list[str]) -> None:
    table = pa.table({"word": [None, *values, None, ""]})
    body = b"".join(write_table(CSV, table))
    assert read_table(CSV, body, {"word": "string"}).equals(table)
