"""Dask's logs of messages and transitions, which would keep tasks with their seeds and grow with each job.

Scheduler, workers and clients keep the last 100,000 messages that they sent, transitions and events, for
debugging. A message holds a whole task: its seed, the keys of its blobs and its small table.
"""

import dask


def keep_no_messages() -> None:
    """Let this process keep none of Dask's messages. Call it before Dask's objects are made."""
    dask.config.set({"distributed.admin.low-level-log-length": 0})
