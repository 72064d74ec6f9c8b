"""Program that runs a command in a forked process, with its own files, folder and variables.

``python -S -m tests.preloaded.command DESCRIPTOR app run ...``: see `tests.preloaded.processes.command`.
"""

import os
import socket
import sys

from tests.preloaded.forks import received, request_fork


def main(descriptor: str, *arguments: str) -> int:
    """Run a module or a script, and return its exit code.

    Parameters
    ----------
    descriptor
        Descriptor of the socket for requests.
    *arguments
        Name of the module or path of the script, and its arguments.
    """
    folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as all the rest
    given = {"folder": folder, "environment": dict(os.environ), "arguments": arguments}
    with socket.socket(fileno=int(descriptor)) as requests:
        _, status = request_fork(requests, given, [0, 1, 2])
    return received(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
