"""Progress bar of ``rowveil_client``: shown in a terminal or a notebook."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import httpx
import pytest

from rowveil_client import Rowveil
from tests.terminal import ROOT, SIZES, in_terminal

ROWS = 60_000  # seconds of work on a fast machine too: the service reports progress about four times a second
FEW_ROWS = 10_000
"""Enough for a bar, which would be drawn from the start of the job."""
SWAP = """
import sys

from rowveil_client import Rowveil
from tests.cli.people import people

with Rowveil(*sys.argv[1:3]) as rowveil:
    released = rowveil.dswap(people(int(sys.argv[3])), swap_fields=["income"], candidates=32)
    print(rowveil.job["state"], released.num_rows)
"""


@pytest.fixture
def script(client: httpx.Client, key: str, tmp_path: Path) -> list[str]:
    """Many measured runs, with one stage for each run. The last argument is the number of rows."""
    path = tmp_path / "swap.py"
    path.write_text(SWAP)
    return [str(path), str(client.base_url), key]


@pytest.mark.parametrize("size", SIZES)
def test_the_bar_moves_in_a_terminal(script: list[str], size: str) -> None:
    """The bar moves from left to right while the job runs, fits its line and disappears."""
    ended = in_terminal([*script, str(ROWS)], SIZES[size])
    assert (ended.code, ended.stdout.decode()) == (0, f"succeeded {ROWS}\n"), ended.drawn
    percents = [bar.percent for bar in ended.bars]
    assert percents == sorted(percents)
    assert len(set(percents)) >= 6, ended.drawn
    assert len({bar.stage for bar in ended.bars}) >= 3
    assert ended.widest <= (SIZES[size][1] or 80)
    assert ended.drawn.split("\r")[-2].strip() == ended.drawn.split("\r")[-1].strip() == ""


@pytest.mark.parametrize("stderr", ["pipe", "closed"])
def test_nothing_is_drawn_where_nobody_looks_on(script: list[str], stderr: str) -> None:
    command = [sys.executable, *script, str(FEW_ROWS)]
    if stderr == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"succeeded {FEW_ROWS}\n", "")


@pytest.mark.parametrize(("shell", "shown"), [(SimpleNamespace(kernel=object()), True), (object(), False)])
def test_a_kernel_is_distinguished_from_a_script_that_imports_ipython(
    shell: object, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notebook has no terminal and shows a bar; a mere import of ipykernel does not count."""
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with Rowveil("http://127.0.0.1:9") as rowveil:
        assert rowveil._shown is shown
