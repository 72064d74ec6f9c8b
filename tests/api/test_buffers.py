"""``/v1/buffers``: upload in each type, use in a request, download, delete."""

import gzip
import hashlib
import io
from base64 import b64encode
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from providers.tables.digest import table_digest
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


# ------------------------------------------------------------------------------------------- forms


def _form(
    client: httpx.Client, file: tuple[str, bytes, str], path: str = "/form", **values: Any
) -> httpx.Response:
    return client.post(f"/v1/buffers{path}", files={"file": file}, data=values)


@pytest.mark.parametrize("path", ["/form", ""])
@pytest.mark.parametrize("media_type", [ARROW, PARQUET, "text/csv"])
def test_a_form_makes_the_same_buffer(api: Api, table: pa.Table, media_type: str, path: str) -> None:
    answer = _form(api.client, ("table", _encoded(table, media_type), media_type), path)
    assert answer.status_code == 201, answer.text
    assert answer.json()["digest"] == table_digest(table)
    assert answer.headers["location"] == f"/v1/buffers/{answer.json()['id']}"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("People.CSV", "text/csv"), ("people.parquet", PARQUET), ("people.arrows", ARROW)],
)
def test_a_file_whose_type_the_browser_does_not_know_goes_by_its_suffix(
    api: Api, table: pa.Table, name: str, media_type: str
) -> None:
    answer = _form(api.client, (name, _encoded(table, media_type), "application/octet-stream"))
    assert answer.json()["digest"] == table_digest(table)


def test_a_form_says_how_its_csv_is_written(api: Api) -> None:
    content = "name;née;pay\nZoë;NA;12,5\n".encode("windows-1252")
    said: dict[str, Any] = {
        "delimiter": ";",
        "encoding": "Windows-1252",
        "fields": '{"née": "date"}',
        "null_tokens": ["NA", "-"],
        "decimal_mark": "comma",
    }
    buffer = _form(api.client, ("a.csv", content, "text/csv"), **said).json()
    assert {field["name"]: field["type"] for field in buffer["fields"]} == {
        "name": "string", "née": "date", "pay": "float64",
    }  # fmt: skip
    rows = api.client.get(f"/v1/buffers/{buffer['id']}/rows").json()["rows"]
    assert rows == [{"name": "Zoë", "née": None, "pay": 12.5}]


def test_an_empty_field_of_a_form_is_as_none(api: Api) -> None:
    empty: dict[str, Any] = {"delimiter": "", "encoding": "", "fields": "", "null_tokens": ""}
    assert (
        _form(api.client, ("a.parquet", _encoded(pa.table({"a": [1]}), PARQUET), ""), **empty).status_code
        == 201
    )


@pytest.mark.parametrize(
    ("file", "values", "status", "words"),
    [
        (("a.csv", b"a\n1\n", "text/csv"), {"delimeter": ";"}, 422, "did you mean 'delimiter'?"),
        (("a.csv", b"a\n1\n", "text/csv"), {"delimiter": "::"}, 422, "one ASCII character"),
        (("a.csv", b"a\n1\n", "text/csv"), {"delimiter": [";", ","]}, 422, "delimiter"),
        (("a.zip", b"a\n1\n", "application/zip"), {}, 415, ".parquet"),
        (("a.arrow", b"a\n1\n", ""), {"delimiter": ";"}, 422, "leave it out"),
    ],
)
def test_a_wrong_form_is_answered_with_what_would_be_right(
    api: Api, file: tuple[str, bytes, str], values: dict[str, Any], status: int, words: str
) -> None:
    assert words in api.problem(_form(api.client, file, **values), status)["detail"]


def test_a_form_needs_its_file_and_the_operation_a_form(api: Api) -> None:
    answer = api.client.post("/v1/buffers/form", files={"fields": (None, b"{}")})
    assert "'file'" in api.problem(answer, 422)["detail"]
    answer = api.client.post("/v1/buffers/form", content=b"a\n1\n", headers={"content-type": "text/csv"})
    assert "multipart/form-data" in api.problem(answer, 415)["detail"]


# --------------------------------------------------------------------------------------------- CSV


def _csv(client: httpx.Client, content: bytes, content_type: str = "text/csv", **said: Any) -> httpx.Response:
    return client.post("/v1/buffers", content=content, params=said, headers={"content-type": content_type})


