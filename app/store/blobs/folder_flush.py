"""Flush of a folder: a file that was renamed or linked into it is there after a power cut."""

import os
from pathlib import Path


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
