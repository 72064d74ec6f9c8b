"""``/v1/buffers``: upload in each type, use in a call, get back, delete."""

import io

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from providers.digest import table_digest
from tests.api.calls import ARROW, PARQUET, Api


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({"id": range(1000), "town": ["Oslo", "Bergen"] * 500, "x": [None, 1.5, -0.0, 7.25] * 250})


def _encoded(table: pa.Table, media_type: str) -> bytes:
    sink = io.BytesIO()
    if media_type == ARROW:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    elif media_type == PARQUET:
        pa.parquet.write_table(table, sink)
    else:
        lines = [",".join(table.column_names)]
        lines += [
            ",".join("" if cell is None else str(cell) for cell in row.values()) for row in table.to_pylist()
        ]
        sink.write("\r\n".join(lines).encode())
    return sink.getvalue()


@pytest.mark.parametrize("media_type", [ARROW, PARQUET, "text/csv"])
def test_upload_run_and_get_back(api: Api, table: pa.Table, media_type: str) -> None:
    content = _encoded(table, media_type)
    answer = api.client.post("/v1/buffers", content=content, headers={"content-type": media_type})
    assert answer.status_code == 201, answer.text
    buffer = answer.json()
    assert buffer["digest"] == table_digest(table)
    assert buffer["row_count"] == 1000
    assert answer.headers["location"] == f"/v1/buffers/{buffer['id']}"
    assert api.client.get(f"/v1/buffers/{buffer['id']}").json() == buffer
    back = api.client.get(f"/v1/buffers/{buffer['id']}/rows", headers={"accept": ARROW}).content
    assert pa.ipc.open_stream(back).read_all().equals(table)

    call = {
        "source": {"buffer": buffer["id"]},
        "parameters": {"swap_fields": ["x"], "control_field": "town"},
        "seed": "2a",
    }
    job = api.job(api.client.post("/v1/services/CDSWAP", json=call))
    assert job["source"]["digest"] == buffer["digest"]
    assert "rows" not in job["destination"]  # the source was not inline
    rerun = api.job(api.client.post(f"/v1/jobs/{job['id']}/rerun"))
    assert rerun["reproduced"] is True  # from the buffer, which is still there

    assert api.client.delete(f"/v1/buffers/{buffer['id']}").status_code == 204
    api.problem(api.client.get(f"/v1/buffers/{buffer['id']}"), 404)
    call["seed"] = "2b"
    api.problem(api.client.post("/v1/services/CDSWAP", json=call), 422)


@pytest.mark.parametrize("media_type", [ARROW, PARQUET, "text/csv"])
def test_broken_upload_is_a_problem(api: Api, table: pa.Table, media_type: str) -> None:
    content = _encoded(table, media_type)[:-60] if media_type != "text/csv" else b'a,b\n1,2\n"x\n'
    answer = api.client.post("/v1/buffers", content=content, headers={"content-type": media_type})
    api.problem(answer, 422)


def test_other_types_are_refused(client: httpx.Client, api: Api) -> None:
    answer = client.post("/v1/buffers", content=b"x", headers={"content-type": "application/zip"})
    assert PARQUET in api.problem(answer, 415)["detail"]
