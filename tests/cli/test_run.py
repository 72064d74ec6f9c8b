"""Command ``rowveil run``: swaps files as the service would; errors name the option."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from providers import PROVIDERS
from providers.tables.digest import table_digest
from tests.cli.conftest import SEED, Desk
from tests.cli.people import people

PARAMETERS: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["income", "city"], "rate": 0.5},
    "CDSWAP": {"swap_fields": ["income"], "control_field": "city"},
    "DDSWAP": {"swap_fields": ["income"], "control_field": ["age", "hours"], "block_size": 10},
    "MEWS": {"swap_fields": ["income", "age"], "bins": [5, 8]},
    "MEDS": {"swap_fields": ["income", "age"], "k": 20},
    "RWN": {"k": 4, "ordinal_fields": {"city": ["Athens", "Dublin", "Zurich"]}},
    "PABIDOT": {"label_fields": ["city"], "shuffle": False},
    "LOCALITY": {"fields": ["age", "hours"], "margin": 2.5},
    "RSWAP": {"hierarchy": ["city"], "similar": [["age"], ["hours"]], "swap_rate": 0.3},
}


def options(parameters: dict[str, Any]) -> list[str]:
    """Return the parameters as command line options."""
    written = []
    for name, value in parameters.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            written.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list) and isinstance(value[0], list):
            written += [flag, json.dumps(value)]
        elif isinstance(value, list):
            written += [flag, ",".join(map(str, value))]
        else:
            written += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return written


def test_there_is_a_case_of_every_service() -> None:
    assert PARAMETERS.keys() == PROVIDERS.keys()


@pytest.mark.parametrize("service", PARAMETERS)
def test_the_bytes_are_those_of_the_service(desk: Desk, client: httpx.Client, service: str) -> None:
    """Same seed, same digest: the command line runs the same code as a worker."""
    call = {"source": {"columns": people().to_pydict()}, "parameters": PARAMETERS[service], "seed": SEED}
    job = client.post(f"/v1/services/{service}", json=call).raise_for_status().json()
    given = [*options(PARAMETERS[service]), "--seed-file", "seed", "--manifest", "manifest.json"]
    desk.done("run", service, "in.parquet", "out.parquet", *given)
    assert table_digest(pq.read_table("out.parquet")) == job["destination"]["digest"]
    manifest = json.loads(Path("manifest.json").read_text())["manifest"]
    ours = client.get(f"/v1/jobs/{job['id']}/manifest").json()["manifest"]
    differ = {name for name in manifest.keys() | ours.keys() if manifest.get(name) != ours.get(name)}
    assert differ == {"job", "created_at", "seed_fingerprint"}  # of other keys than the service's


def test_the_report_is_json_or_a_page(desk: Desk) -> None:
    given = ["run", "CDSWAP", "in.parquet", "out.csv", "--swap-fields", "income", "--control-field", "city"]
    more = ["--report-level", "full", "--measures-key-fields", "age,city", "--candidates-count", "2"]
    desk.done(*given, *more, "--report", "report.json", "--manifest", "manifest.json")
    report = json.loads(Path("report.json").read_text())
    assert report["summary"]["rows"] == 400
    assert "mean_k" in report["measures"]
    assert len(report["candidates"]["table"]) == 2
    desk.done(*given, "--report", "report.html")
    page = Path("report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "CDSWAP" in page


@pytest.mark.parametrize("suffix", ["csv", "arrow", "csv.gz"])
def test_a_file_is_read_by_its_suffix(desk: Desk, suffix: str) -> None:
    sink = pa.BufferOutputStream()
    if suffix == "arrow":
        with pa.ipc.new_stream(sink, people().schema) as stream:
            stream.write_table(people())
    else:
        pyarrow.csv.write_csv(people(), sink)
    content = sink.getvalue().to_pybytes()
    Path(f"in.{suffix}").write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    given = ["--swap-fields", "income", "--seed-file", "seed"]
    types = ["--csv-fields", '{"hours": "float64"}'] if "csv" in suffix else []  # whole numbers all
    desk.done("run", "DSWAP", f"in.{suffix}", "of_text.parquet", *given, *types)
    desk.done("run", "DSWAP", "in.parquet", "of_parquet.parquet", *given)
    assert pq.read_table("of_text.parquet").equals(pq.read_table("of_parquet.parquet"))


def test_it_stands_in_a_pipe(desk: Desk) -> None:
    """The command copies from standard input to standard output, which has only the table."""
    given = ["--swap-fields", "income", "--seed-file", "seed", "--format", "parquet"]
    with desk.process("run", "DSWAP", "-", "-", *given, stdin=subprocess.PIPE, forked=True) as running:
        out, err = running.communicate(Path("in.parquet").read_bytes(), timeout=120)
    assert running.returncode == 0
    desk.done("run", "DSWAP", "in.parquet", "out.parquet", "--swap-fields", "income", "--seed-file", "seed")
    assert pq.read_table(pa.py_buffer(out)).equals(pq.read_table("out.parquet"))
    assert err == b"DSWAP: SUCCESS, 400 rows\n"  # and no progress, as nobody looks on


def test_a_forked_command_ends_as_any_other(desk: Desk) -> None:
    """Exit code and message, in the folder and with the variables of whom it is forked for."""
    given = ["run", "DSWAP", "in.parquet", "out.parquet", "--swap-fields", "income"]
    with desk.process(*given, forked=True, ROWVEIL_SEED="no hex") as running:
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (2, b"")
    assert b"hex digits" in err


def test_a_reader_that_stops_ends_it_quietly(desk: Desk) -> None:
    pq.write_table(people(20_000), "large.parquet")
    given = ["run", "DSWAP", "large.parquet", "-", "--swap-fields", "age", "--format", "csv"]
    with desk.process(*given, forked=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.wait(120) == 141
        assert running.stderr.read() == b""


def test_the_seed_is_kept_for_another_run(desk: Desk) -> None:
    """The seed is written to a new private file; it gives the same bytes, by file or variable."""
    given = ["--swap-fields", "income"]
    desk.done("run", "DSWAP", "in.parquet", "first.parquet", *given, "--keep-seed", "kept")
    assert Path("kept").stat().st_mode & 0o777 == 0o600
    desk.done("run", "DSWAP", "in.parquet", "second.parquet", *given, "--seed-file", "kept")
    assert pq.read_table("first.parquet").equals(pq.read_table("second.parquet"))
    code, _, err = desk.call("run", "DSWAP", "in.parquet", "third.parquet", *given, "--keep-seed", "kept")
    assert (code, "there already" in err) == (2, True)


def test_a_seed_of_the_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--swap-fields", "income"]
    desk.done("run", "DSWAP", "in.parquet", "by_file.parquet", *given, "--seed-file", "seed")
    monkeypatch.setenv("ROWVEIL_SEED", SEED)
    desk.done("run", "DSWAP", "in.parquet", "by_variable.parquet", *given)
    assert pq.read_table("by_file.parquet").equals(pq.read_table("by_variable.parquet"))
    monkeypatch.setenv("ROWVEIL_SEED", "no hex")
    code, _, err = desk.call("run", "DSWAP", "in.parquet", "out.parquet", *given)
    assert (code, "hex digits" in err, "no hex" in err) == (2, True, False)


def test_a_plan_is_reported_and_nothing_written(desk: Desk) -> None:
    given = ["--swap-fields", "income", "--control-field", "city", "--validate-only"]
    plan = json.loads(desk.done("run", "CDSWAP", "in.parquet", "out.parquet", *given))
    assert plan["groups"] == 3
    assert not Path("out.parquet").exists()
    assert not desk.home.exists()


WRONG = {
    "unknown field": (["--swap-fields", "income,agee"], 2, "--swap-fields, item 2: unknown field 'agee'"),
    "out of range": (["--swap-fields", "income", "--rate", "2"], 2, "--rate: input should be less"),
    "not needed together": (
        ["--swap-fields", "income", "--suppression-policy", "replace"],
        2,
        "needs a replacement",
    ),
    "no fields": ([], 2, "give the swap fields by name"),
    "broken JSON": (
        ["--swap-fields", "income", "--suppression-replacement", "{"],
        2,
        "--suppression-replacement: not valid JSON",
    ),
    "unknown option": (
        ["--swap-field", "income"],
        2,
        "no option '--swap-field'; did you mean '--swap-fields'?",
    ),
    "no report's name": (["--swap-fields", "income", "--report", "report.txt"], 2, "ends in .json or .html"),
    "a level without a report": (["--swap-fields", "income", "--report-level", "full"], 2, "--report"),
    "no seed": (["--swap-fields", "income", "--seed-file", "none"], 2, "--seed-file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_by_its_option(desk: Desk, case: str) -> None:
    given, code, words = WRONG[case]
    ended, out, err = desk.call("run", "DSWAP", "in.parquet", "out.parquet", *given)
    assert ended == code
    assert words in err
    assert "Traceback" not in err
    assert out == ""
    assert not Path("out.parquet").exists()


def test_a_table_that_cannot_be_used_fails(desk: Desk) -> None:
    Path("broken.parquet").write_bytes(b"PAR1 no table")
    for source in ("broken.parquet", "none.parquet"):
        code, _, err = desk.call("run", "DSWAP", source, "out.parquet", "--swap-fields", "income")
        assert code == 1
        assert err.startswith("rowveil: ")
    code, _, err = desk.call("run", "DSWAP", "in.parquet", "in.parquet", "--swap-fields", "income")
    assert (code, "an input of this command" in err) == (2, True)
    code, _, err = desk.call("run", "DSWAP", "in.parquet", "out.unknown", "--swap-fields", "income")
    assert (code, "--format" in err) == (2, True)


def test_a_gz_is_packed_as_it_is_unpacked(desk: Desk) -> None:
    """The bytes are the same at every run; a broken file is reported."""
    given = ["--swap-fields", "income", "--seed-file", "seed"]
    desk.done("run", "DSWAP", "in.parquet", "out.csv", *given)
    desk.done("run", "DSWAP", "in.parquet", "out.csv.gz", *given, "--manifest", "manifest.json")
    packed = Path("out.csv.gz").read_bytes()
    assert gzip.decompress(packed) == Path("out.csv").read_bytes()
    desk.done("verify", "manifest.json", "in.parquet", "out.csv.gz")
    desk.done("run", "DSWAP", "in.parquet", "again.csv.gz", *given)
    assert Path("again.csv.gz").read_bytes() == packed
    for broken in (packed[:40] + bytes(40) + packed[80:], packed[:-9], b"age,income\n1,2\n"):
        Path("broken.csv.gz").write_bytes(broken)
        code, _, err = desk.call("run", "DSWAP", "broken.csv.gz", "out.parquet", *given)
        assert (code, err) == (1, "rowveil: broken.csv.gz cannot be read: it is not complete gzip data\n")


PLACES = {
    "the manifest over the source": (["in.csv", "out.csv", "--manifest", "in.csv"], "--manifest"),
    "by another name": (["in.csv", "out.csv", "--manifest", "link.csv"], "--manifest"),
    "the manifest over the seed": (["in.csv", "out.csv", "--manifest", "seed"], "--manifest"),
    "the manifest over the destination": (["in.csv", "out.csv", "--manifest", "./out.csv"], "--manifest"),
    "the destination over the kept seed": (["in.csv", "out.csv", "--keep-seed", "out.csv"], "--keep-seed"),
    "two on standard output": (["in.csv", "-", "--format", "csv", "--report", "-"], "--report"),
}


@pytest.mark.parametrize("case", PLACES)
def test_no_two_files_are_one(desk: Desk, case: str) -> None:
    """No input is overwritten, and no output by another."""
    given, flag = PLACES[case]
    pyarrow.csv.write_csv(people(), "in.csv")
    Path("link.csv").symlink_to("in.csv")
    before = Path("in.csv").read_bytes()
    code, out, err = desk.call("run", "DSWAP", *given, "--swap-fields", "income", "--seed-file", "seed")
    assert (code, out, err.startswith(f"rowveil: {flag}: ")) == (2, "", True)
    assert Path("in.csv").read_bytes() == before
    assert Path("seed").read_text() == f"{SEED}\n"
    assert not Path("out.csv").exists()


def test_a_run_that_fails_leaves_no_seed(desk: Desk) -> None:
    """Such a seed would belong to no table, and would block the next run."""
    given = ["run", "DSWAP", "in.parquet", "out.parquet", "--keep-seed", "kept"]
    assert desk.call(*given, "--swap-fields", "agee")[0] == 2
    assert not Path("kept").exists()
    full = ["run", "DSWAP", "in.parquet", "/dev/full", "--format", "csv", "--keep-seed", "kept"]
    assert desk.call(*full, "--swap-fields", "income")[0] == 1  # found when the work is done
    assert not Path("kept").exists()
    desk.done(*given, "--swap-fields", "income")
    assert Path("kept").exists()


def test_a_plan_makes_no_keys_for_the_manifest_that_is_not_written(desk: Desk) -> None:
    given = ["--swap-fields", "income", "--validate-only", "--manifest", "m.json", "--keep-seed", "kept"]
    desk.done("run", "DSWAP", "in.parquet", "out.parquet", *given)
    assert not desk.home.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_behind_standard_output_is_reported(desk: Desk) -> None:
    given = [
        "run",
        "DSWAP",
        "in.parquet",
        "-",
        "--swap-fields",
        "income",
        "--format",
        "csv",
        "--keep-seed",
        "kept",
    ]
    with (
        Path("/dev/full").open("wb") as full,
        desk.process(*given, stdout=full.fileno(), forked=True) as done,
    ):
        _, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (
        1,
        b"rowveil: standard output cannot be written: No space left on device\n",
    )
    assert not Path("kept").exists()


def test_nothing_is_left_in_the_temporary_folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    room = desk.folder / "temporary"
    room.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(room))
    desk.done("run", "DSWAP", "in.parquet", "out.parquet", "--swap-fields", "income")
    desk.call("run", "DSWAP", "in.parquet", "out.parquet", "--swap-fields", "agee")
    assert list(room.iterdir()) == []


def test_formulas_are_escaped_in_a_csv_alone(desk: Desk) -> None:
    Path("formulas.csv").write_text("name,balance\n=1+1,-5\n=1+1,-5\n")
    given = ["--swap-fields", "balance", "--seed-file", "seed", "--csv-formulas", "escape"]
    desk.done("run", "DSWAP", "formulas.csv", "out.csv", *given)
    assert Path("out.csv").read_bytes() == b"name,balance\r\n'=1+1,-5\r\n'=1+1,-5\r\n"
    code, _, err = desk.call("run", "DSWAP", "formulas.csv", "out.parquet", *given)
    assert (code, "--csv-formulas: the destination is no CSV" in err) == (2, True)


def test_a_csv_is_written_with_another_delimiter_and_decimal_mark(desk: Desk) -> None:
    Path("in.csv").write_text("name;balance\na,b;-5,5\na,b;-5,5\n")
    given = ["--swap-fields", "balance", "--seed-file", "seed"]
    given += ["--csv-delimiter", ";", "--csv-decimal-mark", "comma", "--csv-written-decimal-mark", "comma"]
    desk.done("run", "DSWAP", "in.csv", "out.csv", *given, "--csv-written-delimiter", ";")
    assert Path("out.csv").read_bytes() == b"name;balance\r\na,b;-5,5\r\na,b;-5,5\r\n"
    desk.done("run", "DSWAP", "in.csv", "out.tsv", *given)
    assert Path("out.tsv").read_bytes() == b"name\tbalance\r\na,b\t-5,5\r\na,b\t-5,5\r\n"
    code, _, err = desk.call("run", "DSWAP", "in.csv", "out.csv", *given)
    assert (code, "--csv-written-decimal-mark: a CSV with the decimal mark" in err) == (2, True)
    code, _, err = desk.call("run", "DSWAP", "in.csv", "out.tsv.gz", *given, "--csv-written-delimiter", ";")
    assert (code, "--csv-written-delimiter: a .tsv has tabs" in err) == (2, True)
    code, _, err = desk.call("run", "DSWAP", "in.csv", "out.parquet", *given)
    assert (code, "--csv-written-decimal-mark: the destination is no CSV" in err) == (2, True)
