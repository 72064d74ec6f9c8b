"""Folder in which the API processes of a service count, so that any of them shows the sums.

prometheus_client keeps the values of a process in files of a folder if a variable names it when the library
is imported. Counters of a dead process are kept.
"""

import os
from pathlib import Path

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def make_folder() -> None:
    """Make the folder. Nothing may have imported prometheus_client before."""
    import tempfile  # imported late: `rowveil --help` needs it not

    os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="rowveil-metrics-")


def metrics_folder() -> Path | None:
    """Return the folder; None if the service has one API process."""
    name = os.environ.get(_VARIABLE)
    return Path(name) if name else None


def remove_folder() -> None:
    """Remove the folder, when the service ends."""
    import shutil

    shutil.rmtree(os.environ.pop(_VARIABLE), ignore_errors=True)