def test_a_csv_shows_the_types_that_it_was_found_to_have(api: Api) -> None:
    content = b"n,x,yes,when,no\n1,0.5,true,2024-02-29,\n,NaN,false,2024-03-01,\n"
    fields = {field["name"]: field["type"] for field in _csv(api.client, content).json()["fields"]}
    assert fields == {"n": "int64", "x": "float64", "yes": "bool", "when": "string", "no": "null"}


def test_a_csv_is_read_as_its_writer_wrote_it(api: Api) -> None:
    content = "id\tname\tborn\n007\tŁódź\tn/a\n".encode("iso-8859-2")
    said = {"delimiter": "tab", "null_tokens": "n/a", "fields": '{"born": "timestamp[ms, UTC]"}'}
    answer = _csv(api.client, content, "text/csv; charset=ISO-8859-2", **said)
    assert answer.status_code == 201, answer.text
    rows = api.client.get(f"/v1/buffers/{answer.json()['id']}/rows").json()
    assert rows["rows"] == [{"id": "007", "name": "Łódź", "born": None}]
    assert rows["fields"][2]["type"] == "timestamp[ms, UTC]"


@pytest.mark.parametrize(
    ("content_type", "said", "words"),
    [
        ("text/csv", {"fields": '["int64"]'}, "fields: write a JSON object"),
        ("text/csv", {"fields": '{"a": "integer"}'}, "did you mean 'int64'?"),
        ("text/csv", {"fields": '{"b": "int64"}'}, "unknown field 'b'"),
        ("text/csv", {"fields": '{"a": "int8"}'}, "field 'a', row 1 (counting from 0)"),
        ("text/csv", {"fields": '{"a": "list<int8>"}'}, "CSV cannot carry this type"),
        ("text/csv", {"delimiter": "x"}, "a delimiter is one ASCII character"),
        ("text/csv", {"encoding": "ebcdic"}, "utf-16"),
        ("text/csv", {"encodings": "utf-8"}, "did you mean 'encoding'?"),
        ("text/csv; charset=utf-8", {"encoding": "utf-16"}, "differ"),
        (ARROW, {"null_tokens": "NA"}, "'null_tokens' says how a CSV is written"),
    ],
)
def test_what_is_wrong_with_the_options_of_a_csv_is_reported(
    api: Api, content_type: str, said: dict[str, str], words: str
) -> None:
    answer = _csv(api.client, b"a\n1\n7770777\n", content_type, **said)
    assert words in api.problem(answer, 422)["detail"]
    assert "7770777" not in answer.text


def test_gzip_is_undone_on_the_way(api: Api, table: pa.Table) -> None:
    for content in (_encoded(table, "text/csv"), _encoded(table, PARQUET)):
        zipped = gzip.compress(content[:500]) + gzip.compress(content[500:])  # two members
        headers = {
            "content-type": PARQUET if content[:4] == b"PAR1" else "text/csv",
            "content-encoding": "gzip",
        }
        answer = api.client.post("/v1/buffers", content=zipped, headers=headers)
        assert answer.json()["digest"] == table_digest(table), answer.text


def _digest_field(content: bytes) -> str:
    return f"sha-256=:{b64encode(hashlib.sha256(content).digest()).decode()}:"


@pytest.mark.parametrize("zipped", [False, True])
def test_an_upload_with_its_digest_is_compared(api: Api, table: pa.Table, zipped: bool) -> None:
    """The digest is that of the bytes on their way: of the encoded content (RFC 9530, section 2)."""
    content = _encoded(table, "text/csv")
    sent = gzip.compress(content) if zipped else content
    headers = {"content-type": "text/csv"} | ({"content-encoding": "gzip"} if zipped else {})
    kept = api.client.get("/v1/buffers").json()["buffers"]
    altered = headers | {"content-digest": _digest_field(sent + b"4")}
    refused = api.problem(
        api.client.post("/v1/buffers", content=sent, headers=altered), 400, "digest_mismatch"
    )
    assert f"the content that arrived, {len(sent)} bytes" in refused["detail"]
    assert api.client.get("/v1/buffers").json()["buffers"] == kept
    complete = headers | {"content-digest": _digest_field(sent)}
    answer = api.client.post("/v1/buffers", content=sent, headers=complete)
    assert answer.json()["digest"] == table_digest(table), answer.text


