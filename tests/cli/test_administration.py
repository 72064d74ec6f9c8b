"""Administration commands in a place without an installation: refused, unless they begin one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.__main__ import main

REFUSED = (
    "audit verify",
    "ledger",
    "ledger --verify",
    "rotate-keys",
    "reseal",
    "adopt-storage",
    "keys list",
    "keys revoke abc",
    "migrate --to 2026_11_25b_ledger_indexes",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one, without settings."""
    for name in ("HOME", "DATABASE_URL", "KEY", "AUTH"):
        monkeypatch.delenv(f"ROWVEIL_{name}", raising=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    return empty


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_without_an_installation_is_refused_and_creates_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main(command.split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"rowveil: there is no database at sqlite:///{folder}/var/rowveil.db; set ROWVEIL_HOME or "
        "ROWVEIL_DATABASE_URL as for the service\n"
    )
    assert not list(folder.iterdir())


@pytest.mark.parametrize("size", [0, 4096], ids=["empty", "without tables"])
def test_a_file_without_tables_is_no_installation(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    file = folder / "other.db"
    if size:
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE other (id INTEGER)")
    else:
        file.touch()
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", f"sqlite:///{file}")
    assert main(["audit", "verify"]) == 1
    assert f"there is no database at sqlite:///{file};" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir() if not path.name.startswith("other.db")] == []


@pytest.mark.parametrize("first", ["keys create --name ann", "keys own"])
def test_the_command_that_makes_the_first_key_begins_an_installation(
    folder: Path, capsys: pytest.CaptureFixture[str], first: str
) -> None:
    assert main(first.split()) == 0
    capsys.readouterr()
    assert main(["audit", "verify"]) == 0
    out, err = capsys.readouterr()
    assert "the audit is intact" in out
    assert err == f"database sqlite:///{folder}/var/rowveil.db, home {folder}/var\n"
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().err == ""


def test_a_migration_may_come_before_the_first_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate"]) == 0
    assert main(["audit", "verify"]) == 1
    assert "there is no key file var/keys/master.key; set ROWVEIL_HOME or" in capsys.readouterr().err
    assert main(["keys", "create", "--name", "ann"]) == 0
    assert main(["audit", "verify"]) == 0


@pytest.mark.parametrize("command", ["audit verify", "ledger --verify", "keys create --name ann", "keys own"])
def test_the_database_of_the_service_with_another_home_gets_no_new_key(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Its master key exists elsewhere: one that is made here opens nothing."""
    assert main(["keys", "create", "--name", "ann"]) == 0
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", f"sqlite:///{folder}/var/rowveil.db")
    other = folder / "other"
    other.mkdir()
    monkeypatch.setenv("ROWVEIL_HOME", str(other))
    capsys.readouterr()
    assert main(command.split()) == 1
    message = f"there is no key file {other}/keys/master.key; set ROWVEIL_HOME or ROWVEIL_KEY_FILE"
    assert message in capsys.readouterr().err
    assert not (other / "keys").exists()


def test_a_verification_makes_no_signing_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "--name", "ann"]) == 0
    (folder / "var" / "keys" / "signing.key").unlink()
    assert main(["audit", "verify"]) == 1
    assert "set ROWVEIL_HOME or ROWVEIL_SIGNING_KEY_FILE" in capsys.readouterr().err
    assert not (folder / "var" / "keys" / "signing.key").exists()


def test_a_revision_that_does_not_exist_is_an_invalid_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "own"]) == 0
    capsys.readouterr()
    assert main(["migrate", "--to", "nonsense"]) == 2
    assert "there is no older revision 'nonsense'; there are" in capsys.readouterr().err
