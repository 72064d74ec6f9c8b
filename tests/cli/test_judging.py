"""Commands ``rowveil measures``, ``frontier`` and ``verify``."""

import json
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.settings import Settings
from app.store.crypto.key_files import load_signing_key
from app.store.crypto.sealing import Signer
from providers.tables.digest import DigestForm, table_digest
from providers.tables.type_names import parse_type
from tests.cli.conftest import SEED, Desk
from tests.cli.people import people

SWAP = ["--swap-fields", "income", "--control-field", "city", "--seed-file", "seed"]


@pytest.fixture
def released(desk: Desk) -> Desk:
    """Folder with a released table and its manifest."""
    desk.done("run", "CDSWAP", "in.parquet", "out.csv", *SWAP, "--manifest", "manifest.json")
    return desk


def test_two_tables_are_judged_as_the_service_would(released: Desk, client: httpx.Client) -> None:
    out = released.done(
        "measures", "in.parquet", "out.csv", "--key-fields", "age,city", "--only", "mean_k,delta_rho",
        "--seed-file", "seed",
    )  # fmt: skip
    report = json.loads(out)
    call = {
        "source": {"columns": people().to_pydict()},
        "destination": {"columns": _as_columns(released.folder / "out.csv")},
        "measures": {"key_fields": ["age", "city"], "only": ["mean_k", "delta_rho"]},
        "seed": SEED,
    }
    job = client.post("/v1/measures", json=call).raise_for_status().json()
    assert report["measures"] == job["report"]["measures"]
    assert report["summary"] == {"rows": 400, "destination_rows": 400, "aligned": True}


def _as_columns(path: Path) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = pa.csv.read_csv(path).to_pydict()
    return columns


def test_services_are_compared(desk: Desk) -> None:
    services = [
        {"service": "CDSWAP", "parameters": {"swap_fields": ["income"], "control_field": "city"}},
        {"service": "RWN", "parameters": {"perturb_fields": ["income"]}, "vary": {"k": [3, 9]}},
    ]
    Path("services.json").write_text(json.dumps(services))
    desk.done("frontier", "in.parquet", "--services", "@services.json", "--report", "frontier.json")
    report = json.loads(Path("frontier.json").read_text())
    assert [point["service"] for point in report["frontier"]["points"]] == ["CDSWAP", "RWN", "RWN"]
    code, _, err = desk.call("frontier", "in.parquet", "--services", '[{"service": "DSWP"}]')
    assert code == 2
    assert "--services, at 0/service" in err


def test_what_was_signed_holds(released: Desk) -> None:
    """A CSV is read with the signed types, so that it has the same digest as other formats."""
    assert "signature and digests are valid" in released.done(
        "verify", "manifest.json", "in.parquet", "out.csv"
    )
    assert released.call("verify", "manifest.json", "in.parquet", "out.csv", "--quiet")[1:] == ("", "")


def test_a_changed_value_differs(released: Desk) -> None:
    table = pq.read_table("in.parquet")
    incomes = table["income"].to_pylist()
    incomes[17] += 1
    at = table.schema.get_field_index("income")
    pq.write_table(table.set_column(at, "income", pa.array(incomes)), "other.parquet")
    code, out, _ = released.call("verify", "manifest.json", "other.parquet", "out.csv")
    assert code == 3
    assert out.startswith("source: its digest is sha256t:")
    assert len(out.splitlines()) == 1
    assert str(incomes[17]) not in out


def of_an_older_version(desk: Desk) -> None:
    """Give the manifest the digests of an older version, and sign it with the key of the home."""
    document = json.loads(Path("manifest.json").read_text())
    manifest = document["manifest"]
    types = {field["name"]: parse_type(field["type"]) for field in manifest["destination"]["fields"]}
    released = pa.csv.read_csv("out.csv", convert_options=pa.csv.ConvertOptions(column_types=types))
    tables = {"source": pq.read_table("in.parquet"), "destination": released}
    for role, table in tables.items():
        assert manifest[role]["digest"] == table_digest(table)
        manifest[role]["digest"] = table_digest(table, DigestForm.WHOLE)
    document["signature"] = Signer(load_signing_key(Settings())).sign(manifest)
    Path("manifest.json").write_text(json.dumps(document))