def test_forms_and_calls_with_another_digest_are_refused(api: Api) -> None:
    """The response to a wish has the digest of its content; rows in a stream have none."""
    other = {"content-digest": _digest_field(b"")}
    files = {"file": ("a.csv", b"a\r\n1\r\n", "text/csv")}
    form = api.client.post("/v1/buffers/form", files=files, headers=other)
    call = {"source": {"columns": {"a": [1, 2]}}, "parameters": {"swap_fields": ["a"]}}
    wished = {"want-content-digest": "sha-256=1", "want-repr-digest": "sha-256=1"}
    run = api.client.post("/v1/services/DSWAP", json=call, headers=other | wished)
    for answer in (form, run):
        api.problem(answer, 400, "digest_mismatch")
    assert run.headers["content-digest"] == run.headers["repr-digest"] == _digest_field(run.content)
    done = api.client.post("/v1/services/DSWAP", json=call, headers=wished)
    assert done.headers["content-digest"] == done.headers["repr-digest"] == _digest_field(done.content)


@pytest.mark.parametrize("fields", ['{"b": "int64"}', '{"a": "int63"}'])
def test_an_error_of_the_fields_of_an_upload_names_the_parameter(api: Api, fields: str) -> None:
    """They are in the query or the form, and not in the body."""
    content = b"a\r\nx\r\n"
    raw = api.client.post(
        "/v1/buffers", content=content, headers={"content-type": "text/csv"}, params={"fields": fields}
    )
    files = {"file": ("a.csv", content, "text/csv")}
    form = api.client.post("/v1/buffers/form", files=files, data={"fields": fields})
    for answer in (raw, form):
        (error,) = api.problem(answer, 422, "invalid_source")["errors"]
        assert (error.get("parameter"), error.get("pointer")) == ("fields", None)


# ------------------------------------------------------------------------------------ rows and their tag


@pytest.fixture(scope="module")
def rows_path(api: Api, table: pa.Table) -> str:
    answer = api.client.post("/v1/buffers", content=_encoded(table, ARROW), headers={"content-type": ARROW})
    return f"/v1/buffers/{answer.json()['id']}/rows"


