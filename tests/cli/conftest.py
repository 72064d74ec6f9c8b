"""Fixtures: a table, and the command line as a process or within this one."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.__main__ import main
from tests.cli.people import people
from tests.preloaded.processes import command

SEED = "8f1c7a0b52e94d63"


class Desk:
    """Folder with a table, a seed and a home, in which commands run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
        self.folder = folder
        self.home = folder / "home"
        self._capfd = capfd
        monkeypatch.setenv("ROWVEIL_HOME", str(self.home))
        monkeypatch.chdir(folder)
        pq.write_table(people(), folder / "in.parquet")
        (folder / "seed").write_text(f"{SEED}\n")

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error of a command."""
        try:
            code = main(list(arguments))
        except SystemExit as left:  # argparse exits this way
            code = int(str(left.code))
        said = self._capfd.readouterr()
        return code, said.out, said.err

    def done(self, *arguments: str) -> str:
        """Return the standard output of a command that must succeed."""
        code, out, err = self.call(*arguments)
        assert code == 0, err
        return out

    def process(
        self,
        *arguments: str,
        stdin: int | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        forked: bool = False,
        **variables: str,
    ) -> subprocess.Popen[bytes]:
        """Run the command as a process of its own, with pipes.

        ``forked``: from a process that has imported it; such a command gets no signals.
        """
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | variables
        preloaded = command() if forked else None
        program = [sys.executable, "-m", "app"] if preloaded is None else preloaded.arguments
        return subprocess.Popen(
            [*program, *arguments],
            env=environment,
            pass_fds=() if preloaded is None else (preloaded.descriptor,),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, monkeypatch, capfd)
