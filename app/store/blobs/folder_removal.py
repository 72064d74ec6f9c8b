"""Removal of folders that workers may write to, whatever is in them."""

import contextlib
import os
import secrets
import shutil
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, as far as possible. Links are removed and not followed.

    `shutil.rmtree` calls itself for each level of folders, so that folders of a thousand levels stop it.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError, RecursionError):
        while _lift_folders(folder):
            pass
        shutil.rmtree(folder, ignore_errors=True)


def _lift_folders(folder: Path) -> bool:
    """Move the folders two levels below a folder one level up, and return whether there were any.

    Raises OSError.
    """
    lifted = False
    for child in _folders(folder):
        for grandchild in _folders(child):
            grandchild.rename(folder / secrets.token_hex(16))
            lifted = True
        shutil.rmtree(child, ignore_errors=True)  # only files are left
    return lifted


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
