"""Writer of secret files."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically that only its owner may read (0600)."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)  # left by an interrupted run
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
