"""Processes that are forked from one that has imported their modules.

A service and its fork server take two seconds of processor time to start, nearly all of it for imports, and
tests start hundreds. `tests.preloaded.processes` forks them from two servers instead, one that has imported
the service and one that has imported the modules of workers. All test processes of a run share them
(`tests.preloaded.shared`).

Workers of clusters are forked from a third one, and commands on tables from a fourth
(`tests.preloaded.processes.command`). Scripts that compile kernels are forked from a fifth, which has
compiled one: numba takes more than a second of processor time for its import and the first kernel
(`tests.preloaded.processes.kernel_script`).

A forked service differs from `python -m app serve` in little: its command line in ``/proc`` is the
server's, and the server is the parent of its fork server (`tests.preloaded.processes.fork_servers`). Tests
about the start, imports, memory or the environment of a process start it as a user would, by
`demo.service`.
"""
