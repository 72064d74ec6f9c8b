"""The fenced examples of a page, and a reader who types them in."""

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
ADDRESS = "http://127.0.0.1:8080"
"""What the pages call the service."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = """
set -eu
curl() { command curl --no-progress-meter --fail-with-body "$@"; }
rowveil() { .venv/bin/python -m app "$@"; }
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    prints: str | None = None
    """What the page says that it prints: the `text` block that follows it."""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order, each with what it is said to print."""
    found: list[Block] = []
    for language, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "text" and found and found[-1].prints is None:
            found[-1] = Block(found[-1].language, found[-1].text, text)
        else:
            found.append(Block(language, text))
    return found


def pages_with(*languages: str) -> list[str]:
    """The pages that have a block in one of the languages."""
    return [
        page.relative_to(PAGES).as_posix()
        for page in sorted(PAGES.rglob("*.md"))
        if any(block.language in languages for block in blocks(page))
    ]


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody in a checkout, beside a service that runs."""

    folder: Path
    address: str
    home: Path
    """The service's."""
    root: Path = ROOT
    """The checkout whose code it is."""

    def settle(self) -> None:
        """What a reader has there: the virtual environment, and the home that `make serve` makes."""
        (self.folder / ".venv").symlink_to(sys.prefix)
        (self.folder / "var").symlink_to(self.home)

    def run(self, examples: list[Block], environment: dict[str, str], put: dict[str, str]) -> None:
        """Run the examples one after the other in one shell, as they stand.

        ``put``: what stands on the page for a thing of the reader's own -> what it is here. An example
        that fails, or prints what the page does not say, fails.
        """
        script = [_SHELL]
        for number, example in enumerate(examples):
            text = example.text
            for told, here in {ADDRESS: self.address, **put}.items():
                text = text.replace(told, here)
            if example.language == "python":
                (self.folder / f"{number}.py").write_text(text, encoding="utf-8")
                text = f".venv/bin/python {number}.py\n"
            script += [f"{{\n{text}}} > {number}.out\n"]
        given = {"PYTHONPATH": str(self.root), "ROWVEIL_HOME": str(self.home), **environment}
        ran = subprocess.run(
            ["bash", "-c", "".join(script)],  # noqa: S607 - as a reader has it
            cwd=self.folder,
            env=os.environ | given,
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
