"""Keys for the service on a home, made without a process, which takes a second to start."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest


def own_key(home: Path, **settings: str) -> str:
    """Return the key of this machine's user, as `demo.service.own_key` does."""
    from app.cli.admin import own_key_file  # takes a second to import, and most tests need no key

    _printed(home, ["keys", "own"], settings)
    return own_key_file(home).read_text(encoding="utf-8").strip()


def created_key(home: Path, name: str, scopes: str, **settings: str) -> str:
    """Create a key with these scopes, and return it."""
    return _printed(home, ["keys", "create", "--name", name, "--scopes", scopes], settings).split()[-1]


def _printed(home: Path, arguments: list[str], settings: dict[str, str]) -> str:
    """Return the standard output of a command on a home that must succeed."""
    from app.__main__ import main

    given = {"home": str(home), "auth": "on"} | settings
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        for name, value in given.items():
            patch.setenv(f"ROWVEIL_{name.upper()}", value)
        assert main(arguments) == 0
    return out.getvalue()
