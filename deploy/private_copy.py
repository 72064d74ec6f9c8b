"""Copy secrets to files that only this user may read: ``python -m deploy.private_copy GIVEN OWN``.

Kubernetes makes secrets readable for non-root users by their group. The service requires keys that only its
user can read, and libpq requires the same of password files.
"""

import sys
from pathlib import Path

from deploy.files import write_private


def copy(given: Path, own: Path) -> list[str]:
    """Copy each file of a folder (0600); return their names."""
    names = sorted(path.name for path in given.iterdir() if path.is_file())  # not the mount's own `..data`
    for name in names:
        write_private(own / name, (given / name).read_bytes())
    return names


if __name__ == "__main__":
    if not copy(Path(sys.argv[1]), Path(sys.argv[2])):
        sys.exit(f"there is no secret in {sys.argv[1]}")
