"""References that cannot be read or written, and their error messages."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.formats.media_types import CSV
from tests.api.calls import PARQUET, Api
from tests.references.storage import SECRET, Storage
from tests.references.tables import PARAMETERS, as_file, call, people

MEBIBYTE = 2**20


@pytest.fixture
def api(storage: Storage) -> Api:
    return Api(storage.client)


@pytest.fixture
def source(storage: Storage) -> str:
    """A source that can be read."""
    (storage.folder / "good.csv").write_bytes(as_file(people(), ".csv"))
    return f"file://{storage.folder}/good.csv"


def refused(storage: Storage, api: Api, body: dict[str, Any], pointer: str, status: int = 422) -> str:
    """Return the message of a call that must be rejected at this pointer, without a leak or a trace."""
    before = {path for path in (storage.home / "blobs").rglob("*") if path.is_file()}
    answer = api.client.post("/v1/services/DSWAP", json=body)
    document = api.problem(answer, status)
    assert [error["pointer"] for error in document["errors"]] == [pointer]
    for hidden in (SECRET, "AKIAROWVEIL", str(storage.home), str(storage.folder), "password", "127.0.0.1"):
        assert hidden not in answer.text
    assert {path for path in (storage.home / "blobs").rglob("*") if path.is_file()} == before
    message: str = document["detail"]
    return message


def below(storage: Storage, path: str) -> str:
    return f"file://{storage.folder}/{path}"


@pytest.mark.parametrize(
    "reference",
    [
        "s3://given-evil/people.csv",
        "s3://released/out/people.csv",  # may be written, not read
        "s3://given/../given-evil/people.csv",
        "s3://given/%2e%2e/people.csv",
        "S3://given/people.csv",
        "s3://AKIAROWVEIL:password@given/people.csv",
        "s3://given/people.csv?x-id=GetObject",
        "https://given.s3.amazonaws.com/people.csv",
        "http://169.254.169.254/latest/meta-data/people.csv",
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "file:///proc/self/environ",
    ],
)
def test_a_source_outside_the_prefixes_is_refused(storage: Storage, api: Api, reference: str) -> None:
    body = {"source": {"reference": reference, "media_type": "text/csv"}, "parameters": PARAMETERS}
    refused(storage, api, body, "/source/reference")


def test_a_folder_whose_name_goes_on_is_another(storage: Storage, api: Api) -> None:
    """/data allows nothing of /database, by whichever way it is written."""
    for reference in (
        f"file://{storage.outside}/secret.csv",
        below(storage, "../database/secret.csv"),
        below(storage, "%2e%2e/database/secret.csv"),
        below(storage, "/../database/secret.csv"),
    ):
        refused(storage, api, call(reference), "/source/reference")


def test_a_link_is_not_followed(storage: Storage, api: Api, source: str) -> None:
    """Neither as the file nor on the way to it, nor one that stays within."""
    (storage.folder / "link.csv").symlink_to(storage.outside / "secret.csv")
    (storage.folder / "way").symlink_to(storage.outside)
    (storage.folder / "within.csv").symlink_to(storage.folder / "good.csv")
    (storage.folder / "out" / "way").symlink_to(storage.outside)
    for name in ("link.csv", "way/secret.csv", "within.csv"):
        assert "symbolic link" in refused(storage, api, call(below(storage, name)), "/source/reference")
    message = refused(storage, api, call(source, below(storage, "out/way/new.csv")), "/destination/reference")
    assert "symbolic link" in message
    assert [path.name for path in storage.outside.iterdir()] == ["secret.csv"]


def test_a_link_in_a_destinations_place_is_replaced_and_not_followed(
    storage: Storage, api: Api, source: str
) -> None:
    """Without ``overwrite`` it is a file that is there already, also if it points to nothing."""
    link = storage.folder / "out" / "again" / "link.csv"
    link.symlink_to(storage.outside / "none.csv")
    body = call(source, below(storage, "out/again/link.csv"))
    assert "already" in refused(storage, api, body, "/destination/reference")
    link.unlink()
    link.symlink_to(storage.outside / "secret.csv")
    body["destination"]["overwrite"] = True
    job = api.job(storage.client.post("/v1/services/DSWAP", json=body))
    assert job["state"] == "succeeded", job
    assert not link.is_symlink()
    assert (storage.outside / "secret.csv").read_text() == "age\n31\n"


def test_what_is_no_plain_file_is_refused_at_once(storage: Storage, api: Api) -> None:
    """A pipe without a writer would hold the call up for ever."""
    os.mkfifo(storage.folder / "pipe.csv")
    (storage.folder / "folder.csv").mkdir()
    for name in ("pipe.csv", "folder.csv"):
        detail = refused(storage, api, call(below(storage, name)), "/source/reference")
        assert "not a regular file" in detail
        assert ("name one file" in detail) == (name == "folder.csv")


@pytest.mark.parametrize("where", ["s3://given", "file"])
def test_what_is_not_there_is_reported(storage: Storage, api: Api, where: str) -> None:
    prefix = f"file://{storage.folder}" if where == "file" else where
    assert "no such" in refused(storage, api, call(f"{prefix}/none/people.csv"), "/source/reference")


@pytest.mark.parametrize(
    "reference",
    ["s3://given/a.csv", "s3://released/outer/a.csv", "s3://released/a.csv", "s3://released/out", "file"],
)
def test_a_destination_outside_the_prefixes_is_refused(
    storage: Storage, api: Api, source: str, reference: str
) -> None:
    reference = below(storage, "a.csv") if reference == "file" else reference
    message = refused(storage, api, call(source, reference), "/destination/reference")
    assert "ROWVEIL_DESTINATION_PREFIXES" in message
    unread = below(storage, "none.csv")  # nothing is fetched for a call that cannot be done
    assert refused(storage, api, call(unread, reference), "/destination/reference") == message


def test_a_destinations_folder_must_be_there(storage: Storage, api: Api, source: str) -> None:
    message = refused(storage, api, call(source, below(storage, "out/none/a.csv")), "/destination/reference")
    assert "no such file or folder" in message


def test_a_type_that_nothing_says_is_asked_for(storage: Storage, api: Api, source: str) -> None:
    (storage.folder / "people").write_bytes(as_file(people(), ".csv"))
    assert "media_type" in refused(storage, api, call(below(storage, "people")), "/source/media_type")
    message = refused(storage, api, call(source, "s3://released/out/a.xlsx"), "/destination/media_type")
    assert PARQUET in message
    odd = {"source": {"reference": source, "media_type": "application/zip"}, "parameters": PARAMETERS}
    assert PARQUET in refused(storage, api, odd, "/source/media_type")


@pytest.mark.parametrize("stated", [{}, {"media_type": CSV}], ids=["suffix", "stated"])
@pytest.mark.parametrize(("name", "words"), [("a.csv.gz", "not compressed"), ("a.TSV", "csv_delimiter")])
def test_a_destination_is_what_its_suffix_says(
    storage: Storage, api: Api, source: str, name: str, words: str, stated: dict[str, str]
) -> None:
    """A file that is not compressed, or has commas, could not be read by its name."""
    body = call(source, f"s3://released/out/{name}")
    body["destination"] |= stated
    assert words in refused(storage, api, body, "/destination/reference")


def test_a_destinations_type_must_carry_the_fields(storage: Storage, api: Api) -> None:
    """The error is reported before the run, not after it."""
    table = people(20).append_column("many", pa.array([[1, 2]] * 20))
    (storage.folder / "lists.parquet").write_bytes(as_file(table, ".parquet"))
    body = call(below(storage, "lists.parquet"), below(storage, "out/lists.csv"))
    assert "many" in refused(storage, api, body, "/destination/media_type")


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"rows": []}, "/source"),
        ({"buffer": "x"}, "/source"),
        ({"delimiter": "ab"}, "/source/delimiter"),
        ({"fields": {"income": "int63"}}, "/source/fields/income"),
    ],
)
def test_a_source_that_says_too_much_or_nonsense(
    storage: Storage, api: Api, source: str, more: dict[str, Any], pointer: str
) -> None:
    refused(storage, api, {"source": {"reference": source} | more, "parameters": PARAMETERS}, pointer)


def test_options_of_a_reference_go_with_one(storage: Storage, api: Api) -> None:
    body = {"source": {"rows": [{"income": 1}], "delimiter": ";"}, "parameters": PARAMETERS}
    assert "'delimiter' is used only with 'reference'" in refused(storage, api, body, "/source")


@cache
def _broken_files() -> dict[str, bytes]:
    whole = {suffix: as_file(people(), suffix) for suffix in (".parquet", ".arrow", ".csv.gz")}
    return {
        "cut.parquet": whole[".parquet"][:-60],
        "empty.parquet": b"",
        "cut.arrow": whole[".arrow"][:-60],
        "cut.csv.gz": whole[".csv.gz"][:-5],
        "no.csv.gz": b"income\n1\n",
        "quote.csv": b'income,b\n1,2\n"x\n',
        "really.csv": whole[".parquet"],
    }


@pytest.mark.parametrize(
    "name",
    ["cut.parquet", "empty.parquet", "cut.arrow", "cut.csv.gz", "no.csv.gz", "quote.csv", "really.csv"],
)
def test_a_broken_file_is_a_problem_and_leaves_nothing(storage: Storage, api: Api, name: str) -> None:
    (storage.folder / name).write_bytes(_broken_files()[name])
    storage.s3.put_object(Bucket="given", Key=name, Body=_broken_files()[name])
    for reference in (below(storage, name), f"s3://given/{name}"):
        refused(storage, api, call(reference), "/source/reference")


@pytest.mark.parametrize("name", ["large.csv", "swollen.csv.gz"])
def test_a_file_beyond_the_limit_is_refused(storage: Storage, api: Api, name: str) -> None:
    """A large file is rejected by its size at once, a compressed one when its content exceeds the limit."""
    table = pa.table({"income": pa.array(range(1_500_000))})
    content = as_file(table, name[name.index(".") :])
    assert (len(content) > 8 * MEBIBYTE) == (name == "large.csv")
    (storage.folder / name).write_bytes(content)
    storage.s3.put_object(Bucket="given", Key=name, Body=content)
    for reference in (below(storage, name), f"s3://given/{name}"):
        message = refused(storage, api, call(reference), "/source/reference", 413)
        assert "ROWVEIL_MAX_BUFFER_BYTES" in message


def test_a_service_without_prefixes_names_the_setting(address: str, client: Any, tmp_path: Path) -> None:
    """References are off until somebody allows them."""
    api = Api(client)
    (tmp_path / "a.csv").write_text("income\n1\n")
    for role, body in {
        "source": call(f"file://{tmp_path}/a.csv"),
        "destination": {
            "source": {"rows": [{"income": 1}]},
            "parameters": PARAMETERS,
            "destination": {"reference": f"file://{tmp_path}/b.csv"},
        },
    }.items():
        error = api.refused("DSWAP", body)
        assert error["pointer"] == f"/{role}/reference"
        assert f"ROWVEIL_{role.upper()}_PREFIXES" in error["message"]
