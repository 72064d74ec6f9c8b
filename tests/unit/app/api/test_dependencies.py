"""Dependencies are coroutine functions: FastAPI would run others in a thread at every request."""

import ast
from pathlib import Path

import app.api


def test_no_dependency_takes_a_thread() -> None:
    named: dict[str, bool] = {}
    for path in Path(app.api.__file__).parent.glob("**/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_async = {node.name: True for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Depends":
                (given,) = node.args  # none: a class, which would run in a thread as well
                assert isinstance(given, ast.Name)
                named[f"{path.name}: {given.id}"] = is_async.get(given.id, False)
    assert len(named) >= 6
    assert [name for name, ok in named.items() if not ok] == []
