"""Removal of folders that code in a worker has filled."""

import os
from pathlib import Path

from app.store.blobs.folder_removal import remove_folder


def nest(folder: Path, depth: int) -> None:
    """Make folders below each other, with a file in each."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        os.mkdir("deeper", dir_fd=parent)
        child = os.open("deeper", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)


def test_folders_of_thousands_of_levels_are_removed(tmp_path: Path) -> None:
    """A path to the last of them is longer than the system accepts, and so is Python's stack."""
    folder = tmp_path / "folder"
    for name in ("one", "other"):
        (folder / name).mkdir(parents=True)
        nest(folder / name, 3000)
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []
    remove_folder(folder)


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "kept").touch()
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    nest(folder, 2000)
    remove_folder(folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["outside", "kept"]
    (tmp_path / "link").symlink_to(outside)
    remove_folder(tmp_path / "link")
    assert (outside / "kept").exists()
