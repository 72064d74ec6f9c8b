"""Core dumps of the service's processes, whose memory has keys, seeds and rows."""

import resource


def disable_core_dumps() -> None:
    """Set the limit of core dumps of this process, and of its later children, to 0; the hard limit stays."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
