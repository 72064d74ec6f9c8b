"""First module of the fork server: set its process up before libraries are loaded.

- Libraries that are loaded afterwards start no thread. Each worker sets its own number of threads after the
  fork (`app.engine.worker_process`).
- A Ctrl-C in the terminal reaches the server as well, and so may a SIGTERM of a process manager. The service
  decides when its workers end, which the server's end would kill.
- If the service is killed, the server removes the folder of its listening socket, which the service would
  have removed.
"""

import atexit
import contextlib
import gc
import os
import signal
import sys
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from app.engine.worker_environment import worker_environment
from app.engine.worker_process import THREAD_VARIABLES
from app.lean import leave_out
from app.telemetry import tracing

_SERVER = "from multiprocessing.forkserver import main"
"""Start of the server's program, as multiprocessing writes it."""


def _remove_listener(server: int) -> None:
    """Remove the socket and its folder, unless this is a forked process or the service was faster."""
    own: Any = forkserver._forkserver  # its main function notes the address here
    if os.getpid() != server or not own._forkserver_address:
        return
    address = Path(own._forkserver_address)
    with contextlib.suppress(OSError):  # also if the folder has other files
        address.unlink(missing_ok=True)
        address.parent.rmdir()


def _execute_again_without_secrets() -> None:
    """Replace this process by itself without the service's other variables, if it has any.

    A variable that is only removed stays readable in ``/proc/self/environ``. Nothing has happened yet in this
    process, and its open files stay open.
    """
    kept = worker_environment(os.environ, tracing.wanted())
    if kept.keys() != os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, kept)  # noqa: S606 - the same program


if _SERVER in sys.orig_argv[-1]:  # and not in a process that only imports this module
    _execute_again_without_secrets()
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(_remove_listener, os.getpid())

for _variable in THREAD_VARIABLES:
    os.environ[_variable] = "1"
# Arrow's own allocator would reserve a gigabyte, which the limit of a worker's memory counts.
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"

leave_out("pandas")

gc.disable()  # while modules are imported: `app.worker.preload` enables it
