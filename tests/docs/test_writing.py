"""The writing guide holds: first words of docstrings, and words of the glossary's column "do not use".

Checked for the words are docstrings, strings, comments and identifiers of Python, the console, and pages.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

FOLDERS = (
    "app", "benchmarks", "demo", "deploy", "migrations", "providers", "rowveil_client", "tests", "tools",
    "website",
)  # fmt: skip
"""Folders whose docstrings are checked."""

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
    "(tell|tells|told|telling)": "notify, report, show, distinguish",
    "(taken|thought) for dead": "its lease expired",
    "what came out": "the release, the result",
    "may know of": "visible to",
    "put aside": "stored in scratch space",
    "what goes when": "retention and expiry",
    "what callers have going": "usage",
}
"""Word or phrase that is not used, as a regular expression -> what to write."""
_NOT_USED = re.compile(rf"\b({'|'.join(INSTEAD)})\b", re.IGNORECASE)

FILE_METHODS = {"tell": "name of a method that Python's file objects have"}
"""Identifier that contains a word not to use -> why it is kept."""

CONSOLE = ("*.js", "*.css", "*.html")
"""Sources of the console, whose words are checked as one text."""

QUOTING = ("docs/glossary.md", "docs/writing.md")
"""Pages that list the words in order to name them."""
DERIVED = ("docs/services/", "docs/http-reference.md", "docs/measures.md", "docs/settings.md")
"""Pages made from the code, whose texts are checked there."""


def checked_files(folder: str) -> list[Path]:
    """Return the Python files of a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


Lines = list[tuple[int, str]]
"""Line and text of each."""


def docstrings(path: Path) -> Lines:
    """Return line and text of each docstring of a file, including those of attributes."""
    return literals(path.read_text(encoding="utf-8"))[0]


@cache
def literals(source: str) -> tuple[Lines, Lines]:
    """Return the docstrings and the other strings of a Python file. Parsed once for all tests."""
    documents: Lines = []
    strings: Lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)):
                strings.append((node.lineno, text))
            case _ if isinstance(body := getattr(node, "body", None), list):
                documents += _docstrings(node, body)
    lines = {line for line, _ in documents}
    return documents, [(line, text) for line, text in strings if line not in lines]


@cache
def refused_in(text: str) -> tuple[str, ...]:
    """Return the words not to use in a text. Most identifiers come many times."""
    return tuple(word[0] for word in _NOT_USED.finditer(" ".join(text.split())))


def _docstrings(node: ast.AST, body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for index, statement in enumerate(body):
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))):
                before = body[index - 1] if index else node
                if isinstance(before, _DOCUMENTED):
                    yield statement.lineno, text


def words_of_code(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings, comments and identifiers of a Python file, without docstrings.

    Identifiers are yielded as words: `test_a_b` as "test a b". Identifiers and comments are left out if no
    word of the whole file is refused: tokens take longest.
    """
    yield from literals(source)[1]
    if not refused_in(source.replace("_", " ")):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        match token.type:
            case tokenize.COMMENT:
                yield token.start[0], token.string
            case tokenize.NAME if token.string not in FILE_METHODS:
                yield token.start[0], token.string.replace("_", " ")


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
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in checked_files(folder)
        if path != Path(__file__)
        for line, text in docstrings(path)
        for word in refused_in(text)
    ]
    assert not found, "\n".join([f"{len(found)} words of the column 'do not use':", *found])


@pytest.mark.parametrize("folder", FOLDERS)
def test_strings_comments_and_names_use_the_words_of_the_glossary(folder: str) -> None:
    """Rule 2 over messages, comments and identifiers."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in checked_files(folder)
        if path != Path(__file__)
        for line, text in words_of_code(path.read_text(encoding="utf-8"))
        for word in refused_in(text)
    ]
    assert not found, "\n".join([f"{len(found)} words of the column 'do not use':", *found])


def test_the_console_uses_the_words_of_the_glossary() -> None:
    """Rule 2 over everything that the console shows, and over its comments and style classes."""
    files = [path for pattern in CONSOLE for path in sorted((ROOT / "app/console").rglob(pattern))]
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {word[0]}"
        for path in files
        for word in _NOT_USED.finditer(" ".join(path.read_text(encoding="utf-8").split()))
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


def test_words_of_code_are_found() -> None:
    """Strings, also parts of f-strings, comments and names; docstrings have a test of their own."""
    source = '"""Docstring."""\ndef told_so(x):\n    return f"beside {x} file"  # whoever\n'
    found = {text for _, text in words_of_code(source)}
    assert {"told so", "beside ", " file", "# whoever"} <= found
    assert "Docstring." not in found
    refused = sorted(word[0] for text in found for word in _NOT_USED.finditer(text))
    assert refused == ["beside", "told", "whoever"]
    assert list(words_of_code("file.tell()")) == [(1, "file")]


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
