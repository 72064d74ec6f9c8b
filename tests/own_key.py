"""Key of this machine's user for the service on a home, made without a process."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest


def own_key(home: Path, **settings: str) -> str:
    """Return the key, as `demo.service.own_key` does with a process that takes two seconds to start."""
    from app.__main__ import main  # both take a second to import, and most tests need no key
    from app.cli.admin import own_key_file

    given = {"home": str(home), "auth": "on"} | settings
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        for name, value in given.items():
            patch.setenv(f"ROWVEIL_{name.upper()}", value)
        assert main(["keys", "own"]) == 0
    return own_key_file(home).read_text(encoding="utf-8").strip()