@pytest.mark.parametrize("media_type", [ARROW, PARQUET, "text/csv", "application/json"])
def test_a_caller_who_has_the_rows_gets_not_modified(
    client: httpx.Client, rows_path: str, media_type: str
) -> None:
    first = client.get(rows_path, headers={"accept": media_type})
    tag = first.headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        for method in ("GET", "HEAD"):
            again = client.request(method, rows_path, headers={"accept": media_type, "if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            assert "Accept" in again.headers["vary"]
    for other in ('"other"', tag.strip('"'), ""):
        assert (
            client.get(rows_path, headers={"accept": media_type, "if-none-match": other}).status_code == 200
        )


def test_the_lines_of_a_header_are_one_list(client: httpx.Client, rows_path: str) -> None:
    lines = [("accept", "text/csv;q=0.5"), ("accept", "image/png")]

    def get(*more: tuple[str, str]) -> httpx.Response:
        credentials = ("authorization", client.headers["authorization"])
        url = client.base_url.join(rows_path)
        return client.send(httpx.Request("GET", url, headers=[credentials, *lines, *more]))

    first = get()
    assert (first.status_code, first.headers["content-type"][:8]) == (200, "text/csv")
    tag = first.headers["etag"]
    for known in ((tag, '"other"'), ('"other"', tag)):
        assert get(*(("if-none-match", each) for each in known)).status_code == 304


def test_rows_with_another_tag_than_asked_for_are_refused(api: Api, rows_path: str) -> None:
    """If-Match compares strongly, and takes precedence over If-None-Match."""
    tag = api.client.get(rows_path).headers["etag"]
    for known in (tag, f'"other", {tag}', "*"):
        assert api.client.get(rows_path, headers={"if-match": known}).status_code == 200
        both = {"if-match": known, "if-none-match": tag}
        assert api.client.get(rows_path, headers=both).status_code == 304
    for other in ('"other"', f"W/{tag}", tag.strip('"')):
        answer = api.client.get(rows_path, headers={"if-match": other, "if-none-match": tag})
        api.problem(answer, 412, "precondition_failed")


def test_the_tag_is_of_the_type_and_the_rows(client: httpx.Client, rows_path: str) -> None:
    types = [ARROW, PARQUET, "text/csv", "application/json"]
    tags = [client.head(rows_path, headers={"accept": media_type}).headers["etag"] for media_type in types]
    assert len(set(tags)) == 4
    assert tags[3] == client.head(rows_path).headers["etag"]


def test_what_is_not_acceptable_is_refused_whatever_the_tag(api: Api, rows_path: str) -> None:
    answer = api.client.get(rows_path, headers={"accept": "image/png", "if-none-match": "*"})
    api.problem(answer, 406, "not_acceptable")


def test_rows_in_a_type_that_cannot_carry_them_are_not_acceptable(api: Api) -> None:
    nested = _encoded(pa.table({"a": [[1, 2]]}), ARROW)
    buffer = api.client.post("/v1/buffers", content=nested, headers={"content-type": ARROW}).json()
    path = f"/v1/buffers/{buffer['id']}/rows"
    answer = api.client.get(path, headers={"accept": "text/csv"})
    assert "field 'a' holds nested values" in api.problem(answer, 406, "not_acceptable")["detail"]
    assert api.client.get(path).json()["rows"] == [{"a": [1, 2]}]


def test_allow_lists_head_where_there_is_a_get(api: Api, rows_path: str) -> None:
    answer = api.client.post(rows_path)
    api.problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"
    assert api.client.put("/v1/buffers").headers["allow"] == "GET, HEAD, POST"
    assert api.client.put(rows_path.removesuffix("/rows")).headers["allow"] == "DELETE, GET, HEAD, PATCH"


def test_csv_escapes_formulas_if_asked(api: Api) -> None:
    """The digest of the buffer is that of its values; the escaped bytes have an entity tag of their own."""
    sent = b"name,balance\r\n=1+1,-5\r\nAda,7\r\n"
    headers = {"content-type": "text/csv"}
    buffer = api.client.post("/v1/buffers", content=sent, headers=headers).raise_for_status().json()
    path, accept = f"/v1/buffers/{buffer['id']}/rows", {"accept": "text/csv"}
    kept = api.client.get(path, headers=accept)
    escaped = api.client.get(path, params={"csv_formulas": "escape"}, headers=accept)
    assert (kept.content, escaped.content) == (sent, sent.replace(b"=1", b"'=1"))
    assert kept.headers["etag"] != escaped.headers["etag"]
    assert api.client.get(f"/v1/buffers/{buffer['id']}").json()["digest"] == buffer["digest"]
    for accepted, words in ((ARROW, "leave it out"), ("application/json", "leave it out")):
        answer = api.client.get(path, params={"csv_formulas": "escape"}, headers={"accept": accepted})
        assert words in api.problem(answer, 422, "invalid_request")["detail"]


def test_csv_has_the_delimiter_and_the_decimal_mark_that_are_asked_for(api: Api) -> None:
    sent = b'name;balance\r\nx,y;-5,25\r\n"a;b";7,0\r\n'
    dialect, headers = {"delimiter": ";", "decimal_mark": "comma"}, {"content-type": "text/csv"}
    created = api.client.post("/v1/buffers", params=dialect, content=sent, headers=headers)
    path, accept = f"/v1/buffers/{created.raise_for_status().json()['id']}/rows", {"accept": "text/csv"}
    asked = {f"csv_{name}": value for name, value in dialect.items()}
    styled = api.client.get(path, params=asked, headers=accept)
    assert styled.content == sent
    assert styled.headers["etag"] != api.client.get(path, headers=accept).headers["etag"]
    for refused, name, accepted in (
        ({"csv_decimal_mark": "comma"}, "csv_delimiter", "text/csv"),
        ({"csv_delimiter": "tab"}, "csv_delimiter", ARROW),
        (asked, "csv_delimiter", "application/json"),
    ):
        answer = api.client.get(path, params=refused, headers={"accept": accepted})
        [error] = api.problem(answer, 422, "invalid_request")["errors"]
        assert error["parameter"] == name
