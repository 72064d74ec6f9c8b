"""Program that runs a command in a forked process, with its own files, folder and variables.

``python -S -m tests.preloaded.command DESCRIPTOR run DSWAP ...``: see `tests.preloaded.processes.command`.
"""

import os
import socket
import sys

from tests.preloaded.forks import received, request_fork


def main(descriptor: str, *arguments: str) -> int:
    """Run the command, and return its exit code. ``descriptor``: of the socket for requests."""
    folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as all the rest
    given = {"folder": folder, "environment": dict(os.environ), "arguments": ["app", *arguments]}
    with socket.socket(fileno=int(descriptor)) as requests:
        _, status = request_fork(requests, given, [0, 1, 2])
    return received(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
