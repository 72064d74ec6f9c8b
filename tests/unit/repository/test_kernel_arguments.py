"""Every argument of every kernel is in its docstring, or in the list of shared arguments of its module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROVIDERS = Path(__file__).parents[3] / "providers"
SECTION = "Arguments of kernels\n--------------------\n"
ENTRY = re.compile(r"^([a-z_0-9]+(?:, [a-z_0-9]+)*)(?: :.*)?$", re.MULTILINE)


def decorators() -> set[str]:
    """The names of all decorators that make kernels."""
    tree = ast.parse((PROVIDERS / "kernels" / "decorators.py").read_text())
    assigned = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    return {"njit", "parallel", "_borrowing", *(name.id for name in assigned if isinstance(name, ast.Name))}


def shared(tree: ast.Module) -> set[str]:
    """The arguments that the module's docstring lists."""
    _, found, section = (ast.get_docstring(tree) or "").partition(SECTION)
    return {name for names in ENTRY.findall(section) for name in names.split(", ")} if found else set()


def undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    listed, makers = shared(tree), decorators()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        made_by = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
        if made_by & makers:
            words = set(re.findall(r"\w+", ast.get_docstring(node) or ""))
            missing = [each.arg for each in node.args.args if each.arg not in words | listed]
            if missing:
                yield f"{path.relative_to(PROVIDERS.parent)} {node.name}: {', '.join(missing)}"


def test_every_argument_of_a_kernel_is_documented() -> None:
    assert [line for path in sorted(PROVIDERS.rglob("*.py")) for line in undocumented(path)] == []


@pytest.mark.parametrize(
    ("documented", "missing"),
    [
        ('"""Module."""', ["providers/x.py kernel: sums"]),
        (f'"""Module.\n\n{SECTION}one, sums : float64 arrays (n,)\n    Sums. Written.\n"""', []),
    ],
)
def test_an_argument_that_nothing_documents_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documented: str, missing: list[str]
) -> None:
    monkeypatch.setattr(f"{__name__}.PROVIDERS", tmp_path / "providers")
    (tmp_path / "providers" / "kernels").mkdir(parents=True)
    (tmp_path / "providers" / "kernels" / "decorators.py").write_text("within = 1\n")
    path = tmp_path / "providers" / "x.py"
    path.write_text(f'{documented}\n\n@within\ndef kernel(rows, sums):\n    """Add up `rows`."""\n')
    assert list(undocumented(path)) == missing
