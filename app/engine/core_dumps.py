"""Core dumps of the service's processes, whose memory has keys, seeds and rows."""

import resource


def disable_core_dumps() -> None:
    """Write none if this process crashes; its children inherit that. The system's own limit stays."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
