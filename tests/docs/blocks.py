"""The fenced examples of a page, and a reader who types them in."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.preloaded.processes import command

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
ELSEWHERE = ("README.md", "examples/README.md", "clients/python/README.md")
"""Further pages, relative to the root of the checkout."""
ADDRESS = "http://127.0.0.1:8080"
"""Address of the service in the pages."""

PROGRAMS = {"python": ("py", ".venv/bin/python {0}.py")}
"""Language -> suffix of its files, and what runs one of them."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = """
set -eu
curl() { command curl --no-progress-meter --fail-with-body "$@"; }
"""
_COMMAND = 'rowveil() {{ {} "$@"; }}\n'


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    prints: str | None = None
    """Expected output: the `text` block that follows it."""


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order, each with its expected output."""
    found: list[Block] = []
    for language, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "text" and found and found[-1].prints is None:
            found[-1] = Block(found[-1].language, found[-1].text, text)
        else:
            found.append(Block(language, text))
    return found


def pages() -> list[str]:
    """Return the path of every page, relative to the folder of the pages."""
    others = [f"../{name}" for name in ELSEWHERE]
    return [*(page.relative_to(PAGES).as_posix() for page in sorted(PAGES.rglob("*.md"))), *others]


def pages_with(*languages: str) -> list[str]:
    """Return the pages that have a block in one of the languages."""
    return [page for page in pages() if any(block.language in languages for block in blocks(PAGES / page))]


def sample_table() -> Block:
    """Return the block that writes the quick start's people.csv, which other pages use."""
    (made,) = (block for block in blocks(PAGES / "quick-start.md") if "demo.people" in block.text)
    return made


@dataclass(frozen=True, slots=True)
class Reader:
    """Simulated reader in a checkout, with a running service."""

    folder: Path
    address: str
    home: Path
    """Home of the service."""
    root: Path = ROOT
    """Checkout whose code is run."""
    shell: str = ""
    """Further functions of the reader's shell."""

    def settle(self, environment: str = sys.prefix) -> None:
        """Link the virtual environment, the home that `make serve` creates, the examples, and `deploy`."""
        (self.folder / ".venv").symlink_to(environment)
        (self.folder / "var").symlink_to(self.home)
        for name in ("examples", "deploy"):
            (self.folder / name).symlink_to(self.root / name)

    def run(
        self,
        examples: list[Block],
        environment: dict[str, str] | None = None,
        put: dict[str, str] | None = None,
        programs: dict[str, tuple[str, str]] = PROGRAMS,
    ) -> None:
        """Run the examples unchanged, one after the other, in one shell.

        The command ``rowveil`` of this checkout is forked from a process that has imported it.
        ``put``: placeholder on the page -> its value in the test. An example fails if it ends with an
        error or if its output, standard error included, differs from the page.
        """
        forked = command() if self.root == ROOT else None
        rowveil = [".venv/bin/python", "-m", "app"] if forked is None else forked.arguments
        script = [_SHELL, _COMMAND.format(shlex.join(rowveil)), self.shell]
        for number, example in enumerate(examples):
            text = example.text
            for written, here in {ADDRESS: self.address, **(put or {})}.items():
                text = text.replace(written, here)
            if example.language in programs:
                suffix, program = programs[example.language]
                (self.folder / f"{number}.{suffix}").write_text(text, encoding="utf-8")
                text = program.format(number) + "\n"
            script += [f"{{\n{text}}} > {number}.out 2>&1\n"]
        given = {"PYTHONPATH": str(self.root), "ROWVEIL_HOME": str(self.home), **(environment or {})}
        ran = subprocess.run(
            ["bash", "-c", "".join(script)],  # noqa: S607 - as a reader has it
            cwd=self.folder,
            env=os.environ | given,
            pass_fds=() if forked is None else (forked.descriptor,),
            capture_output=True,
            text=True,
            check=False,
        )
        printed = [
            path.read_text(encoding="utf-8") if (path := self.folder / f"{number}.out").is_file() else None
            for number in range(len(examples))
        ]
        assert ran.returncode == 0, f"{ran.stderr}\n{[text for text in printed if text is not None][-1:]}"
        for example, shown in zip(examples, printed, strict=True):
            assert shown is not None  # each was run
            if example.prints is not None:
                same = doctest.OutputChecker().check_output(
                    example.prints.replace("…", "..."), shown, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                )
                assert same, f"the page says\n{example.prints}\nit prints\n{shown}"
