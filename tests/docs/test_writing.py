"""The writing guide holds: first words of docstrings, and words of the glossary's column "do not use"."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

FOLDERS = (
    "app", "benchmarks", "demo", "deploy", "migrations", "providers", "rowveil_client", "tests", "tools",
    "website",
)  # fmt: skip
"""Folders whose docstrings are checked."""

UNCHECKED: tuple[str, ...] = ()
"""Folders among them that are not held to the rules yet."""

FIRST_WORDS = {
    "what", "who", "whose", "whoever", "where", "of", "those", "as", "from", "told", "tells", "tell", "how",
    "when", "which", "on", "in", "by", "to",
}  # fmt: skip
"""Words with which no docstring begins (rule 1)."""

INSTEAD = {
    "anew": "again",
    "whoever": "anyone who",
    "beside": "next to, in addition to, relative to",
    "so many": "n, as many as",
    "lonely": "singleton",
    "(is|are|was|were|be|been) told": "is notified, is reported",
    "told (of|about|by|apart)": "notified of, reported by, distinguished",
    "(taken|thought) for dead": "its lease expired",
    "what came out": "the release, the result",
    "may know of": "visible to",
    "put aside": "stored in scratch space",
}
"""Word or phrase that is not used, as a regular expression -> what to write."""
_NOT_USED = re.compile(rf"\b({'|'.join(INSTEAD)})\b", re.IGNORECASE)

QUOTING = ("docs/glossary.md", "docs/writing.md")
"""Pages that list the words in order to name them."""
DERIVED = ("docs/services/", "docs/http-reference.md", "docs/measures.md")
"""Pages made from the code, whose texts are checked there."""


def checked_files(folder: str) -> list[Path]:
    """Return the Python files of a folder that are held to the rules."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in files if path.parent.relative_to(ROOT).as_posix() not in UNCHECKED]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a file, including those of attributes."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for index, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    before = body[index - 1] if index else node
                    if isinstance(before, _DOCUMENTED):
                        yield statement.lineno, text


_DOCUMENTED = (
    ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign,
)  # fmt: skip


def first_word(text: str) -> str:
    """Return the first word in lower case, without markup."""
    found = re.match(r"\W*(\w+)", text)
    return found[1].lower() if found else ""


def texts() -> dict[str, str]:
    """Return path -> text of everything that is read as prose and is not made from the code."""
    top = (ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md", "Makefile"))
    files = [*sorted(PAGES.rglob("*.md")), *top]
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    return {
        name: text for name, text in found.items() if name not in QUOTING and not name.startswith(DERIVED)
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_name_the_thing_or_the_action_first(folder: str) -> None:
    """Rule 1."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in checked_files(folder)
        for line, text in docstrings(path)
        if first_word(text) in FIRST_WORDS
    ]
    assert not found, "\n".join([f"{len(found)} docstrings begin with a word of rule 1:", *found])


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_use_the_words_of_the_glossary(folder: str) -> None:
    """Rule 2."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]}"
        for path in checked_files(folder)
        if path != Path(__file__)
        for line, text in docstrings(path)
        for word in _NOT_USED.finditer(" ".join(text.split()))
    ]
    assert not found, "\n".join([f"{len(found)} words of the column 'do not use':", *found])


def test_pages_use_the_words_of_the_glossary() -> None:
    """Rule 2; examples are checked, too."""
    found = [
        f"{name}: ...{text[max(0, word.start() - 40) : word.end() + 20]}..."
        for name, text in ((name, " ".join(text.split())) for name, text in texts().items())
        for word in _NOT_USED.finditer(text)
    ]
    assert not found, "\n".join([f"{len(found)} words of the column 'do not use':", *found])


def test_the_glossary_lists_the_words() -> None:
    """Each plain word that the tests refuse is in the column "do not use"."""
    rows = re.findall(
        r"^\|[^|]*\|[^|]*\| ([^|]*) \|", (PAGES / "glossary.md").read_text(), flags=re.MULTILINE
    )
    listed = ", ".join(rows)
    assert [word for word in INSTEAD if "(" not in word and word not in listed] == []


def test_docstrings_of_attributes_are_found(tmp_path: Path) -> None:
    """Module, class, field and function."""
    path = tmp_path / "module.py"
    path.write_text('"""A."""\nx = 1\n"""B."""\nclass C:\n    """C."""\n    y: int\n    """D."""\n    "no"\n')
    assert [text for _, text in docstrings(path)] == ["A.", "B.", "C.", "D."]
    assert [first_word(text) for text in ("What it is.", "``what`` is it", "Whatever")] == [
        "what",
        "what",
        "whatever",
    ]
