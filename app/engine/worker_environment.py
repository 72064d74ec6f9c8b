"""Environment variables of worker processes: only variables of an allow-list.

The service's environment has passwords and keys, such as ``ROWVEIL_DATABASE_URL``, ``ROWVEIL_KEY`` or
``AWS_SECRET_ACCESS_KEY``, and may have any others that an operator has set.
"""

import os
from collections.abc import Mapping

ADDITIONAL = "ROWVEIL_WORKER_ENVIRONMENT"
"""Variable with the names of further variables, separated by commas."""

_NAMES = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
    "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "GLIBC_TUNABLES",
    "ARROW_DEFAULT_MEMORY_POOL", "SSL_CERT_FILE", "SSL_CERT_DIR", "ROWVEIL_KERNEL_CPU",
})  # fmt: skip

_PREFIXES = ("LC_", "PYTHON", "NUMBA_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "MALLOC_", "COVERAGE_")

_TRACES = "OTEL_"
"""Prefix of OpenTelemetry's variables: a worker exports its traces itself."""


def worker_environment(given: Mapping[str, str], traces: bool) -> dict[str, str]:
    """Return the variables that a worker gets; ``traces``: whether it exports traces."""
    further = {name.strip() for name in given.get(ADDITIONAL, "").split(",")}
    prefixes = (*_PREFIXES, _TRACES) if traces else _PREFIXES
    allowed = _NAMES | further | {ADDITIONAL}
    return {name: value for name, value in given.items() if name in allowed or name.startswith(prefixes)}


def clear_environment(traces: bool) -> None:
    """Remove all other variables from this process's environment."""
    kept = worker_environment(os.environ, traces)
    for name in [name for name in os.environ if name not in kept]:
        del os.environ[name]
