"""Types, encodings and metadata over HTTP: preserved, or rejected with a clear message."""

import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from providers.tables.digest import table_digest
from tests.api.calls import ARROW, PARQUET, Api
from tests.every_type import COLUMNS

BEYOND = 2**53 + 1
NAMES = list(COLUMNS)


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def uploaded(api: Api, table: pa.Table) -> str:
    """Upload the table; return the id of its buffer."""
    answer = api.client.post("/v1/buffers", content=stream_of(table), headers={"content-type": ARROW})
    assert answer.status_code == 201, answer.text
    identifier: str = answer.json()["id"]
    return identifier


def finished(api: Api, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the job of a request, which must succeed; the first one in a worker waits for kernels."""
    answer = api.client.post(path, json=body, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    job = api.job(answer)
    assert job["state"] == "succeeded", job
    return job


WIDE = [{"amount": BEYOND + 4096 * row, "x": row * 1.5, "y": row % 7} for row in range(40)]


@pytest.mark.parametrize(
    ("service", "parameters"),
    [
        ("LOCALITY", {"fields": ["amount"], "segment_size": 10}),
        ("PABIDOT", {"fields": ["amount", "x", "y"]}),
    ],
)
def test_an_integer_beyond_float64_that_became_one_is_measured(
    api: Api, service: str, parameters: dict[str, Any]
) -> None:
    """A full report, and the same two tables at /v1/measures."""
    source = uploaded(api, pa.Table.from_pylist(WIDE))
    body = {"source": {"buffer": source}, "parameters": parameters, "report": "full"}
    job = finished(api, f"/v1/services/{service}", body)
    assert job["destination"]["fields"][0]["type"] == "float64"
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    assert "amount" in report["measures"]["marginals"]["value"]["by_field"]
    rows = api.client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": ARROW}).content
    destination = uploaded(api, pa.ipc.open_stream(rows).read_all())
    body = {"source": {"buffer": source}, "destination": {"buffer": destination}}
    found = finished(api, "/v1/measures", body)
    assert "amount" in found["report"]["measures"]["marginals"]["value"]["by_field"]


@pytest.mark.parametrize("shift", [0, 1, 7, 23])
def test_every_type_is_measured_or_left_out_with_a_reason(api: Api, shift: int) -> None:
    """Every type of a source against one of a destination; none causes an internal error."""
    shifted = [NAMES[(place + shift) % len(NAMES)] for place in range(len(NAMES))]
    fields = [f"field {number}" for number in range(len(NAMES))]
    source = uploaded(api, pa.table([COLUMNS[name] for name in NAMES], names=fields))
    destination = uploaded(api, pa.table([COLUMNS[name] for name in shifted], names=fields))
    body = {"source": {"buffer": source}, "destination": {"buffer": destination}}
    report = finished(api, "/v1/measures", body)["report"]
    measured = set(report["measures"]["changed_share"]["value"])
    left_out = {key.removeprefix("fields.") for key in report["left_out"] if key.startswith("fields.")}
    assert measured | left_out == set(fields)
    assert not measured & left_out


def test_a_sum_of_two_ranges_stays_apart(api: Api) -> None:
    """int64 and uint64 compare exactly: neighbours beyond 2**53 differ."""
    numbers = np.arange(20, dtype=np.int64) + BEYOND
    source = uploaded(api, pa.table({"n": numbers}))
    destination = uploaded(api, pa.table({"n": (numbers + 1).astype(np.uint64)}))
    body = {"source": {"buffer": source}, "destination": {"buffer": destination}}
    job = finished(api, "/v1/measures", body)
    assert job["report"]["measures"]["changed_share"]["value"] == {"n": 1.0}


GEO = b'{"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": {"bbox": [1, 2, 3, 4]}}}'
METADATA = {b"geo": GEO, b"pandas": b'{"columns": []}', b"maker": b"by hand"}
WKB = {b"ARROW:extension:name": b"geoarrow.wkb", b"ARROW:extension:metadata": b"{}"}


def geo_table() -> pa.Table:
    """Create a small GeoParquet table whose other fields have encodings of every kind."""
    rows = 12
    schema = pa.schema(
        [
            pa.field("geometry", pa.binary(), metadata=WKB),
            pa.field("income", pa.int64(), metadata={b"unit": b"EUR"}),
            pa.field("view", pa.string_view()),
            pa.field("bytes", pa.binary_view()),
            pa.field("runs", COLUMNS["runs of text"].type),
            pa.field("kinds", COLUMNS["dictionary with a null"].type),
            pa.field("rounded", pa.decimal128(5, -2)),
        ],
        metadata=METADATA,
    )
    columns = [
        pa.array([bytes([row]) for row in range(rows)]),
        pa.array(range(1000, 1000 + rows)),
        pa.array([None if row == 3 else f"name {row} and more" for row in range(rows)], pa.string_view()),
        pa.array([bytes([row, 255]) for row in range(rows)], pa.binary_view()),
        COLUMNS["runs of text"],
        COLUMNS["dictionary with a null"],
        pa.array([Decimal(100 * (row + 1)) for row in range(rows)], pa.decimal128(5, -2)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def rows_of(api: Api, path: str, accept: str) -> pa.Table:
    body = api.client.get(f"{path}/rows", headers={"accept": accept}).raise_for_status().content
    if accept == PARQUET:
        return pq.ParquetFile(io.BytesIO(body)).read()
    return pa.ipc.open_stream(body).read_all()


@pytest.mark.parametrize("media_type", [ARROW, PARQUET])
def test_metadata_and_encodings_go_from_source_to_destination(api: Api, media_type: str) -> None:
    """An upload is returned unchanged, and a swap changes only values."""
    table = geo_table().drop_columns(["rounded"] if media_type == PARQUET else [])
    source = uploaded(api, table)
    swapped = [name for name in table.schema.names if name != "geometry"]
    body = {"source": {"buffer": source}, "parameters": {"swap_fields": swapped}, "report": "full"}
    job = finished(api, "/v1/services/DSWAP", body)
    for path in (f"/v1/buffers/{source}", f"/v1/jobs/{job['id']}"):
        back = rows_of(api, path, media_type)
        metadata = {key: value for key, value in back.schema.metadata.items() if key != b"ARROW:schema"}
        assert metadata == METADATA
        for field in table.schema:
            found = back.schema.field(field.name)
            decoded = media_type == PARQUET and field.name == "runs"
            assert found.type == (pa.string() if decoded else field.type), field.name
            kept = {k: v for k, v in (found.metadata or {}).items() if not k.startswith(b"PARQUET:")}
            assert kept == (field.metadata or {}), field.name
        assert back.column("geometry").to_pylist() == table.column("geometry").to_pylist()
    before, after = (sorted(str(value) for value in one.column("view").to_pylist()) for one in (table, back))
    assert before == after
    assert table_digest(rows_of(api, f"/v1/buffers/{source}", media_type)) == table_digest(table)


def test_metadata_that_would_be_wrong_of_a_new_type_go(api: Api) -> None:
    """LOCALITY turns an integer into float64: pandas' metadata of it is removed, other metadata stay."""
    schema = pa.schema([pa.field("income", pa.int64(), metadata=WKB | {b"unit": b"EUR"})], metadata=METADATA)
    table = pa.Table.from_arrays([pa.array(range(40))], schema=schema)
    body = {
        "source": {"buffer": uploaded(api, table)},
        "parameters": {"fields": ["income"], "segment_size": 10},
    }
    job = finished(api, "/v1/services/LOCALITY", body)
    back = rows_of(api, f"/v1/jobs/{job['id']}", ARROW).schema
    assert back.field("income").type == pa.float64()
    assert back.field("income").metadata == {b"unit": b"EUR"}
    assert back.metadata == {b"geo": GEO, b"maker": b"by hand"}


def test_a_decimal_of_negative_scale_moves_and_parquet_says_before_it_begins(api: Api) -> None:
    table = pa.table({"rounded": geo_table().column("rounded"), "group": ["a", "b"] * 6})
    body = {
        "source": {"buffer": uploaded(api, table)},
        "parameters": {"swap_fields": ["rounded"], "control_field": "group"},
        "report": "full",
    }
    job = finished(api, "/v1/services/CDSWAP", body)
    back = rows_of(api, f"/v1/jobs/{job['id']}", ARROW)
    assert back.schema.field("rounded").type == pa.decimal128(5, -2)
    assert sorted(back["rounded"].to_pylist()) == sorted(table["rounded"].to_pylist())
    refused = api.client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": PARQUET})
    assert "field 'rounded' is of type decimal(5,-2)" in api.problem(refused, 406)["detail"]


def test_a_moment_too_far_off_for_parquet_is_refused_before_the_answer_begins(api: Api) -> None:
    """The last row decides; Arrow represents it, and Parquet whatever fits milliseconds."""
    rows = 200_000
    seconds = np.arange(rows)
    near = uploaded(api, pa.table({"at": pa.array(seconds, pa.timestamp("s")), "n": seconds}))
    assert rows_of(api, f"/v1/buffers/{near}", PARQUET).num_rows == rows
    seconds[-1] = 2**62
    far = uploaded(api, pa.table({"at": pa.array(seconds, pa.timestamp("s")), "n": seconds}))
    answer = api.client.get(f"/v1/buffers/{far}/rows", headers={"accept": PARQUET})
    assert "a timestamp is outside of Parquet's range" in api.problem(answer, 406)["detail"]
    assert rows_of(api, f"/v1/buffers/{far}", ARROW).num_rows == rows
