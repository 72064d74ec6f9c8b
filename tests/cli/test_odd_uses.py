"""Commands with odd options, closed or full streams, and homes that cannot be used end in one line."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from app.__main__ import main
from tests.cli.conftest import Desk
from tests.cli.people import people

_SWAP = ["run", "DSWAP", "in.parquet", "out.parquet", "--swap-fields", "income"]

ODD: dict[str, tuple[list[str], str]] = {
    "deep JSON": (["frontier", "in.parquet", "--services", "@deep"], "--services: not valid JSON"),
    "many workers": (
        ["plan", "in.parquet", "DSWAP", "--swap-fields", "income", "--workers", "9" * 5000],
        "--workers: '999",
    ),
    "a folder that is missing": ([*_SWAP, "--keep-seed", "kept", "--report", "no/r.json"], "--report: "),
    "a folder in place of a file": ([*_SWAP, "--keep-seed", "kept", "--manifest", "home"], "--manifest: "),
    "a seed on standard output": ([*_SWAP, "--keep-seed", "-"], "--keep-seed: a secret"),
    "a seed that is none": ([*_SWAP, "--seed-file", "deep"], "--seed-file: a seed is"),
    "a seed file that is missing": ([*_SWAP, "--seed-file", "no"], "--seed-file: no cannot be read: No such"),
    "a verdict and a report": (
        ["attack", "in.parquet", "in.parquet", "--known", "age", "--report", "-"],
        "--report: '-' is used by the verdict",
    ),
    "measures without a report": ([*_SWAP, "--measures-sample", "10"], "--measures-...: measures are part"),
    "attacks without a full report": (
        [*_SWAP, "--attacks-known", "age", "--report", "r.json"],
        "--attacks-...: attacks are part of the full report: give --report FILE",
    ),
    "a key that is empty": (
        ["verify", "m.json", "in.parquet", "in.parquet", "--public-key", ""],
        "--public-key: ",
    ),
    "a .tsv without tabs": (
        [*_SWAP[:3], "out.tsv.gz", *_SWAP[4:], "--csv-written-delimiter", ";"],
        "--csv-written-delimiter: a .tsv has tabs",
    ),
    "a table without a format": (["verify", "m.json", "in.parquet", "."], "--format: "),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_option_is_refused_in_one_line(desk: Desk, case: str) -> None:
    given, message = ODD[case]
    Path("deep").write_text("[" * 100_000)
    desk.home.mkdir()
    if given[0] == "verify":
        desk.done(*_SWAP, "--manifest", "m.json")
        Path("out.parquet").unlink()
    code, out, err = desk.call(*given)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"rowveil: {message}")
    assert not Path("kept").exists()
    assert not Path("out.parquet").exists()


def test_a_table_that_cannot_be_read_is_named(desk: Desk) -> None:
    Path("empty.csv").touch()
    code, _, err = desk.call("measures", "in.parquet", "empty.csv")
    assert (code, err.startswith("rowveil: empty.csv: ")) == (1, True)
    Path("packed.csv").write_bytes(b"\x1f\x8b\x08")
    code, _, err = desk.call("measures", "in.parquet", "packed.csv")
    assert (code, "name the file .csv.gz" in err) == (1, True)


@pytest.mark.parametrize(
    ("content", "given", "message"),
    [
        ("a;b\n1;2\n", ["--swap-fields", "a"], "state the other one as '--csv-delimiter'"),
        ("a,b\n1,2\n", [], "by name in '--swap-fields' or by position in '--swap-field-indices'"),
        ("rate,b\n1,2\n", ["--swap-fields", "rate,rate"], "swap field 'rate' is named twice"),
    ],
)
def test_a_message_names_options_as_they_are_typed(
    desk: Desk, content: str, given: list[str], message: str
) -> None:
    """The same messages name parameters over HTTP; a field of the table keeps its name."""
    Path("in.csv").write_text(content)
    code, _, err = desk.call("run", "DSWAP", "in.csv", "out.csv", *given)
    assert code in (1, 2)
    assert message in err


def test_types_of_fields_are_read_from_a_file(desk: Desk) -> None:
    """And errors in them name the option; they were exit code 1, of a parameter that is no option."""
    pyarrow.csv.write_csv(people(), "in.csv")
    run = ["run", "DSWAP", "in.csv", "out.parquet", "--swap-fields", "income", "--csv-fields"]
    Path("types").write_text('{"income": "decimal(12,2)"}')
    desk.done(*run, "@types")
    assert pyarrow.parquet.read_schema("out.parquet").field("income").type == pa.decimal128(12, 2)
    code, _, err = desk.call(*run, "@no")
    assert (code, err) == (2, "rowveil: --csv-fields: no cannot be read: No such file or directory\n")
    code, _, err = desk.call(*run, '{"incom": "int64"}')
    assert code == 2
    assert err.startswith(
        "rowveil: in.csv: '--csv-fields' states a type for unknown field 'incom'; did you mean"
    )
    Path("in.csv").write_bytes(b"age,income\n1,\xe9\n")
    code, _, err = desk.call(*run, "{}")
    assert (code, err.endswith("state its encoding as '--csv-encoding'\n")) == (1, True)


def test_the_target_of_a_link_is_written(desk: Desk) -> None:
    """The link became a file of its own, and its target kept its old content."""
    Path("elsewhere").mkdir()
    Path("elsewhere/target.csv").write_text("old")
    Path("out.csv").symlink_to("elsewhere/target.csv")
    Path("new.csv").symlink_to("elsewhere/new.csv")
    Path("lost.csv").symlink_to("nowhere/lost.csv")
    for name in ("out.csv", "new.csv"):
        desk.done(*_SWAP[:3], name, *_SWAP[4:])
        assert Path(name).is_symlink()
        assert Path(name).resolve().read_text().startswith("age,")
    code, _, err = desk.call(*_SWAP[:3], "lost.csv", *_SWAP[4:])
    assert (code, "there is no folder" in err) == (2, True)


def test_a_file_without_permission_does_not_differ_and_a_damaged_one_does(desk: Desk) -> None:
    """Only content that is not what was signed is a difference."""
    pyarrow.csv.write_csv(people(), "in.csv")
    desk.done("run", "DSWAP", "in.csv", "out.csv", "--swap-fields", "income", "--manifest", "m.json")
    Path("cut.csv.gz").write_bytes(b"\x1f\x8b\x08\x00")
    assert desk.call("verify", "m.json", "in.csv", "cut.csv.gz")[0] == 3
    Path("folder.csv").mkdir()  # no mode keeps an administrator from reading a file
    code, out, err = desk.call("verify", "m.json", "in.csv", "folder.csv")
    assert (code, out, err) == (1, "", "rowveil: folder.csv cannot be read: Is a directory\n")


def test_a_name_of_a_field_does_not_control_the_terminal(desk: Desk) -> None:
    Path("odd.csv").write_text("\x1b[31mred,b\n1,2\n2,3\n")
    code, _, err = desk.call("run", "DSWAP", "odd.csv", "out.csv", "--swap-fields", "c")
    assert (code, "\x1b" in err, "'\\x1b[31mred'" in err) == (2, False, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_key_that_nobody_has_seen_is_revoked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, Path("/dev/full").open("w") as full:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as left:
            main(["keys", "create", "--name", "ann"])
    assert left.value.code == 1
    code, out, err = desk.call("keys", "list")
    assert (code, err) == (0, "rowveil: standard output cannot be written: No space left on device\n")
    assert "  revoked  ann  " in out


def test_closed_streams_are_errors(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is not lost without notice, and no file gets the descriptor of standard output."""
    for stream, given in (
        ("stdout", ["run", "DSWAP", "in.parquet", "-", "--format", "csv", "--swap-fields", "income"]),
        ("stdin", ["run", "DSWAP", "-", "out.csv", "--format", "csv", "--swap-fields", "income"]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, stream, None)
            code, out, err = desk.call(*given)
            with getattr(sys, stream):
                pass
        assert (code, out) == (1, "")
        assert err.startswith("rowveil: standard ")
        assert err.endswith(": Bad file descriptor\n")
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("keys/master.key", "the key file "), ("rowveil.db", "the database "), ("keys/own.key", "Is a dir")],
)
def test_a_home_that_cannot_be_used_is_named(desk: Desk, name: str, message: str) -> None:
    path = desk.home / name
    path.parent.mkdir(parents=True)
    if path.suffix == ".db":
        path.write_text("no database")
    else:
        path.mkdir()
    code, _, err = desk.call("keys", "own")
    assert (code, err.count("\n"), err.startswith(f"rowveil: {message}")) == (1, 1, True)
    assert path.name in err


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["keys", "create", "--name", "ann", "--expires", "9999999d"], 2, "at most 36500 days"),
        (["keys", "create", "--name", "ann", "--expires", "90x"], 2, "rowveil: --expires: give a number"),
        (["keys", "create", "--name", "ann", "--scopes", "raed"], 2, "rowveil: unknown scope 'raed'"),
        (["audit", "verify", "--anchor", "c1:00"], 2, "an anchor is 'c<number>:<mac>'"),
        (["ledger", "sha256t:00"], 0, "no release of this source is in the ledger"),
    ],
)
def test_administration_says_what_is_wrong(desk: Desk, given: list[str], code: int, message: str) -> None:
    desk.call("keys", "own")  # the installation
    found, out, err = desk.call(*given)
    assert (found, out, message in err) == (code, "", True)


@pytest.mark.parametrize("command", [["run", "CDSWAP"], ["attack"], ["measures"], ["frontier"]])
def test_the_help_of_a_command_speaks_of_no_header(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Descriptions are those of the API, whose uploads have a Content-Type; files have none."""
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    text = capsys.readouterr().out
    assert "Content-Type" not in text
    assert "the character encoding. Default: `utf-8`." in " ".join(text.split())
