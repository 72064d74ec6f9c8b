"""A run from a reference and to a reference gives what the same run gives over HTTP."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.tables.digest import table_digest
from tests.api.calls import ARROW, PARQUET, Api
from tests.references.storage import SECRET, Storage
from tests.references.tables import PARAMETERS, as_file, call, of_file, people

SUFFIXES = [".parquet", ".arrow", ".arrows", ".csv", ".csv.gz"]


@pytest.fixture
def api(storage: Storage) -> Api:
    return Api(storage.client)


def put(storage: Storage, where: str, name: str, content: bytes) -> str:
    """Put a file where a source may lie; its reference."""
    if where == "file":
        (storage.folder / name).write_bytes(content)
        return f"file://{storage.folder}/{name}"
    storage.s3.put_object(Bucket="given", Key=f"in/{name}", Body=content)
    return f"s3://given/in/{name}"


def done(api: Api, body: dict[str, Any], path: str = "/v1/services/DSWAP") -> dict[str, Any]:
    """The job of the call, which has succeeded."""
    answer = api.client.post(path, json=body, headers={"prefer": "wait=60"})
    job = api.job(answer)
    assert job["state"] == "succeeded", answer.text
    return job


@pytest.mark.parametrize("where", ["s3", "file"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_source_by_reference_is_the_source_itself(
    storage: Storage, api: Api, where: str, suffix: str
) -> None:
    table = people()
    expected = api.run("DSWAP", table.to_pylist(), PARAMETERS, seed="2a")
    reference = put(storage, where, f"people{suffix}", as_file(table, suffix))
    job = done(api, call(reference))
    assert job["source"] == expected["source"] | {"reference": reference}
    assert job["destination"]["digest"] == expected["destination"]["digest"]
    assert "rows" not in job["destination"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_a_destination_by_reference_is_the_jobs_own(storage: Storage, api: Api, suffix: str) -> None:
    source = put(storage, "s3", "to-be-sent.parquet", as_file(people(), ".parquet"))
    to_s3, to_file = f"s3://released/out/deep/a{suffix}", f"file://{storage.folder}/out/a{suffix}"
    for to in (to_s3, to_file):
        job = done(api, call(source, to))
        assert job["destination"]["reference"] == to
    written = storage.object("released", f"out/deep/a{suffix}")
    assert (storage.folder / "out" / f"a{suffix}").read_bytes() == written
    assert table_digest(of_file(written, suffix)) == job["destination"]["digest"]
    assert sorted(path.name for path in (storage.folder / "out").iterdir() if path.name.startswith(".")) == []
    assert storage.unfinished("released") == []
    accept = {".parquet": PARQUET, ".arrow": ARROW, ".csv": "text/csv"}[suffix]
    assert storage.client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": accept}).content == written


def test_a_destination_replaces_nothing_unless_that_is_said_and_allowed(storage: Storage, api: Api) -> None:
    source = put(storage, "file", "people.csv", as_file(people(), ".csv"))
    for place in (storage.folder / "out" / "kept.csv", storage.folder / "out" / "again" / "replaced.csv"):
        place.write_bytes(b"x" * 100_000)
        problem = api.refused("DSWAP", call(source, f"file://{place}"))
        assert problem["pointer"] == "/destination/reference"
        assert "already" in problem["message"]
        body = call(source, f"file://{place}")
        body["destination"]["overwrite"] = True
        if place.parent.name == "again":
            done(api, body)
            assert of_file(place.read_bytes(), ".csv").num_rows == 400
        else:
            problem = api.refused("DSWAP", body)
            assert problem["pointer"] == "/destination/overwrite"
            assert "ROWVEIL_OVERWRITE_PREFIXES" in problem["message"]
            assert place.read_bytes() == b"x" * 100_000


def test_csv_of_a_destination_has_the_delimiter_and_decimal_mark_that_were_asked_for(
    storage: Storage, api: Api
) -> None:
    """A run and a rerun write it; the digest is that of the table."""
    table = pa.table({"name": ["a", "b;c", "d"] * 20, "amount": [1.5, 2.25, 3.0] * 20})
    source = put(storage, "file", "styled.parquet", as_file(table, ".parquet"))
    style = {"csv_delimiter": ";", "csv_decimal_mark": "comma"}
    places = [storage.folder / "out" / f"styled-{name}.csv" for name in ("run", "rerun")]
    parameters = {"swap_fields": ["amount"]}
    body = {"source": {"reference": source}, "parameters": parameters, "retain_source": True}
    job = done(api, body | {"destination": {"reference": f"file://{places[0]}", **style}})
    again = {"destination": {"reference": f"file://{places[1]}", **style}}
    assert done(api, again, f"/v1/jobs/{job['id']}/rerun")["reproduced"]
    written = api.client.get(
        f"/v1/jobs/{job['id']}/rows", params=style, headers={"accept": "text/csv"}
    ).content
    assert b'"b;c";' in written
    assert b"2,25" in written
    assert [place.read_bytes() for place in places] == [written] * 2
    for destination, pointer in (
        (
            {"reference": f"file://{storage.folder}/out/styled-odd.csv", "csv_decimal_mark": "comma"},
            "csv_delimiter",
        ),
        ({"reference": f"file://{storage.folder}/out/styled.parquet", "csv_delimiter": ";"}, "csv_delimiter"),
        ({"reference": f"file://{storage.folder}/out/styled.tsv"}, "reference"),
    ):
        refused = api.refused("DSWAP", body | {"destination": destination})
        assert refused["pointer"] == f"/destination/{pointer}", refused


def test_formulas_of_a_destination_are_escaped_if_asked(storage: Storage, api: Api) -> None:
    """The digest is that of the table, and a rerun can ask for it too."""
    table = people().append_column("said", pa.array(["=1+1", "@x", "plain", "-5"] * 100))
    source = put(storage, "file", "formulas.parquet", as_file(table, ".parquet"))
    written, digests, jobs = [], set(), []
    for formulas in ("keep", "escape"):
        place = storage.folder / "out" / f"formulas-{formulas}.csv"
        body = call(source, f"file://{place}") | {"seed": "2a", "retain_source": True}
        body["destination"]["csv_formulas"] = formulas
        jobs.append(done(api, body))
        digests.add(jobs[-1]["destination"]["digest"])
        written.append(place.read_text().splitlines())
    assert len(digests) == 1
    kept, escaped = ([line.rsplit(",", 1)[1] for line in lines[1:]] for lines in written)
    assert {"=1+1", "@x", "-5", "plain"} == set(kept)
    assert escaped == [text if text == "plain" else f"'{text}" for text in kept]
    place = storage.folder / "out" / "formulas-rerun.csv"
    again = {"destination": {"reference": f"file://{place}", "csv_formulas": "escape"}}
    assert done(api, again, f"/v1/jobs/{jobs[0]['id']}/rerun")["reproduced"]
    assert place.read_text().splitlines() == written[1]
    body = call(source, f"file://{storage.folder}/out/formulas.parquet")
    body["destination"]["csv_formulas"] = "escape"
    assert api.refused("DSWAP", body)["pointer"] == "/destination/csv_formulas"


def test_a_prefix_of_a_project_is_not_there_for_others(storage: Storage, api: Api) -> None:
    """The service has no authentication, so that its callers have no project."""
    source = put(storage, "file", "people.csv", as_file(people(), ".csv"))
    for body, pointer in (
        (call("s3://secret/people.csv"), "/source/reference"),
        (call(source, "s3://released/census/a.csv"), "/destination/reference"),
    ):
        problem = api.refused("DSWAP", body)
        assert problem["pointer"] == pointer
        assert "project" in problem["message"]


def test_media_type_and_csv_are_said_where_the_name_does_not(storage: Storage, api: Api) -> None:
    reference = put(storage, "file", "people.dat", "income;née\n1;a\nNA;b\n2;ü\n".encode("windows-1252"))
    said = {"media_type": "text/csv", "delimiter": ";", "null_tokens": ["NA"], "encoding": "windows-1252"}
    source = {"reference": reference, "fields": {"income": "float64"}} | said
    to = {"reference": f"s3://released/out/people.{said['delimiter']}", "media_type": PARQUET}
    job = done(api, {"source": source, "parameters": PARAMETERS, "destination": to, "seed": "2a"})
    assert job["source"]["fields"] == [
        {"name": "income", "type": "float64"},
        {"name": "née", "type": "string"},
    ]
    released = of_file(storage.object("released", "out/people.;"), ".parquet")
    assert released["née"].to_pylist() == ["a", "b", "ü"]
    head = storage.s3.head_object(Bucket="released", Key="out/people.;")
    assert head["ContentType"] == PARQUET


def test_a_rerun_takes_the_source_by_reference_and_writes_only_where_it_is_asked_to(
    storage: Storage, api: Api
) -> None:
    source = put(storage, "s3", "rerun.parquet", as_file(people(), ".parquet"))
    first = done(api, call(source, "s3://released/out/first.csv"))
    path = f"/v1/jobs/{first['id']}/rerun"
    api.problem(storage.client.post(path), 409)  # the source was not retained
    storage.s3.delete_object(Bucket="released", Key="out/first.csv")
    again = done(api, {"source": {"reference": source}}, path)
    assert again["reproduced"] is True
    assert "reference" not in again["destination"]
    assert "out/first.csv" not in storage.keys("released")
    to = {"reference": "s3://released/out/second.arrow"}
    again = done(api, {"source": {"reference": source}, "destination": to}, path)
    assert again["destination"]["reference"] == to["reference"]
    put(storage, "s3", "rerun.parquet", as_file(people(399), ".parquet"))
    api.problem(storage.client.post(path, json={"source": {"reference": source}}), 409)
    rows = {"source": {"reference": source}, "destination": {"rows": []}}
    assert "reference" in api.problem(storage.client.post(path, json=rows), 422)["detail"]


def test_a_retained_source_by_reference_is_not_read_again(storage: Storage, api: Api) -> None:
    source = put(storage, "s3", "retained.csv", as_file(people(), ".csv"))
    first = done(api, call(source, retain_source=True))
    storage.s3.delete_object(Bucket="given", Key="in/retained.csv")
    again = done(api, {}, f"/v1/jobs/{first['id']}/rerun")
    assert again["reproduced"] is True
    assert again["source"] == first["source"]


def test_two_tables_by_reference_are_judged(storage: Storage, api: Api) -> None:
    source = put(storage, "s3", "judged.parquet", as_file(people(), ".parquet"))
    body = call(source, "s3://released/out/judged.csv")
    done(api, body)
    content = storage.object("released", "out/judged.csv")
    release = put(storage, "file", "judged.csv", content)
    given = {"source": {"reference": source}, "destination": {"reference": release}}
    job = done(api, given | {"measures": {"only": ["changed_share"]}}, "/v1/measures")
    assert job["report"]["summary"]["rows"] == 400
    assert (job["source"]["reference"], job["destination"]["reference"]) == (source, release)
    again = done(api, given, f"/v1/jobs/{job['id']}/rerun")
    assert again["reproduced"] is True
    assert storage.object("released", "out/judged.csv") == content


def test_services_are_compared_on_a_table_by_reference(storage: Storage, api: Api) -> None:
    source = put(storage, "file", "compared.csv", as_file(people(60), ".csv"))
    body = {
        "source": {"reference": source},
        "services": [{"service": "DSWAP", "parameters": PARAMETERS, "vary": {"rate": [0.5, 1.0]}}],
        "utility": "marginals.identical",
    }
    job = done(api, body, "/v1/frontier")
    assert job["report"]["summary"]["points"] == 2
    assert job["source"]["reference"] == source


def test_validate_only_reads_the_source_and_leaves_nothing(storage: Storage, api: Api) -> None:
    source = put(storage, "s3", "validated.arrow", as_file(people(), ".arrow"))
    to = "s3://released/out/validated.csv"
    before = blobs(storage)
    job = done(api, call(source, to, validate_only=True))
    assert job["plan"]["rows"] == 400
    assert job["source"]["reference"] == source
    assert "out/validated.csv" not in storage.keys("released")
    assert blobs(storage) == before


def test_a_job_releases_what_was_read_for_it(storage: Storage, api: Api) -> None:
    source = put(storage, "s3", "released.arrow", as_file(people(), ".arrow"))
    before = blobs(storage)
    job = done(api, call(source))
    assert blobs(storage) == before  # the small destination is in the job's row
    assert storage.client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert blobs(storage) == before


def test_the_same_call_again_is_the_same_job_though_the_object_has_gone(storage: Storage, api: Api) -> None:
    source = put(storage, "s3", "once.csv", as_file(people(), ".csv"))
    headers = {"idempotency-key": "by-reference-1", "prefer": "wait=60"}
    body = call(source)
    first = api.job(storage.client.post("/v1/services/DSWAP", json=body, headers=headers))
    storage.s3.delete_object(Bucket="given", Key="in/once.csv")
    again = api.job(storage.client.post("/v1/services/DSWAP", json=body, headers=headers))
    assert again["id"] == first["id"]
    other = storage.client.post("/v1/services/DSWAP", json=body | {"seed": "2b"}, headers=headers)
    api.problem(other, 422, "idempotency_key_reused")


def test_no_credential_is_kept(storage: Storage, api: Api) -> None:
    """Neither in the database nor in anything else below the home."""
    done(api, call(put(storage, "s3", "kept.csv", as_file(people(), ".csv")), "s3://released/out/kept.csv"))
    kept = [path for path in storage.home.rglob("*") if path.is_file()]
    assert any(path.name == "rowveil.db" for path in kept)
    for path in kept:
        assert SECRET.encode() not in path.read_bytes(), path


def blobs(storage: Storage) -> set[Path]:
    """Every sealed file of the service."""
    return {path for path in (storage.home / "blobs").rglob("*") if path.is_file()}