def test_a_manifest_of_an_older_version_holds(released: Desk) -> None:
    """It is compared with digests of its own form."""
    of_an_older_version(released)
    assert "signature and digests are valid" in released.done(
        "verify", "manifest.json", "in.parquet", "out.csv"
    )
    pq.write_table(people(399), "other.parquet")
    code, out, _ = released.call("verify", "manifest.json", "other.parquet", "out.csv")
    assert code == 3
    assert out.startswith("source: its digest is sha256:")
    attack = ["--made-by", "manifest.json", "--known", "age,city", "--seed-file", "seed"]
    assert "verdict" in released.done("attack", "in.parquet", "out.csv", *attack, "--json")
    code, _, err = released.call("attack", "other.parquet", "out.csv", *attack)
    assert code != 0
    assert "the source is not the job's own: its digest is sha256:" in err


def test_a_form_of_a_later_version_is_named(released: Desk) -> None:
    document = json.loads(Path("manifest.json").read_text())
    document["manifest"]["source"]["digest"] = "sha999:00"
    document["signature"] = Signer(load_signing_key(Settings())).sign(document["manifest"])
    Path("manifest.json").write_text(json.dumps(document))
    code, out, _ = released.call("verify", "manifest.json", "in.parquet", "out.csv")
    assert (code, len(out.splitlines())) == (3, 1)
    assert "does not know the form of the signed digest sha999:00" in out
    code, _, err = released.call("attack", "in.parquet", "out.csv", "--made-by", "manifest.json")
    assert code != 0
    assert "does not know the form of the signed digest sha999:00" in err


def test_other_rows_and_fields_are_reported(released: Desk) -> None:
    table = pq.read_table("in.parquet").slice(1).drop(["age"])
    pq.write_table(table.append_column("more", table["hours"]), "other.parquet")
    code, out, _ = released.call("verify", "manifest.json", "other.parquet", "out.csv")
    assert code == 3
    for words in ("399 rows, signed are 400", "field 'age' is missing", "field 'more' was not signed"):
        assert words in out


def test_a_changed_manifest_differs(released: Desk) -> None:
    document = json.loads(Path("manifest.json").read_text())
    document["manifest"]["parameters"]["rate"] = 0.5
    Path("manifest.json").write_text(json.dumps(document))
    code, out, _ = released.call("verify", "manifest.json", "in.parquet", "out.csv")
    assert (code, out.startswith("signature: it does not match")) == (3, True)


