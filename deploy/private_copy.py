"""``python -m deploy.private_copy GIVEN OWN``: the given secrets as files that this user alone may read.

Kubernetes gives secrets to a user who is not root by way of a group. The service wants keys that nobody else
can read, and libpq wants the same of passwords.
"""

import sys
from pathlib import Path

from deploy.files import write_private


def copy(given: Path, own: Path) -> list[str]:
    """Copy each file of a folder (0600); their names."""
    names = sorted(path.name for path in given.iterdir() if path.is_file())  # not the mount's own `..data`
    for name in names:
        write_private(own / name, (given / name).read_bytes())
    return names


if __name__ == "__main__":
    if not copy(Path(sys.argv[1]), Path(sys.argv[2])):
        sys.exit(f"there is no secret in {sys.argv[1]}")