def test_whose_signature_it_is(released: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature of another home is reported, and rejected if a key is required."""
    key = json.loads(Path("manifest.json").read_text())["signature"]["public_key"]
    monkeypatch.setenv("ROWVEIL_HOME", str(released.folder / "elsewhere"))
    given = ["verify", "manifest.json", "in.parquet", "out.csv"]
    code, _, err = released.call(*given)
    assert (code, "was not checked" in err) == (0, True)
    assert released.call(*given, "--public-key", key)[0] == 0
    code, out, _ = released.call(*given, "--public-key", "A" * 43 + "=")
    assert (code, "not with the required one" in out) == (3, True)
    assert not (released.folder / "elsewhere").exists()


def test_a_manifest_of_the_service_is_verified(desk: Desk, client: httpx.Client) -> None:
    call = {"source": {"columns": people().to_pydict()}, "parameters": {"swap_fields": ["income"]}}
    job = client.post("/v1/services/DSWAP", json=call).raise_for_status().json()
    Path("manifest.json").write_bytes(client.get(f"/v1/jobs/{job['id']}/manifest").content)
    accept = {"accept": "application/vnd.apache.parquet"}
    Path("out.parquet").write_bytes(client.get(f"/v1/jobs/{job['id']}/rows", headers=accept).content)
    desk.done("verify", "manifest.json", "in.parquet", "out.parquet")


@pytest.mark.parametrize(
    "gone", ["manifest source fields", "manifest destination digest", "signature key_id"]
)
def test_a_manifest_that_lacks_something_is_none(released: Desk, gone: str) -> None:
    """A forged manifest may lack any member."""
    document = json.loads(Path("manifest.json").read_text())
    *way, last = gone.split()
    inside = document
    for name in way:
        inside = inside[name]
    del inside[last]
    Path("manifest.json").write_text(json.dumps(document))
    code, _, err = released.call("verify", "manifest.json", "in.parquet", "out.csv")
    assert (code, "is not a manifest" in err) == (1, True)


def test_signed_types_that_are_none_differ(released: Desk) -> None:
    """The error blames the manifest, not an option."""
    document = json.loads(Path("manifest.json").read_text())
    document["manifest"]["destination"]["fields"][0]["type"] = "int65"
    Path("manifest.json").write_text(json.dumps(document))
    code, out, _ = released.call("verify", "manifest.json", "in.parquet", "out.csv")
    assert (code, "destination: it cannot be read" in out) == (3, True)


def test_a_home_without_a_readable_key_is_another(released: Desk) -> None:
    (released.home / "keys" / "signing.key").write_text("no key\n")
    code, _, err = released.call("verify", "manifest.json", "in.parquet", "out.csv")
    assert (code, "was not checked" in err) == (0, True)


def test_what_is_said_of_csv_is_said_of_the_table_that_is_one(released: Desk) -> None:
    other = Path("out.csv").read_text().replace(",", ";")
    Path("other.csv").write_text(other)
    judged = ["--csv-delimiter", ";", "--only", "mean_k", "--key-fields", "age"]
    assert json.loads(released.done("measures", "in.parquet", "other.csv", *judged))["measures"]
    released.done("verify", "manifest.json", "in.parquet", "other.csv", "--csv-delimiter", ";")
    code, _, err = released.call("measures", "in.parquet", "in.parquet", *judged)
    assert (code, "leave it out" in err) == (2, True)


@pytest.mark.parametrize("content", ["{}", "[]", '{"manifest": {}, "signature": {}}', "no JSON"])
def test_what_is_no_manifest_is_said(desk: Desk, content: str) -> None:
    Path("manifest.json").write_text(content)
    code, _, err = desk.call("verify", "manifest.json", "in.parquet")
    assert (code, "is not a manifest" in err) == (1, True)


KNOWN = ["--known", "age,hours,city", "--secret", "income", "--attacks", "60", "--seed-file", "seed"]


def test_a_release_is_attacked_as_the_service_would(released: Desk, client: httpx.Client) -> None:
    """With control rows of a file, and the same figures as over HTTP."""
    others = people(450).slice(400)
    pq.write_table(others, "others.parquet")
    out = released.done(
        "attack", "in.parquet", "out.csv", *KNOWN, "--control", "others.parquet", "--json",
        "--manifest", "attack.json",
    )  # fmt: skip
    report = json.loads(out)
    call = {
        "source": {"columns": people().to_pydict()},
        "destination": {"columns": _as_columns(released.folder / "out.csv")},
        "control": {"columns": others.to_pydict()},
        "known": ["age", "hours", "city"],
        "secret": ["income"],
        "attacks": 60,
        "seed": SEED,
    }
    job = client.post("/v1/attacks", json=call, headers={"prefer": "wait=60"}).raise_for_status().json()
    assert report["control"] == "given"
    assert report["attacks"] == job["report"]["attacks"]
    assert report["verdict"] == job["report"]["verdict"]
    signed = ("attack.json", "in.parquet", "out.csv")
    assert "(source and destination and control)" in released.done(
        "verify", *signed, "--control", "others.parquet"
    )
    code, _, err = released.call("verify", *signed)
    assert (code, "has control rows: give --control" in err) == (2, True)
    assert released.call("verify", *signed, "--control", "in.parquet")[0] == 3


def test_the_manifest_of_a_run_leads_to_a_sister_release(released: Desk) -> None:
    """The output begins with the verdict; the page is that of the service."""
    out = released.done(
        "attack", "in.parquet", "out.csv", *KNOWN, "--made-by", "manifest.json", "--advice",
        "--report", "attack.html",
    )  # fmt: skip
    lines = out.splitlines()
    assert lines[0] in ("risk: low", "risk: elevated", "risk: high")
    assert "control: sister" in lines
    assert any(line.startswith("advice: ") for line in lines)
    [row] = [line.split() for line in lines if line.startswith("linkability")]
    assert row[-1] in ("low", "elevated", "high")
    assert "Verdict on attacks" in Path("attack.html").read_text()
    pq.write_table(people(399), "other.parquet")
    code, _, err = released.call("attack", "other.parquet", "out.csv", *KNOWN, "--made-by", "manifest.json")
    assert (code, "SOURCE: the source is not the job's own" in err) == (2, True), err


def test_attacks_after_a_run(desk: Desk) -> None:
    desk.done(
        "run", "DSWAP", "in.parquet", "out.csv", "--swap-fields", "income", "--report-level", "full",
        "--measures-only", "mean_k", "--attacks-known", "age,city", "--attacks-secret", "income",
        "--report", "report.json",
    )  # fmt: skip
    assert json.loads(Path("report.json").read_text())["control"] == "sister"


def test_wrong_attacks_name_the_option(released: Desk) -> None:
    tables = ("attack", "in.parquet", "out.csv")
    for arguments, message in (
        ((*tables, "--known", "agee"), "--known, item 1: unknown field 'agee'"),
        ((*tables, *KNOWN, "--advice"), "give --made-by"),
        (tables, "--known: name the fields"),
        ((*tables, *KNOWN, "--control", "manifest.json"), "manifest.json"),
    ):
        code, _, err = released.call(*arguments)
        assert (code, message in err) == (2, True), err
